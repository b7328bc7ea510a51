"""Scenarios: changes, checks, bounds, signals, errors."""

from __future__ import annotations

import json
import pickle
import subprocess
from pathlib import Path

import numpy as np
import pytest

import hyloc

ROOT = Path(__file__).resolve().parents[2]


def test_table_one(scenario: hyloc.Scenario) -> None:
    assert (scenario.irs_count, scenario.sensors, scenario.elements, scenario.subcarriers) == (3, 10, 10, 100)
    assert scenario.seed == 1 and scenario.axes == 2 and scenario.target_count == 1
    assert scenario.noise_power_w == pytest.approx(1e-13)
    assert scenario.coverage_m.tolist() == [[0, 0, 0], [10, 10, 0]]
    assert scenario.irs_positions_m.tolist() == [[10, 50, 0], [10, -50, 0], [50, 0, 0]]
    assert scenario.frequencies_hz.shape == (100,)
    assert np.diff(scenario.frequencies_hz) == pytest.approx(5e5)
    owned = np.concatenate(scenario.owned_subcarriers)
    assert len(owned) == len(set(owned)) == 99 and owned.max() < 100, "no subcarrier has two owners"
    for signal, codes, subcarriers in zip(scenario.reflected_signals, scenario.codes, scenario.owned_subcarriers):
        assert signal.shape == (10, 10) and codes.shape == (10, len(subcarriers))


def test_a_change_is_a_copy(scenario: hyloc.Scenario) -> None:
    other = scenario.replace({"base_station.power_dbm": 40, "seed": 9, "target.motion": "circle"})
    assert (scenario.seed, other.seed) == (1, 9)
    assert "circle" in other.to_toml() and "circle" not in scenario.to_toml()
    again = other.set("signal.noise_dbm", -110.0).set("irs[1].position_m", np.array([12.0, -40.0]))
    assert again.irs_positions_m[1].tolist() == [12, -40, 0] and again.seed == 9
    assert again.noise_power_w == pytest.approx(1e-14)
    motion = {"line": {"from_m": [1, 1], "to_m": [9, 9], "frames": 100}}
    line = scenario.set("target.motion", motion)
    assert "line" in line.to_toml()
    assert hyloc.Scenario.from_toml(again.to_toml()) == again
    assert pickle.loads(pickle.dumps(again)) == again and again != scenario
    assert len({scenario, again, hyloc.Scenario()}) == 2


def test_a_file_is_read_as_the_command_line_reads_it(tmp_path: Path) -> None:
    hall = hyloc.Scenario.read(ROOT / "deploy/scenarios/hall.toml")
    assert hall.axes == 3 and hall.sensor_positions_m.shape == (hall.irs_count, hall.sensors, 3)
    with pytest.raises(FileNotFoundError, match="cannot read .*nowhere.toml"):
        hyloc.Scenario.read(tmp_path / "nowhere.toml")
    broken = tmp_path / "broken.toml"
    broken.write_text("seed = \n")
    with pytest.raises(hyloc.ScenarioError, match="broken.toml: no valid TOML"):
        hyloc.Scenario.read(broken)


