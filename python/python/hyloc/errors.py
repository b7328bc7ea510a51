"""Exceptions of hyloc. Their sentences are those of the command line.

Every one is a :class:`HylocError` and also an exception of Python that fits, so that ``except ValueError`` works
as well as ``except hyloc.HylocError``.
"""

from __future__ import annotations


class HylocError(Exception):
    """Any error of this package."""


class ArgumentError(HylocError, ValueError):
    """An argument, or the shape or the content of an array, cannot be used."""


class ScenarioError(HylocError, ValueError):
    """A scenario is impossible, or a key of it is not known."""


class RecordingError(HylocError, ValueError):
    """A recording cannot be read."""


class UnavailableError(HylocError, ConnectionError):
    """A fusion center does not answer or has ended the connection."""


class InternalError(HylocError, RuntimeError):
    """A fault of the package itself."""
