"""Scores of our fixes and of others."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

import hyloc


def test_the_score_is_what_numpy_says(run: hyloc.Simulation) -> None:
    fixes = hyloc.Locator(run.scenario).locate(run)
    score = hyloc.score(run, fixes)
    errors = (fixes.positions_m - run.positions_m)[:, :2]
    squares = np.sum(errors**2, axis=1)
    bound = run.scenario.bounds(run.positions_m).exact_rms_m ** 2
    nees = np.einsum("ni,nij,nj->n", errors, np.linalg.inv(fixes.covariances_m2), errors)
    assert score.frames == score.fixes == 60 and score.availability == 1.0
    assert score.rms_error_m == pytest.approx(float(np.sqrt(squares.mean())), rel=1e-9)
    assert score.bound_rms_m == pytest.approx(float(np.sqrt(bound.mean())), rel=1e-9)
    assert score.gap_db == pytest.approx(float(10 * np.log10(squares.mean() / bound.mean())), abs=1e-9)
    assert score.nees == pytest.approx(float(nees.mean()), rel=1e-6) and score.nees_expected == 2
    low, high = score.gap_db_interval or (np.nan, np.nan)
    assert score.gap_db is not None and low < score.gap_db < high and high - low < 5
    assert sum(score.statuses.values()) == 60 and "rms error" in str(score) and "NEES" in str(score)


def test_the_score_is_the_summary_of_a_run(executable: str, tmp_path: Path) -> None:
    """The same code and the same reports give the figures of the command line to the digit."""
    folder = tmp_path / "recording"
    command = [executable, "demo", "--frames", "25", "--rate", "25", "--deadline-ms", "20000", "--json", "--record", str(folder)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    said = subprocess.run([executable, "replay", str(folder), "--json"], check=True, capture_output=True, text=True).stdout
    figures = json.loads(said)
    recording = hyloc.read_recording(folder)
    fixes = hyloc.Locator(recording.site).locate(recording.blocks)
    score = hyloc.score(recording, fixes)
    assert score.fixes == figures["fixes"] == 25
    assert score.rms_error_m == pytest.approx(figures["rms_error_m"], rel=1e-12)
    assert score.gap_db == pytest.approx(figures["gap_db"], rel=1e-12)
    assert score.gap_db_interval == pytest.approx(figures["gap_db_interval"], rel=1e-12)
    assert score.nees == pytest.approx(figures["nees"], rel=1e-12)
    # The recorded fixes themselves, as they were published.
    published = hyloc.score(recording, recording.fixes)
    assert published.gap_db == pytest.approx(figures["gap_db"], rel=1e-9)


def test_positions_of_ones_own(run: hyloc.Simulation) -> None:
    own = run.positions_m[:, :2] + [0.3, 0.4]
    own[::4] = np.nan
    plain = hyloc.score(run, own)
    assert (plain.frames, plain.fixes, plain.availability) == (60, 45, 0.75)
    assert plain.rms_error_m == pytest.approx(0.5) and plain.nees is None
    covariances = np.broadcast_to(np.diag([0.09, 0.16]), (60, 2, 2))
    score = hyloc.score(run.positions_m, own, run.scenario, covariances_m2=covariances)
    assert score.nees == pytest.approx(2.0) and score.rms_error_m == plain.rms_error_m
    absent = run.positions_m.copy()
    absent[:30] = np.nan
    assert hyloc.score(absent, own, run.scenario).frames == 30
    averaged = hyloc.score(run.positions_m, own, run.scenario, frames_per_fix=4)
    assert averaged.bound_rms_m == pytest.approx((plain.bound_rms_m or 0) / 2)


def test_bad_scores_are_refused(run: hyloc.Simulation) -> None:
    fixes = hyloc.Locator(run.scenario).locate(run.echoes[:3])
    with pytest.raises(hyloc.ArgumentError, match="the site is needed"):
        hyloc.score(run.positions_m[:3], fixes)
    with pytest.raises(hyloc.ArgumentError, match="2 true positions for 3 fixes"):
        hyloc.score(run.positions_m[:2], fixes, run.scenario)
    with pytest.raises(hyloc.ArgumentError, match="one per frame"):
        hyloc.score(run, run.positions_m[:2])
    with pytest.raises(hyloc.ArgumentError, match="covariances"):
        hyloc.score(run, run.positions_m, covariances_m2=np.ones((60, 3, 3)))
    later = hyloc.Locator(run.scenario).locate(run.echoes[:3], start=1000)
    assert hyloc.score(run, later).unknown_frames == 3
    with pytest.raises(hyloc.ArgumentError, match="frames_per_fix = 0"):
        hyloc.score(run, fixes, frames_per_fix=0)
    with pytest.raises(hyloc.ArgumentError, match="rcs_m2 = -1"):
        hyloc.score(run.positions_m[:3], fixes, run.scenario, rcs_m2=-1.0)


def test_several_targets_are_scored(recording: Path) -> None:
    read = hyloc.read_recording(recording)
    score = hyloc.score(read, read.fixes)
    assert score.targets is not None and score.targets["frames"] >= 20
    scenario = hyloc.Scenario.read(Path(__file__).resolve().parents[2] / "deploy/scenarios/crossing.toml")
    run = hyloc.simulate(scenario, 10)
    found = hyloc.score(run, hyloc.Locator(scenario, max_targets=3).locate(run))
    assert found.targets is not None and found.targets["fixes"]["gospa_m"] < 1.0
