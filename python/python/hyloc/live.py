"""Live fixes of a running fusion center."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from typing import Any, Dict, List, Optional, Type, Union

import numpy as np
import numpy.typing as npt

from . import _hyloc

__all__ = ["LiveFix", "LiveTarget", "LiveTrack", "Watch", "watch"]

Path = Union[str, PathLike[str]]


@dataclass(frozen=True)
class LiveTarget:
    """One of the targets of a frame."""

    position_m: npt.NDArray[np.float64]
    covariance_m2: npt.NDArray[np.float64]
    false_alarm_probability: Optional[float]
    """Probability that noise alone looks like this target."""
    unresolved: bool
    """Whether there may be two targets here that cannot be told apart."""


@dataclass(frozen=True)
class LiveTrack:
    """A target that is followed over several frames."""

    identity: int
    """The same in all frames of a run."""
    position_m: npt.NDArray[np.float64]
    velocity_m_s: npt.NDArray[np.float64]
    covariance: npt.NDArray[np.float64]
    """Covariance of position and velocity over the free coordinates."""
    existence: float
    """Probability that the target exists."""
    coasting: bool
    """Whether the frame does not show it, so that it is predicted."""
    age_s: float


@dataclass(frozen=True)
class LiveFix:
    """A fix as it was published, or the reason why a frame has none."""

    run: int
    frame: int
    time_ns: int
    """When it was published, nanoseconds since the Unix epoch."""
    status: str
    """``nominal``, ``degraded``, ``doubtful``, or ``unobservable`` if there is no fix."""
    method: Optional[str]
    position_m: Optional[npt.NDArray[np.float64]]
    covariance_m2: Optional[npt.NDArray[np.float64]]
    """Covariance of the error over the free coordinates."""
    protection_level_m: Optional[float]
    nodes: List[int]
    """Nodes that reported."""
    paths: int
    cautions: List[str]
    excluded: List[str]
    truth_m: Optional[npt.NDArray[np.float64]]
    """The true position, if a simulator has told it in time."""
    bound_rms_m: Optional[float]
    """The exact bound of the data behind the fix, if the truth is known."""
    fusion_ms: float
    """From the last report to the publication."""
    total_ms: Optional[float]
    """From the transmission of the frame to the publication."""
    targets: List[LiveTarget]
    """All targets of the frame, strongest first."""
    tracks: List[LiveTrack]


def _fix(message: Dict[str, Any]) -> LiveFix:
    message["targets"] = [LiveTarget(**target) for target in message["targets"]]
    message["tracks"] = [LiveTrack(**track) for track in message["tracks"]]
    return LiveFix(**message)


class Watch:
    """The stream of fixes that :func:`watch` opens: an iterator, and a context manager that closes it."""

    __slots__ = ("_handle",)

    def __init__(self, handle: _hyloc.WatchHandle) -> None:
        self._handle = handle

    def __iter__(self) -> Watch:
        return self

    def __next__(self) -> LiveFix:
        message = self._handle.next()
        if message is None:
            raise StopIteration
        return _fix(message)

    def close(self) -> None:
        """Ends the stream."""
        self._handle.close()

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: object, trace: object) -> None:
        self.close()


def watch(
    address: str,
    *,
    tls_ca: Optional[Path] = None,
    tls_cert: Optional[Path] = None,
    tls_key: Optional[Path] = None,
    timeout_s: Optional[float] = None,
) -> Watch:
    """Live fixes of the fusion center at ``host:port``, as they are made, until it ends.

    Waiting releases the interpreter lock and ends with Ctrl-C. A fusion center drops the oldest fixes of a watcher that does
    not keep up.

    :param address: where the fusion center serves gRPC, as in ``127.0.0.1:7400``.
    :param tls_ca: certificates of the authorities, if the fusion center uses TLS; then all three files are needed, and the
        certificate must be one of a watcher.
    :param timeout_s: longest time without a fix, after which ``TimeoutError`` is raised; by default none.

    .. code-block:: python

        with hyloc.watch("127.0.0.1:7400") as fixes:
            for fix in fixes:
                print(fix.frame, fix.status, fix.position_m)

    >>> import hyloc
    >>> hyloc.watch("somewhere")
    Traceback (most recent call last):
    hyloc.errors.ArgumentError: address = 'somewhere': must be host:port
    """
    return Watch(_hyloc.WatchHandle(address, (tls_ca, tls_cert, tls_key), timeout_s))
