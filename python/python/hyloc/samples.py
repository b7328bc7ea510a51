"""Matrices as they stand in reports and recordings: floating point, or a few bits per real number."""

from __future__ import annotations

from typing import Tuple

import numpy as np
import numpy.typing as npt

from . import _hyloc

__all__ = ["decode_samples", "encode_samples"]


def decode_samples(
    data: bytes,
    precision: str,
    shape: Tuple[int, int],
    *,
    frame: int = 0,
    l: int = 0,
    k: int = 0,
    field: str = "block",
) -> npt.NDArray[np.complex128]:
    """The matrix of a payload of a report (``hyloc.v1.Block``), rows x columns.

    ``f64`` and ``f32`` are little-endian numbers, column by column, real part first. ``q16``, ``q8``, ``q4`` and ``q2`` begin with
    the step as a float of 32 bits; levels of that many bits follow in the same order, lowest bits first. A level n of b bits
    stands for ``(n - 2**(b-1) + 1/2 - d) * step``, where d is a dither, uniform in [-1/2, 1/2), that sender and receiver draw from
    the frame, the path and the field: SplitMix64, whose state begins as ``s = mix(s ^ part) + 0x9e3779b97f4a7c15`` over
    ``frame, l, k, field`` (0 for block, 1 for its derivative, 2 for a spectrum) from s = 0, and whose upper 53 bits are d + 1/2.

    :param precision: ``f64``, ``f32``, ``q16``, ``q8``, ``q4`` or ``q2``.
    :param shape: rows (sensors) and columns (streams of a block, subcarriers of a spectrum).
    :param frame: number of the frame; with l and k only needed for quantised payloads.
    :param l: the node that sent it.
    :param k: the IRS that reflected it.
    :param field: ``block``, ``block_derivative`` or ``spectrum``.

    >>> import hyloc, numpy as np
    >>> matrix = np.array([[1 + 2j, 3 - 1j]])
    >>> payload = hyloc.encode_samples(matrix, "q16", frame=7, l=1, k=2, field="spectrum")
    >>> len(payload)
    12
    >>> decoded = hyloc.decode_samples(payload, "q16", (1, 2), frame=7, l=1, k=2, field="spectrum")
    >>> bool(np.allclose(decoded, matrix, atol=1e-4))
    True
    """
    return _hyloc.decode_samples(data, precision, shape, (frame, l, k, field))


def encode_samples(
    matrix: npt.NDArray[np.complex128],
    precision: str,
    *,
    frame: int = 0,
    l: int = 0,
    k: int = 0,
    field: str = "block",
) -> bytes:
    """The payload of a matrix; see :func:`decode_samples`."""
    return _hyloc.encode_samples(np.asarray(matrix, dtype=np.complex128), precision, (frame, l, k, field))
