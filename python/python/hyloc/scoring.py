"""Fixes beside the truth and the exact bound."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Dict, Optional, Tuple, Union

import numpy as np
import numpy.typing as npt

from . import _hyloc
from .errors import ArgumentError
from .locator import Fixes
from .recording import Recording
from .scenario import FloatArray, Positions, Site, as_positions
from .simulation import Simulation

__all__ = ["Score", "score"]


@dataclass(frozen=True)
class Score:
    """How good fixes are. Intervals contain the true value with a probability of 95 %."""

    frames: int
    """Frames of the truth."""
    fixes: int
    """Those with a fix."""
    availability: Optional[float]
    """Share of the frames that have a fix."""
    unknown_frames: int
    """Fixes of frames that the truth does not have; they count for nothing else."""
    rms_error_m: Optional[float]
    bound_rms_m: Optional[float]
    """Rms of the exact bound of the data behind each fix."""
    gap_db: Optional[float]
    """Mean squared error over mean bound."""
    gap_db_interval: Optional[Tuple[float, float]]
    nees: Optional[float]
    """Mean normalised squared error; none where fixes have no covariance."""
    nees_interval: Optional[Tuple[float, float]]
    nees_expected: Optional[int]
    """What the NEES of a consistent covariance is on average: the number of free coordinates."""
    statuses: Dict[str, int]
    """Number of fixes by status, with ``without_fix``."""
    targets: Optional[Dict[str, Any]]
    """Several targets: GOSPA of fixes and tracks, right numbers, switched identities; none for one target."""

    def __str__(self) -> str:
        if self.rms_error_m is None or self.bound_rms_m is None or self.gap_db is None:
            return f"{self.fixes} fixes of {self.frames} frames"
        text = (
            f"{self.fixes} fixes of {self.frames} frames: rms error {100 * self.rms_error_m:.1f} cm, "
            f"exact bound {100 * self.bound_rms_m:.1f} cm, gap {self.gap_db:.2f} dB"
        )
        if self.gap_db_interval:
            text += f" (95 %: {self.gap_db_interval[0]:.2f} to {self.gap_db_interval[1]:.2f})"
        if self.nees is not None and self.nees_interval is not None:
            low, high = self.nees_interval
            text += f", NEES {self.nees:.2f} (95 %: {low:.2f} to {high:.2f}; {self.nees_expected} expected)"
        return text


def score(
    truth: Union[Simulation, Recording, Positions],
    fixes: Union[Fixes, Positions],
    site: Optional[Site] = None,
    *,
    covariances_m2: Optional[FloatArray] = None,
    rcs_m2: Optional[float] = None,
    frames_per_fix: int = 1,
) -> Score:
    """Compares fixes with the truth and with the exact bound, by the code of ``hyloc score`` and of the summary of a demo.

    :param truth: a simulation, a recording, or true positions of one target, one per fix; NaN where there is no target.
    :param fixes: fixes of a locator, or positions of one's own, one per frame; NaN where there is none.
    :param site: the site or scenario, unless the truth is a simulation or a recording.
    :param covariances_m2: covariances of positions of one's own; without them there is no NEES.
    :param rcs_m2: radar cross-section behind true positions, for the bound; by default that of the site.
    :param frames_per_fix: frames that every node averaged for a fix.

    >>> import hyloc
    >>> run = hyloc.simulate(hyloc.Scenario(), frames=20)
    >>> ours = hyloc.score(run, hyloc.Locator(run.scenario).locate(run))
    >>> ours.fixes, abs(ours.gap_db) < 3
    (20, True)
    >>> guess = hyloc.score(run, run.positions_m + [0.1, 0, 0])
    >>> round(guess.rms_error_m, 6), guess.nees
    (0.1, None)
    """
    if not 1 <= frames_per_fix <= 1000:
        raise ArgumentError(f"frames_per_fix = {frames_per_fix}: must be between 1 and 1000")
    site = site or (truth.scenario if isinstance(truth, Simulation) else None)
    site = site or (truth.site if isinstance(truth, Recording) else None)
    if site is None:
        raise ArgumentError("the site is needed, unless the truth is a simulation or a recording")
    if not isinstance(fixes, Fixes):
        fixes = _own(fixes, site, truth, covariances_m2)
    if isinstance(truth, Simulation):
        frames = truth.frames[::frames_per_fix].tolist()
        answer = _hyloc.score_simulation(truth.scenario._handle, frames, fixes._handle, frames_per_fix)
    elif isinstance(truth, Recording):
        answer = _hyloc.score_recording(truth._handle, fixes._handle, frames_per_fix)
    else:
        places, _ = as_positions(truth)
        section = site.rcs_m2 if rcs_m2 is None else rcs_m2
        answer = _hyloc.score_positions(site._site, places, section, fixes._handle, frames_per_fix)
    return _score(json.loads(answer))


def _own(
    positions_m: Positions, site: Site, truth: object, covariances_m2: Optional[npt.NDArray[np.float64]]
) -> Fixes:
    """Positions of one's own as fixes."""
    positions, _ = as_positions(positions_m)
    if covariances_m2 is None:
        covariances_m2 = np.full((len(positions), site.axes, site.axes), np.nan)
    frames = truth.frames.tolist() if isinstance(truth, Simulation) else list(range(len(positions)))
    if len(frames) != len(positions):
        raise ArgumentError(f"{len(positions)} positions for {len(frames)} frames: one per frame is needed")
    covariances = np.ascontiguousarray(covariances_m2, dtype=np.float64)
    if covariances.ndim != 3:
        raise ArgumentError(f"covariances have the shape {covariances.shape}: must be (n, axes, axes)")
    return Fixes(_hyloc.fixes_of_arrays(site._site, frames, positions, covariances))


def _score(figures: Dict[str, Any]) -> Score:
    def interval(name: str) -> Optional[Tuple[float, float]]:
        found = figures[name]
        return (found[0], found[1]) if found else None

    return Score(
        frames=figures["frames"],
        fixes=figures["fixes"],
        availability=figures["availability"],
        unknown_frames=figures["unknown_frames"],
        rms_error_m=figures["rms_error_m"],
        bound_rms_m=figures["bound_rms_m"],
        gap_db=figures["gap_db"],
        gap_db_interval=interval("gap_db_interval"),
        nees=figures["nees"],
        nees_interval=interval("nees_interval"),
        nees_expected=figures["nees_expected"],
        statuses={name: figures[name] for name in ("nominal", "degraded", "doubtful", "without_fix")},
        targets=figures.get("targets"),
    )
