"""From echoes or reports to fixes."""

from __future__ import annotations

from os import PathLike
from typing import Any, Iterator, List, Optional, Tuple, Union

import numpy as np
import numpy.typing as npt

from . import _hyloc
from .errors import ArgumentError
from .scenario import ComplexArray, FloatArray, Site
from .simulation import Simulation

__all__ = ["Blocks", "Fixes", "Locator"]

Echoes = Union[ComplexArray, npt.NDArray[np.complex64]]


def _texts(texts: List[str]) -> npt.NDArray[np.str_]:
    """Texts as an array of at least one character, so that empty ones have a type."""
    widest = max(map(len, texts), default=0)
    return np.array(texts, dtype=f"U{max(widest, 1)}")


class Blocks:
    """What the nodes report about some frames: delays, noise, and blocks or spectra of all paths (l, k).

    :meth:`Locator.report` makes them from echoes, a recording holds them. Arrays have a first axis of frames, then
    l (the sensing node), then k (the reflecting IRS); NaN stands for what was not received.

    >>> import hyloc
    >>> run = hyloc.simulate(hyloc.Scenario(), frames=2)
    >>> blocks = hyloc.Locator(run.scenario, payload="spectrum").report(run)
    >>> blocks.delays_s.shape, blocks.spectra[0].shape
    ((2, 3, 3), (2, 3, 10, 33))
    """

    __slots__ = ("_handle",)

    def __init__(self, handle: _hyloc.BlocksHandle) -> None:
        self._handle = handle

    def __len__(self) -> int:
        return len(self._handle)

    def __getitem__(self, index: slice) -> Blocks:
        """Some of the frames, as in ``blocks[10:20]``."""
        start, stop, step = index.indices(len(self))
        if step != 1:
            raise ArgumentError("frames of reports are taken one after the other: the step must be 1")
        return Blocks(self._handle.part(start, max(start, stop)))

    @property
    def frames(self) -> npt.NDArray[np.int64]:
        """Numbers of the frames."""
        return self._handle.numbers

    @property
    def runs(self) -> npt.NDArray[np.uint64]:
        """The run of the simulator that each frame belongs to; 0 where there is none."""
        return self._handle.runs

    @property
    def delays_s(self) -> FloatArray:
        """Cascade delays tau_lk."""
        return self._handle.delays_s

    @property
    def delay_variances_s2(self) -> FloatArray:
        """Variances of the delays, gross errors excluded."""
        return self._handle.delay_variances_s2

    @property
    def snrs(self) -> FloatArray:
        """SNRs after the matched filter, as power ratios."""
        return self._handle.snrs

    @property
    def noise_powers_w(self) -> FloatArray:
        """Noise power per entry that each node has measured, frames x K."""
        return self._handle.noise_powers_w

    @property
    def arrivals_rad(self) -> FloatArray:
        """Angle of arrival at each node from its broadside, frames x K."""
        return self._handle.arrivals_rad

    @property
    def blocks(self) -> List[ComplexArray]:
        """R_lk, for every IRS k an array frames x K x M x D_k; all NaN where nodes do not send blocks."""
        return self._handle.blocks()

    @property
    def block_derivatives(self) -> List[ComplexArray]:
        """Derivatives of R_lk with respect to the delay, per second."""
        return self._handle.block_derivatives()

    @property
    def spectra(self) -> List[ComplexArray]:
        """Y_lk, for every IRS k an array frames x K x M x n_k; all NaN where nodes do not send spectra."""
        return self._handle.spectra()

    def __repr__(self) -> str:
        return f"Blocks({len(self)} frames)"


