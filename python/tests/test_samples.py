"""Quantised payloads."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

import hyloc

BITS = {"f64": 64, "f32": 32, "q16": 16, "q8": 8, "q4": 4, "q2": 2}


def _mix(z: int) -> int:
    mask = (1 << 64) - 1
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return z ^ (z >> 31)


def _by_the_documentation(data: bytes, bits: int, count: int, key: "list[int]") -> "list[float]":
    """A decoder that follows the documentation of decode_samples alone."""
    mask, golden, state = (1 << 64) - 1, 0x9E3779B97F4A7C15, 0
    for part in key:
        state = (_mix(state ^ part) + golden) & mask
    step = float(np.frombuffer(data[:4], "<f4")[0])
    levels, reals = int.from_bytes(data[4:], "little"), []
    for i in range(count):
        state = (state + golden) & mask
        dither = (_mix(state) >> 11) / 2**53 - 0.5
        level = levels >> (i * bits) & ((1 << bits) - 1)
        reals.append((level - 2 ** (bits - 1) + 0.5 - dither) * step)
    return reals


@pytest.fixture
def matrix() -> npt.NDArray[np.complex128]:
    random = np.random.default_rng(3)
    return random.normal(size=(10, 33)) + 1j * random.normal(size=(10, 33))


@pytest.mark.parametrize("precision", BITS)
def test_round_trip(matrix: npt.NDArray[np.complex128], precision: str) -> None:
    name = {"frame": 12, "l": 1, "k": 2}
    data = hyloc.encode_samples(matrix, precision, field="spectrum", **name)
    decoded = hyloc.decode_samples(data, precision, (10, 33), field="spectrum", **name)
    error_db = 10 * np.log10(np.mean(np.abs(decoded - matrix) ** 2) / np.mean(np.abs(matrix) ** 2) + 1e-40)
    most_db = {"f64": -300, "f32": -140, "q16": -84, "q8": -38, "q4": -17, "q2": -6}[precision]
    assert error_db <= most_db and len(data) == -(-660 * BITS[precision] // 8) + 4 * (precision[0] == "q")
    if precision[0] == "q":
        # Each field and each path has a dither of its own.
        other = hyloc.decode_samples(data, precision, (10, 33), field="block", **name)
        assert not np.allclose(other, decoded)
        reals = _by_the_documentation(data, BITS[precision], 660, [12, 1, 2, 2])
        samples = np.array(reals[::2]) + 1j * np.array(reals[1::2])
        assert np.allclose(samples.reshape(33, 10).T, decoded, rtol=0, atol=1e-12)


def test_bad_payloads(matrix: npt.NDArray[np.complex128]) -> None:
    data = hyloc.encode_samples(matrix, "q8")
    with pytest.raises(hyloc.ArgumentError, match="663 bytes do not hold 10 x 33 samples in precision q8, expected 664"):
        hyloc.decode_samples(data[:-1], "q8", (10, 33))
    with pytest.raises(hyloc.ArgumentError, match="do not hold"):
        hyloc.decode_samples(data, "q8", (2**62, 2**62))
    with pytest.raises(hyloc.ArgumentError, match="precision = 'q3': must be f64"):
        hyloc.decode_samples(data, "q3", (10, 33))
    with pytest.raises(hyloc.ArgumentError, match="field = 'noise'"):
        hyloc.decode_samples(data, "q8", (10, 33), field="noise")
