"""Scenarios: a site, its targets and everything random about them."""

from __future__ import annotations

import json
from os import PathLike
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np
import numpy.typing as npt

from . import _hyloc
from .errors import ArgumentError

__all__ = ["Bounds", "Scenario", "Site"]

FloatArray = npt.NDArray[np.float64]
ComplexArray = npt.NDArray[np.complex128]
Positions = Union[Sequence[float], Sequence[Sequence[float]], FloatArray]


class Bounds(NamedTuple):
    """Cramér-Rao bounds on a position, or on n positions with a first axis of n.

    A covariance is over the free coordinates: 2 x 2 in a flat coverage area, else 3 x 3. Positions that cannot be
    observed have NaN.
    """

    exact_m2: FloatArray
    """Covariance with the gains of all paths unknown, with which estimators are compared."""
    exact_rms_m: FloatArray
    """Square root of the trace of the exact bound."""
    paper_m2: FloatArray
    """Covariance of the paper's bound, for which the gains are known."""
    paper_rms_m: FloatArray
    """Square root of the trace of the paper's bound."""


def as_positions(positions_m: Positions) -> Tuple[FloatArray, bool]:
    """Positions as n x 3, and whether one was given; two coordinates have the height 0."""
    given = np.asarray(positions_m, dtype=np.float64)
    single = given.ndim == 1
    table = np.atleast_2d(given)
    if table.ndim != 2 or table.shape[1] not in (2, 3):
        raise ArgumentError(f"positions have the shape {given.shape}: must be (2,), (3,), (n, 2) or (n, 3)")
    if table.shape[1] == 2:
        table = np.column_stack([table, np.zeros(len(table))])
    return np.ascontiguousarray(table), single


def _toml(value: object, nested: bool = False) -> str:
    """A value as the command line would state it."""
    if isinstance(value, str):
        return json.dumps(value) if nested else value
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, (int, np.integer)):
        return str(int(value))
    if isinstance(value, (float, np.floating)):
        return repr(float(value))
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key} = {_toml(item, True)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple, np.ndarray)):
        return "[" + ", ".join(_toml(item, True) for item in value) + "]"
    raise ArgumentError(f"a value of a scenario cannot be of type {type(value).__name__}")


