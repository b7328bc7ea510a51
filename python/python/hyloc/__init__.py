"""hyloc: locate targets from the echoes that several intelligent reflecting surfaces (IRSs) sense at once.

A scenario describes a site, its targets and everything random. Echoes come from a simulation, or are arrays of
one's own; a locator turns them into fixes, each with covariance, status and protection level:

>>> import hyloc
>>> scenario = hyloc.Scenario()                       # Table I of the paper
>>> run = hyloc.simulate(scenario, frames=20)         # echoes: 20 frames x 3 nodes x 10 sensors x 100 subcarriers
>>> fixes = hyloc.Locator(scenario).locate(run)       # a structured array with one row per frame
>>> print(hyloc.score(run, fixes))                    # beside the exact bound
20 fixes of 20 frames: rms error 8.7 cm, exact bound 7.5 cm, gap 1.39 dB (95 %: -0.91 to 3.70), NEES 2.78 ...

What is here:

================================  ========================================================================
:class:`Scenario`                 read, change and check a scenario; its bounds and its signals
:func:`simulate`                  echoes of a scenario as complex arrays, with the truth
:class:`Locator`                  fixes of echoes, of reports and of recordings
:func:`score`                     anybody's fixes beside the truth and the bound
:func:`watch`                     live fixes of a running fusion center
:func:`read_recording`            a recording as arrays
:func:`decode_samples`            quantised payloads as they stand in recordings
================================  ========================================================================

Units are SI and part of the names, angles are in radians. All errors are :class:`HylocError`; most are also ``ValueError``.
"""

from __future__ import annotations

from ._hyloc import __version__
from .errors import (
    ArgumentError,
    HylocError,
    InternalError,
    RecordingError,
    ScenarioError,
    UnavailableError,
)
from .live import LiveFix, LiveTarget, LiveTrack, Watch, watch
from .locator import Blocks, Fixes, Locator
from .recording import Recording, read_recording
from .samples import decode_samples, encode_samples
from .scenario import Bounds, Scenario, Site
from .scoring import Score, score
from .simulation import Simulation, simulate

__all__ = [
    "ArgumentError",
    "Blocks",
    "Bounds",
    "Fixes",
    "HylocError",
    "InternalError",
    "LiveFix",
    "LiveTarget",
    "LiveTrack",
    "Locator",
    "Recording",
    "RecordingError",
    "Scenario",
    "ScenarioError",
    "Score",
    "Simulation",
    "Site",
    "UnavailableError",
    "Watch",
    "__version__",
    "decode_samples",
    "encode_samples",
    "read_recording",
    "score",
    "simulate",
    "watch",
]