def test_environment_variables_have_no_effect(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HYLOC__SEED", "99")
    file = tmp_path / "one.toml"
    file.write_text("seed = 5\n")
    assert hyloc.Scenario.read(file).seed == 5
    assert hyloc.Scenario().set("signal.subcarriers", 120).seed == 1


@pytest.mark.parametrize(
    "pair", ["signal.subcarriers=7", "base_station.power=3", "irs[7].position_m=[1, 2]", "seed=-1", "irs.x=1"]
)
def test_errors_are_those_of_the_command_line(executable: str, pair: str) -> None:
    said = subprocess.run([executable, "scenario", "check", "--set", pair], capture_output=True, text=True)
    key, value = pair.split("=")
    with pytest.raises(hyloc.ScenarioError) as error:
        hyloc.Scenario().set(key, value)
    assert said.returncode == 64 and str(error.value) in said.stderr
    assert isinstance(error.value, ValueError) and isinstance(error.value, hyloc.HylocError)


def test_bad_keys_and_values(scenario: hyloc.Scenario) -> None:
    with pytest.raises(hyloc.ScenarioError, match="is not of the form key=value"):
        scenario.set("no key", 1)
    with pytest.raises(hyloc.ArgumentError, match="cannot be of type object"):
        scenario.set("seed", object())
    with pytest.raises(hyloc.ArgumentError, match="frames_per_fix = 0"):
        scenario.check(0)
    with pytest.raises(hyloc.ScenarioError, match="unknown field"):
        hyloc.Scenario.from_toml("[nonsense]\na = 1")


def test_check_is_that_of_the_command_line(executable: str, scenario: hyloc.Scenario) -> None:
    command = [executable, "scenario", "check", "--json", "--set", "base_station.power_dbm=35"]
    said = subprocess.run(command, capture_output=True, check=True).stdout
    assert scenario.set("base_station.power_dbm", 35).check() == json.loads(said)


def test_bounds(scenario: hyloc.Scenario) -> None:
    # The example 01_bound of the estimators: 0.0724 m at 50 dBm for the target of the first frame.
    target = hyloc.simulate(scenario, 1).positions_m[0]
    one = scenario.bounds(target)
    assert float(one.exact_rms_m) == pytest.approx(0.0724, abs=5e-5)
    assert one.exact_m2.shape == (2, 2) and np.allclose(one.exact_m2, one.exact_m2.T)
    assert float(np.sqrt(np.trace(one.exact_m2))) == pytest.approx(float(one.exact_rms_m), rel=1e-12)
    angles = scenario.bounds(target, scheme="angle-only").exact_rms_m
    assert float(angles) == pytest.approx(0.0933, abs=5e-5)
    many = scenario.bounds([target[:2], [1.0, 2.0]])
    assert many.exact_m2.shape == (2, 2, 2) and many.exact_rms_m[0] == one.exact_rms_m
    assert (many.paper_rms_m < many.exact_rms_m).all()
    assert float(scenario.bounds(target, rcs_m2=4 * scenario.rcs_m2).exact_rms_m * 2) == pytest.approx(
        float(one.exact_rms_m)
    )
    with pytest.raises(hyloc.ArgumentError, match="scheme = 'magic': must be hybrid, angle-only"):
        scenario.bounds(scheme="magic")
    with pytest.raises(hyloc.ArgumentError, match=r"shape \(1, 4\)|shape \(4,\)"):
        scenario.bounds([1.0, 2.0, 3.0, 4.0])
    with pytest.raises(hyloc.ArgumentError, match="rcs_m2 = -1"):
        scenario.bounds(rcs_m2=-1.0)


def test_responses_and_signals_make_the_echoes(scenario: hyloc.Scenario) -> None:
    """Eq. (7) in numpy: what is left of a simulated frame is noise of the stated power."""
    strong = scenario.set("base_station.power_dbm", 90)
    run = hyloc.simulate(strong, 1)
    place = run.positions_m[0]
    distances = np.linalg.norm(strong.irs_positions_m - place, axis=1)
    for l in range(3):
        received = run.echoes[0, l]
        arrival = strong.sensor_responses(l, place)
        for k in range(3):
            owned = strong.owned_subcarriers[k]
            spectrum = strong.element_responses(k, place) @ strong.reflected_signals[k] @ strong.codes[k]
            delay = (distances[l] + distances[k]) / 299_792_458.0
            mean = np.outer(arrival, spectrum * np.exp(-2j * np.pi * strong.frequencies_hz[owned] * delay))
            gain = np.vdot(mean, received[:, owned]) / np.vdot(mean, mean)
            left = received[:, owned] - gain * mean
            power = float(np.mean(np.abs(left) ** 2))
            assert power == pytest.approx(strong.noise_power_w, rel=0.25), (l, k)
            assert np.linalg.norm(gain * mean) > 20 * np.linalg.norm(left), "the echo is strong"
    with pytest.raises(hyloc.ArgumentError, match="there is no IRS 3"):
        strong.sensor_responses(3, place)