class Site:
    """What estimators may know: poses, arrays, signals, coverage area and noise; a :class:`Scenario` without the truth.

    >>> import hyloc
    >>> site = hyloc.Scenario().site
    >>> site, isinstance(hyloc.Scenario(), hyloc.Site)
    (Site(3 IRSs, 10 sensors, 100 subcarriers), True)
    """

    __slots__ = ("_site",)
    _site: _hyloc.SiteHandle

    def __init__(self, handle: _hyloc.SiteHandle) -> None:
        self._site = handle

    @property
    def rcs_m2(self) -> float:
        """Radar cross-section of a target: the median that estimators assume."""
        return self._site.prior_rcs_m2

    def bounds(
        self,
        position_m: Optional[Positions] = None,
        *,
        scheme: str = "hybrid",
        rcs_m2: Optional[float] = None,
    ) -> Bounds:
        """How well a target can be located at best.

        :param position_m: one position (x, y or x, y, z) or n of them; by default the centre of the coverage area.
        :param scheme: the measurements: ``hybrid`` (all), ``angle-only``, ``delay-only`` or ``no-collaboration``.
        :param rcs_m2: radar cross-section; by default :attr:`rcs_m2`.

        >>> import hyloc
        >>> bounds = hyloc.Scenario().bounds([7.0, 4.0])
        >>> bounds.exact_m2.shape, bool(bounds.paper_rms_m <= bounds.exact_rms_m)
        ((2, 2), True)
        """
        place = self.coverage_m.mean(axis=0) if position_m is None else position_m
        positions, single = as_positions(place)
        exact, paper = self._site.bounds(positions, scheme, self.rcs_m2 if rcs_m2 is None else rcs_m2)
        rms: Callable[[FloatArray], FloatArray] = lambda bound: np.sqrt(np.trace(bound, axis1=1, axis2=2))
        columns = (exact, rms(exact), paper, rms(paper))
        return Bounds(*(column[0] for column in columns)) if single else Bounds(*columns)

    def sensor_responses(self, irs: int, positions_m: Positions) -> ComplexArray:
        """Response of the M sensors of an IRS to targets at n positions: a(theta_l) of the paper, n x M (or M for one).

        >>> import hyloc
        >>> hyloc.Scenario().sensor_responses(0, [[3, 4], [5, 6]]).shape
        (2, 10)
        """
        positions, single = as_positions(positions_m)
        responses = self._site.sensor_responses(irs, positions)
        return responses[0] if single else responses

    def element_responses(self, irs: int, positions_m: Positions) -> ComplexArray:
        """What targets at n positions receive from the N elements of an IRS: a(theta_k)^H of the paper, n x N (or N for one).

        ``scenario.element_responses(k, p) @ scenario.reflected_signals[k] @ scenario.codes[k]`` is the signal at the
        target, on the subcarriers of IRS k.
        """
        positions, single = as_positions(positions_m)
        responses = self._site.element_responses(irs, positions)
        return responses[0] if single else responses

    @property
    def irs_count(self) -> int:
        """Number of IRSs K, which is also the number of nodes."""
        return self._site.irs_count

    @property
    def sensors(self) -> int:
        """Sensors M of every IRS."""
        return self._site.sensors

    @property
    def elements(self) -> int:
        """Reflecting elements N of every IRS."""
        return self._site.elements

    @property
    def subcarriers(self) -> int:
        """Subcarriers L of a frame."""
        return self._site.subcarriers

    @property
    def axes(self) -> int:
        """Free coordinates of a position: 2 in a flat coverage area, else 3."""
        return self._site.axes

    @property
    def noise_power_w(self) -> float:
        """Noise power per sensor and subcarrier."""
        return self._site.noise_power_w

    @property
    def bandwidth_hz(self) -> float:
        """Bandwidth W."""
        return self._site.bandwidth_hz

    @property
    def wavelength_m(self) -> float:
        """Wavelength of the carrier."""
        return self._site.wavelength_m

    @property
    def coverage_m(self) -> FloatArray:
        """Least and largest coordinates of possible targets, 2 x 3."""
        return self._site.coverage_m

    @property
    def base_station_m(self) -> FloatArray:
        """Position of the base station, 3."""
        return self._site.base_station_m

    @property
    def frequencies_hz(self) -> FloatArray:
        """Baseband frequencies of all subcarriers, L: a delay tau is the factor ``exp(-2j pi f tau)``."""
        return self._site.frequencies_hz

    @property
    def irs_positions_m(self) -> FloatArray:
        """Centres of all IRSs, K x 3; the delay of a path is the way from IRS to target to IRS over the speed of light."""
        return self._site.irs_positions_m

    @property
    def irs_orientations_rad(self) -> FloatArray:
        """Azimuth and elevation of the boresight of every IRS and rotation about it, K x 3."""
        return self._site.irs_orientations_rad

    @property
    def sensor_positions_m(self) -> FloatArray:
        """Where the sensors of every IRS are, K x M x 3, with the point to which phases refer at the position of the IRS."""
        return self._site.sensor_positions_m

    @property
    def element_positions_m(self) -> FloatArray:
        """Where the reflecting elements of every IRS are, K x N x 3, likewise."""
        return self._site.element_positions_m

    @property
    def reflected_signals(self) -> List[ComplexArray]:
        """S_k of every IRS, N x D_k in sqrt(W), as estimators know it."""
        return self._site.reflected_signals

    @property
    def codes(self) -> List[ComplexArray]:
        """X_k of every IRS on its subcarriers, D_k x n_k."""
        return self._site.codes

    @property
    def owned_subcarriers(self) -> List[npt.NDArray[np.int64]]:
        """The subcarriers of every IRS, n_k; no two IRSs share one."""
        return self._site.owned_subcarriers

    def __repr__(self) -> str:
        return f"Site({self.irs_count} IRSs, {self.sensors} sensors, {self.subcarriers} subcarriers)"


