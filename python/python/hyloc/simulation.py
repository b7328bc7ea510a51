"""Echoes of a scenario, with the truth behind them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from . import _hyloc
from .errors import ArgumentError
from .scenario import Scenario

__all__ = ["Simulation", "simulate"]

TARGET = np.dtype([("frame", np.int64), ("identity", np.int64), ("position_m", np.float64, 3), ("rcs_m2", np.float64)])


@dataclass(frozen=True)
class Simulation:
    """What the nodes receive in some frames, and the truth, which no estimator may see."""

    scenario: Scenario
    """The scenario that was simulated."""
    frames: npt.NDArray[np.int64]
    """Numbers of the frames, F."""
    echoes: npt.NDArray[np.complex128]
    """Echoes on all subcarriers, F x K x M x L: frames, nodes, sensors, subcarriers; in sqrt(W)."""
    positions_m: npt.NDArray[np.float64]
    """True positions of the first target, F x 3; NaN where it is not there."""
    targets: npt.NDArray[np.void]
    """All targets: a structured array with ``frame``, ``identity``, ``position_m`` and ``rcs_m2``."""
    clock_offsets_s: npt.NDArray[np.float64]
    """Offsets of the clocks of all nodes, F x K."""

    def __len__(self) -> int:
        return len(self.frames)


def simulate(scenario: Scenario, frames: int, start: int = 0) -> Simulation:
    """Simulates frames. The same scenario gives the same bytes, whatever the number of threads, and as ``hyloc simulate``.

    :param frames: how many frames.
    :param start: number of the first one; a later start gives the same frames as an earlier one.

    >>> import hyloc
    >>> run = hyloc.simulate(hyloc.Scenario(), frames=4)
    >>> run.echoes.shape
    (4, 3, 10, 100)
    >>> again = hyloc.simulate(hyloc.Scenario(), frames=1, start=3)
    >>> bool((again.echoes[0] == run.echoes[3]).all())
    True
    """
    for name, value in (("frames", frames), ("start", start)):
        if not 0 <= value < 2**63:
            raise ArgumentError(f"{name} = {value}: must not be negative")
    echoes, clocks, rows, identities, places, sections = _hyloc.simulate(scenario._handle, start, frames)
    numbers = np.arange(start, start + frames, dtype=np.int64)
    targets = np.zeros(len(rows), TARGET)
    targets["frame"], targets["identity"] = numbers[rows], identities
    targets["position_m"], targets["rcs_m2"] = places, sections
    positions = np.full((frames, 3), np.nan)
    positions[rows[identities == 0]] = places[identities == 0]
    return Simulation(scenario, numbers, echoes, positions, targets, clocks)