class Fixes:
    """Fixes of some frames. :attr:`array` is a structured array with one row per frame; its columns are also attributes.

    ========================  ==========================================================================
    ``run``, ``frame``        which frame; ``run`` is 0 where there is no simulator
    ``status``                ``nominal``, ``degraded``, ``doubtful``, or ``unobservable`` if there is no fix
    ``method``                ``three-stage``, ``direct``, ``direct-frames`` or ``direct-targets``
    ``position_m``            x, y and height; NaN if there is no fix
    ``covariance_m2``         covariance of the error, over the free coordinates
    ``protection_level_m``    radius that contains the error even with one undetected fault, or NaN
    ``paths``                 number of paths behind the fix, of K x K
    ``cautions``              why the fix is not nominal, separated by ``; ``
    ``excluded``              what was excluded as faulty, separated by ``; ``
    ========================  ==========================================================================
    """

    __slots__ = ("_handle", "array")
    array: npt.NDArray[np.void]

    def __init__(self, handle: _hyloc.FixesHandle) -> None:
        self._handle = handle
        axes, texts = handle.axes, {}
        for name, column in (
            ("status", handle.statuses()),
            ("method", handle.methods()),
            ("cautions", handle.cautions()),
            ("excluded", handle.excluded()),
        ):
            texts[name] = _texts(column)
        self.array = np.zeros(
            len(handle),
            [
                ("run", np.uint64),
                ("frame", np.int64),
                ("status", texts["status"].dtype),
                ("method", texts["method"].dtype),
                ("position_m", np.float64, 3),
                ("covariance_m2", np.float64, (axes, axes)),
                ("protection_level_m", np.float64),
                ("paths", np.int64),
                ("cautions", texts["cautions"].dtype),
                ("excluded", texts["excluded"].dtype),
            ],
        )
        self.array["run"], self.array["frame"] = handle.runs(), handle.frames()
        self.array["position_m"], self.array["covariance_m2"] = handle.positions_m(), handle.covariances_m2()
        self.array["protection_level_m"], self.array["paths"] = handle.protection_levels_m(), handle.paths()
        for name, column_of_texts in texts.items():
            self.array[name] = column_of_texts

    def __len__(self) -> int:
        return len(self.array)

    def __iter__(self) -> Iterator[np.void]:
        return iter(self.array)

    @property
    def frames(self) -> npt.NDArray[np.int64]:
        """Numbers of the frames."""
        return np.asarray(self.array["frame"])

    @property
    def positions_m(self) -> FloatArray:
        """Positions, n x 3; NaN where there is no fix."""
        return np.asarray(self.array["position_m"])

    @property
    def covariances_m2(self) -> FloatArray:
        """Covariances of the errors over the free coordinates, n x 2 x 2 or n x 3 x 3."""
        return np.asarray(self.array["covariance_m2"])

    @property
    def statuses(self) -> npt.NDArray[np.str_]:
        """``nominal``, ``degraded``, ``doubtful`` or ``unobservable``."""
        return np.asarray(self.array["status"])

    @property
    def targets(self) -> npt.NDArray[np.void]:
        """All targets of all frames, strongest first in each: a structured array with ``frame``, ``position_m``,
        ``covariance_m2``, ``false_alarm_probability`` and ``unresolved`` (whether there may be two)."""
        rows, places, covariances, chances, unresolved = self._handle.targets()
        axes = self._handle.axes
        targets = np.zeros(
            len(rows),
            [
                ("frame", np.int64),
                ("position_m", np.float64, 3),
                ("covariance_m2", np.float64, (axes, axes)),
                ("false_alarm_probability", np.float64),
                ("unresolved", np.bool_),
            ],
        )
        targets["frame"] = self.frames[rows]
        targets["position_m"], targets["covariance_m2"] = places, covariances
        targets["false_alarm_probability"], targets["unresolved"] = chances, unresolved
        return targets

    @property
    def tracks(self) -> npt.NDArray[np.void]:
        """All tracks of all frames, which only recordings of a fusion center have: a structured array with ``frame``,
        ``identity``, ``position_m``, ``velocity_m_s``, ``covariance`` (of both), ``existence``, ``coasting`` and ``age_s``."""
        rows, identities, places, velocities, covariances, existence, coasting, ages = self._handle.tracks()
        states = 2 * self._handle.axes
        tracks = np.zeros(
            len(rows),
            [
                ("frame", np.int64),
                ("identity", np.int64),
                ("position_m", np.float64, 3),
                ("velocity_m_s", np.float64, 3),
                ("covariance", np.float64, (states, states)),
                ("existence", np.float64),
                ("coasting", np.bool_),
                ("age_s", np.float64),
            ],
        )
        tracks["frame"], tracks["identity"] = self.frames[rows], identities
        tracks["position_m"], tracks["velocity_m_s"], tracks["covariance"] = places, velocities, covariances
        tracks["existence"], tracks["coasting"], tracks["age_s"] = existence, coasting, ages
        return tracks

    def write(self, path: Union[str, PathLike[str]]) -> None:
        """Writes a fix log, one JSON line per frame, as ``--fixes`` of the fusion center does."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self._handle.json_lines())

    def __repr__(self) -> str:
        located = int(np.isfinite(self.positions_m[:, 0]).sum())
        return f"Fixes({located} of {len(self)} frames)"


class Locator:
    """Locates targets as nodes and fusion center do, in this process and on all cores.

    A fix depends only on its frame (with ``batch_frames`` also on the frames before), never on the number of threads. The
    interpreter lock is released meanwhile, and Ctrl-C ends the work. Where clocks are not trusted, every frame begins with
    the prior of the scenario.

    :param site: the site, or a scenario, of which targets and seed are not used.
    :param method: ``three-stage`` (the paper), ``direct``, or ``auto``: three-stage where that is safe.
    :param payload: what a node reports per path: ``parameters``, ``block`` or ``spectrum``; by default what a fusion center
        requests for the method.
    :param precision: ``f64``, ``f32``, ``q16``, ``q8``, ``q4`` or ``q2``: reports are rounded as on the wire; by default not.
    :param max_targets: largest number of targets of a frame. More than one needs spectra and the direct method.
    :param frames_per_fix: echo frames that every node averages; path phases must be constant over them.
    :param batch_frames: frames that the direct method combines to locate a moving target in the last of them.
    :param false_alarm_probability: share of frames without a target that may give a fix.

    >>> import hyloc
    >>> run = hyloc.simulate(hyloc.Scenario(), frames=3)
    >>> fixes = hyloc.Locator(run.scenario).locate(run)
    >>> fixes
    Fixes(3 of 3 frames)
    >>> str(fixes.array["status"][0]), fixes.positions_m.shape, fixes.covariances_m2.shape
    ('nominal', (3, 3), (3, 2, 2))
    >>> bool((abs(fixes.positions_m - run.positions_m) < 0.5).all())
    True
    """

    __slots__ = ("_handle", "site")
    site: Site

    def __init__(
        self,
        site: Site,
        method: str = "auto",
        *,
        payload: Optional[str] = None,
        precision: Optional[str] = None,
        max_targets: int = 1,
        frames_per_fix: int = 1,
        batch_frames: int = 1,
        false_alarm_probability: float = 0.0005,
    ) -> None:
        self.site = site
        self._handle = _hyloc.LocatorHandle(
            site._site,
            {
                "method": method,
                "payload": payload,
                "precision": precision,
                "max_targets": max_targets,
                "frames_per_fix": frames_per_fix,
                "batch_frames": batch_frames,
                "false_alarm_probability": false_alarm_probability,
            },
        )

    @property
    def payload(self) -> str:
        """What nodes report per path: ``parameters``, ``block`` or ``spectrum``."""
        return self._handle.payload

    def locate(self, echoes: Union[Echoes, Simulation, Blocks], start: int = 0) -> Fixes:
        """Fixes of echoes or of reports.

        :param echoes: an array of complex128 or complex64, frames x K x M x L (or K x M x L for one frame), a
            :class:`Simulation`, or :class:`Blocks`. A node whose samples of a frame are all NaN did not report.
        :param start: number of the first frame of an array.

        >>> import hyloc, numpy as np
        >>> run = hyloc.simulate(hyloc.Scenario(), frames=1)
        >>> echoes = run.echoes.copy()
        >>> echoes[:, 2] = np.nan
        >>> print(hyloc.Locator(run.scenario).locate(echoes).array["cautions"][0])
        node 2 did not report
        """
        if isinstance(echoes, Blocks):
            return Fixes(self._handle.locate_blocks(echoes._handle))
        array, start = _as_echoes(echoes, start)
        return Fixes(self._handle.locate(array, start))

    def report(self, echoes: Union[Echoes, Simulation], start: int = 0) -> Blocks:
        """What the nodes report about echoes: the first half of :meth:`locate`."""
        array, start = _as_echoes(echoes, start)
        return Blocks(self._handle.report_all(array, start))

    def replay(self, directory: Union[str, PathLike[str]]) -> Fixes:
        """Fixes of the reports of a recording, by the method of this locator: ``locate(read_recording(directory).blocks)``."""
        return Fixes(self._handle.locate_blocks(_hyloc.RecordingHandle(directory).blocks()))

    def __repr__(self) -> str:
        return f"Locator({self.site!r}, payload={self.payload!r})"


def _as_echoes(echoes: Union[Echoes, Simulation], start: int) -> Tuple[Echoes, int]:
    if isinstance(echoes, Simulation):
        return echoes.echoes, int(echoes.frames[0]) if len(echoes) else 0
    array: Any = np.asarray(echoes)
    if array.ndim == 3:
        array = array[np.newaxis]
    if array.ndim != 4 or array.dtype not in (np.complex128, np.complex64):
        raise ArgumentError(
            f"the echoes are an array of {array.dtype} with the shape {array.shape}: must be complex128 or complex64, "
            "frames x nodes x sensors x subcarriers"
        )
    if not 0 <= start < 2**63:
        raise ArgumentError(f"start = {start}: must not be negative")
    return array, start