class Scenario(Site):
    """A site with its IRSs, the targets, and the seed of everything random. It never changes; :meth:`set` returns another.

    ``Scenario()`` is Table I of the paper. Environment variables of the command line have no effect here.

    >>> import hyloc
    >>> scenario = hyloc.Scenario()
    >>> scenario.irs_count, scenario.sensors, scenario.subcarriers
    (3, 10, 100)
    >>> weaker = scenario.set("base_station.power_dbm", 40)
    >>> weaker
    Scenario(3 IRSs, 10 sensors, 100 subcarriers, 40 dBm, 1 target, seed 1)
    >>> round(float(weaker.bounds().exact_rms_m / scenario.bounds().exact_rms_m), 2)
    3.16
    """

    __slots__ = ("_handle",)
    _handle: _hyloc.ScenarioHandle

    def __init__(self) -> None:
        self._handle = _hyloc.ScenarioHandle.table_one()
        super().__init__(self._handle.site)

    @classmethod
    def _of(cls, handle: _hyloc.ScenarioHandle) -> Scenario:
        scenario = cls.__new__(cls)
        scenario._handle, scenario._site = handle, handle.site
        return scenario

    @staticmethod
    def read(path: Union[str, PathLike[str]]) -> Scenario:
        """The scenario of a TOML file; what the file does not name is as in Table I."""
        return Scenario._of(_hyloc.ScenarioHandle.read(path))

    @staticmethod
    def from_toml(text: str) -> Scenario:
        """The scenario of a text in TOML.

        >>> import hyloc
        >>> hyloc.Scenario.from_toml("seed = 7").seed
        7
        """
        return Scenario._of(_hyloc.ScenarioHandle.from_toml(text))

    def to_toml(self) -> str:
        """The whole scenario as TOML, which :meth:`from_toml` and every command of ``hyloc`` read."""
        return self._handle.to_toml()

    def set(self, key: str, value: object) -> Scenario:
        """The scenario with one key changed, as by ``--set key=value`` of the command line.

        Texts are read as the command line reads them (``"circle"``, ``"[1, 2]"``); numbers, lists and dictionaries
        are taken as they are.

        >>> import hyloc
        >>> hyloc.Scenario().set("irs[0].position_m", [20, 40]).irs_positions_m[0]
        array([20., 40.,  0.])
        >>> hyloc.Scenario().set("signal.subcarriers", 7)
        Traceback (most recent call last):
        hyloc.errors.ScenarioError: settings: signal.subcarriers = 7: 30 streams need as many subcarriers
        """
        return self.replace({key: value})

    def replace(self, changes: Mapping[str, object]) -> Scenario:
        """The scenario with several keys changed at once, in their order; see :meth:`set`.

        >>> import hyloc
        >>> hyloc.Scenario().replace({"seed": 3, "target.motion": "circle"}).seed
        3
        """
        pairs = [f"{key}={_toml(value)}" for key, value in changes.items()]
        return Scenario._of(self._handle.changed(pairs))

    def check(self, frames_per_fix: int = 1) -> Dict[str, Any]:
        """Whether the scenario works, as ``hyloc scenario check --json`` says: link budget, SNRs, bounds, warnings, verdict.

        >>> import hyloc
        >>> hyloc.Scenario().check()["verdict"]["outcome"]
        'works'
        """
        if frames_per_fix < 1:
            raise ArgumentError(f"frames_per_fix = {frames_per_fix}: must be at least 1")
        answer: Dict[str, Any] = json.loads(self._handle.check(frames_per_fix))
        return answer

    @property
    def site(self) -> Site:
        """What estimators may know of the scenario."""
        return Site(self._site)

    @property
    def target_count(self) -> int:
        """Number of targets of the scenario."""
        return self._handle.target_count

    @property
    def seed(self) -> int:
        """Seed of everything random."""
        return self._handle.seed

    @property
    def rcs_m2(self) -> float:
        """Radar cross-section of the first target; if there is none, the median that estimators assume."""
        return self._handle.rcs_m2

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Scenario) and self.to_toml() == other.to_toml()

    def __hash__(self) -> int:
        return hash(self.to_toml())

    def __reduce__(self) -> Tuple[Callable[[str], Scenario], Tuple[str]]:
        return Scenario.from_toml, (self.to_toml(),)

    def __repr__(self) -> str:
        targets = f"{self.target_count} target{'' if self.target_count == 1 else 's'}"
        return (
            f"Scenario({self.irs_count} IRSs, {self.sensors} sensors, {self.subcarriers} subcarriers, "
            f"{self._handle.power_dbm:g} dBm, {targets}, seed {self.seed})"
        )
