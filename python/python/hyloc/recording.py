"""Recordings of a fusion center as arrays."""

from __future__ import annotations

from dataclasses import dataclass, field
from os import PathLike
from typing import List, Union

import numpy as np
import numpy.typing as npt

from . import _hyloc
from .locator import Blocks, Fixes
from .scenario import FloatArray, Site

__all__ = ["Recording", "read_recording"]

TRUTH = np.dtype(
    [
        ("run", np.uint64),
        ("frame", np.int64),
        ("identity", np.int64),
        ("position_m", np.float64, 3),
        ("rcs_m2", np.float64),
    ]
)


@dataclass(frozen=True)
class Recording:
    """What ``--record`` of a fusion center or of a demo has written."""

    site: Site
    """The site; ``hyloc.Locator(recording.site)`` locates its reports anew."""
    fixes: Fixes
    """The fixes with their targets and tracks. Recordings that have none are replayed."""
    blocks: Blocks
    """The reports of all nodes, frame by frame, decoded: delays, blocks, spectra."""
    truth: npt.NDArray[np.void]
    """The truth as a simulator has told it, one row per target and frame: ``run``, ``frame``, ``identity``, ``position_m``,
    ``rcs_m2``."""
    method: str
    """How frames were solved, as TOML."""
    faults: List[str]
    """What is damaged or missing, with its place; empty for a whole recording."""
    _handle: _hyloc.RecordingHandle = field(repr=False)

    def __repr__(self) -> str:
        return f"Recording({self.site!r}, {len(self.blocks)} frames, {self.fixes!r})"

    def truth_of(self, fixes: Fixes) -> FloatArray:
        """The true position of the first target in the frame of every fix, n x 3; NaN where it is not known."""
        first = self.truth[self.truth["identity"] == 0]
        places = {(int(row["run"]), int(row["frame"])): row["position_m"] for row in first}
        nowhere = np.full(3, np.nan)
        keys = ((int(row["run"]), int(row["frame"])) for row in fixes.array)
        return np.array([places.get(key, nowhere) for key in keys]).reshape(-1, 3)


def read_recording(directory: Union[str, PathLike[str]]) -> Recording:
    """Reads the recording in a directory: positions, tracks and spectra in three lines.

    .. code-block:: python

        recording = hyloc.read_recording("recording")
        positions_m, tracks = recording.fixes.positions_m, recording.fixes.tracks
        spectra = recording.blocks.spectra

    Checksums are verified. What is damaged is left out and named in :attr:`Recording.faults`; everything else is read.

    >>> import hyloc
    >>> hyloc.read_recording("nowhere")
    Traceback (most recent call last):
    FileNotFoundError: [Errno 2] nowhere/site.pb: No such file or directory (os error 2)
    """
    handle = _hyloc.RecordingHandle(directory)
    runs, frames, identities, places, sections = handle.truth()
    truth = np.zeros(len(runs), TRUTH)
    truth["run"], truth["frame"], truth["identity"] = runs, frames, identities
    truth["position_m"], truth["rcs_m2"] = places, sections
    return Recording(
        site=Site(handle.site),
        fixes=Fixes(handle.fixes()),
        blocks=Blocks(handle.blocks()),
        truth=truth,
        method=handle.method,
        faults=handle.faults,
        _handle=handle,
    )
