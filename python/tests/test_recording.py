"""Recordings as arrays."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import hyloc


def _lines(recording: Path) -> "list[dict[str, object]]":
    return [json.loads(line) for line in (recording.parent / "fixes.jsonl").read_text().splitlines()]


def test_positions_tracks_and_spectra_in_three_lines(recording: Path) -> None:
    read = hyloc.read_recording(recording)
    positions, tracks = read.fixes.positions_m, read.fixes.tracks
    spectra = read.blocks.spectra
    lines = _lines(recording)
    assert read.faults == [] and len(positions) == len(lines) == len(read.blocks) >= 20
    by_frame = {line["frame"]: line for line in lines}
    for fix in read.fixes.array:
        line = by_frame[int(fix["frame"])]
        if line["position_m"] is not None:
            assert fix["position_m"][:2].tolist() == line["position_m"] and fix["status"] == line["status"]
    logged = [track for line in lines for track in line["tracks"]]  # type: ignore[attr-defined]
    assert len(tracks) == len(logged) > 0
    assert sorted(tracks["identity"]) == sorted(track["identity"] for track in logged)
    assert tracks["covariance"].shape[1:] == (4, 4)
    assert [array.shape[1:] for array in spectra] == [(3, 10, 33)] * 3
    assert np.isfinite(spectra[0]).mean() > 0.9
    assert 'max_targets = ' in read.method and read.site.irs_count == 3
    assert "Recording(Site(3 IRSs" in repr(read)


def test_the_truth_and_a_locator_of_ones_own(recording: Path) -> None:
    read = hyloc.read_recording(recording)
    assert set(read.truth["identity"]) == {0, 1} and len(read.truth) >= 2 * 20
    again = hyloc.Locator(read.site, max_targets=2).locate(read.blocks)
    assert (again.frames == read.blocks.frames).all()
    both = {int(fix["frame"]): fix["position_m"] for fix in read.fixes.array}
    for fix in again.array:
        expected = both[int(fix["frame"])]
        assert np.allclose(fix["position_m"], expected, rtol=0, atol=1e-9, equal_nan=True)
    assert hyloc.Locator(read.site, max_targets=2).replay(recording).array.tobytes() == again.array.tobytes()
    places = read.truth_of(read.fixes)
    assert np.isfinite(places).all() and places.shape == (len(read.fixes), 3)


def test_spectra_are_the_simulated_echoes_but_for_rounding(recording: Path) -> None:
    """Eight bits per real number: 38 dB below the signal."""
    read = hyloc.read_recording(recording)
    scenario = hyloc.Scenario.from_toml("seed = 1")
    owned = read.site.owned_subcarriers[0]
    assert (owned == scenario.owned_subcarriers[0]).all()
    noise = read.blocks.noise_powers_w
    assert np.nanmedian(noise) == pytest.approx(scenario.noise_power_w, rel=0.2)


def test_recordings_that_cannot_be_read(recording: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        hyloc.read_recording(tmp_path / "nowhere")
    broken = tmp_path / "broken"
    broken.mkdir()
    for file in recording.iterdir():
        (broken / file.name).write_bytes(file.read_bytes())
    (broken / "site.pb").write_bytes(b"nonsense")
    with pytest.raises(hyloc.RecordingError, match="site.pb: does not match its checksum"):
        hyloc.read_recording(broken)
    (broken / "site.pb").write_bytes((recording / "site.pb").read_bytes())
    data = bytearray((recording / "blocks.mcap").read_bytes())
    data[len(data) // 2] ^= 0xFF
    (broken / "blocks.mcap").write_bytes(data)
    damaged = hyloc.read_recording(broken)
    assert damaged.faults and len(damaged.blocks) <= len(hyloc.read_recording(recording).blocks)
    (broken / "blocks.mcap").write_bytes(bytes((recording / "blocks.mcap").read_bytes()[:-2000]))
    cut = hyloc.read_recording(broken)
    assert any("ends at byte" in fault for fault in cut.faults)
