"""From echoes to fixes."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import hyloc


def test_the_example_of_the_estimators(scenario: hyloc.Scenario) -> None:
    """estimation/examples/02_echoes_to_fix.rs: target (7.12, 3.78), expected 0.07 m rms, nominal, three-stage."""
    run = hyloc.simulate(scenario, 1)
    fixes = hyloc.Locator(scenario, payload="spectrum").locate(run)
    fix = fixes.array[0]
    assert run.positions_m[0, :2] == pytest.approx([7.12, 3.78], abs=5e-3)
    assert (fix["status"], fix["method"], fix["cautions"], fix["paths"]) == ("nominal", "three-stage", "", 9)
    assert np.linalg.norm(fix["position_m"] - run.positions_m[0]) < 0.2
    assert np.sqrt(np.trace(fix["covariance_m2"])) == pytest.approx(0.07, abs=0.01)
    assert fix["protection_level_m"] > 0.1


@pytest.mark.parametrize("method", ["auto", "direct", "three-stage"])
def test_fixes_reach_the_bound(run: hyloc.Simulation, method: str) -> None:
    """Sixty frames at 50 dBm: rms error 0.9 to 1.3 times the bound, mean NEES near 2 (chi-square of 120 degrees of freedom)."""
    fixes = hyloc.Locator(run.scenario, method).locate(run)
    errors = (fixes.positions_m - run.positions_m)[:, :2]
    bound = run.scenario.bounds(run.positions_m).exact_rms_m
    ratio = np.sqrt(np.mean(np.sum(errors**2, axis=1)) / np.mean(bound**2))
    assert 0.85 < ratio < 1.3
    nees = np.einsum("ni,nij,nj->n", errors, np.linalg.inv(fixes.covariances_m2), errors)
    assert 1.3 < nees.mean() < 2.8
    assert (fixes.frames == run.frames).all() and len(fixes) == 60


def test_complex64_and_strides_are_taken(run: hyloc.Simulation) -> None:
    locator = hyloc.Locator(run.scenario)
    expected = locator.locate(run.echoes[:6])
    single = locator.locate(run.echoes[:6].astype(np.complex64))
    assert np.abs(single.positions_m - expected.positions_m).max() < 1e-5
    backwards = locator.locate(run.echoes[5::-1])
    assert (backwards.positions_m[::-1] == expected.positions_m).all()
    fortran = locator.locate(np.asfortranarray(run.echoes[:6]))
    assert (fortran.positions_m == expected.positions_m).all()
    one = locator.locate(run.echoes[2], start=2)
    assert one.frames.tolist() == [2] and (one.positions_m[0] == expected.positions_m[2]).all()
    assert len(locator.locate(run.echoes[:0])) == 0


def test_bad_echoes_are_refused(run: hyloc.Simulation) -> None:
    locator = hyloc.Locator(run.scenario)
    with pytest.raises(hyloc.ArgumentError, match="array of float64 with the shape"):
        locator.locate(run.echoes.real)  # type: ignore[arg-type]
    with pytest.raises(hyloc.ArgumentError, match="expected frames x 3 nodes x 10 sensors x 100 subcarriers"):
        locator.locate(run.echoes[:, :, :9])
    with pytest.raises(hyloc.ArgumentError, match=r"shape \(10, 100\)"):
        locator.locate(run.echoes[0, 0])
    with pytest.raises(hyloc.ArgumentError, match="start = -1"):
        locator.locate(run.echoes, start=-1)
    echoes = run.echoes[:4].copy()
    echoes[2, 1, 3, 4] = np.nan
    with pytest.raises(hyloc.ArgumentError, match="frame 2, node 1: the .* not finite"):
        locator.locate(echoes)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"method": "magic"}, "method = magic: must be auto, three-stage or direct"),
        ({"payload": "raw"}, "payload = raw: must be parameters, block or spectrum"),
        ({"precision": "q3"}, "precision = q3: must be f64, f32, q16, q8, q4 or q2"),
        ({"max_targets": 0}, "max_targets = 0: must be between 1 and"),
        ({"batch_frames": 65}, "batch_frames = 65: must be between 1 and 64"),
        ({"frames_per_fix": 0}, "frames_per_fix = 0: must be between 1 and 1000"),
        ({"false_alarm_probability": 0.0}, "false_alarm_probability = 0: must be between"),
        ({"method": "three-stage", "max_targets": 2}, "locates one target: use the direct method"),
    ],
)
def test_bad_settings_are_refused(scenario: hyloc.Scenario, settings: "dict[str, object]", sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        hyloc.Locator(scenario, **settings)  # type: ignore[arg-type]


def test_a_missing_node_degrades(run: hyloc.Simulation) -> None:
    echoes = run.echoes[:5].copy()
    echoes[1:, 0] = np.nan
    fixes = hyloc.Locator(run.scenario).locate(echoes)
    assert fixes.statuses[0] == "nominal" and fixes.array["paths"].tolist() == [9, 6, 6, 6, 6]
    assert all("node 0 did not report" in text for text in fixes.array["cautions"][1:])
    assert (fixes.statuses[1:] != "nominal").all()
    echoes[0] = np.nan
    nothing = hyloc.Locator(run.scenario).locate(echoes[:1])
    assert nothing.statuses[0] == "unobservable" and np.isnan(nothing.positions_m).all()
    assert np.isnan(nothing.covariances_m2).all() and repr(nothing) == "Fixes(0 of 1 frames)"


def test_blocks_are_the_first_half(run: hyloc.Simulation) -> None:
    for payload, shapes in (("block", (10, 10, 10)), ("spectrum", (33, 33, 33)), ("parameters", None)):
        locator = hyloc.Locator(run.scenario, payload=payload)
        assert locator.payload == payload
        blocks = locator.report(run)
        assert len(blocks) == 60 and blocks.frames.tolist() == list(range(60))
        both = locator.locate(blocks), locator.locate(run)
        assert both[0].array.tobytes() == both[1].array.tobytes(), payload
        arrays = blocks.spectra if payload == "spectrum" else blocks.blocks
        if shapes:
            assert [array.shape for array in arrays] == [(60, 3, 10, columns) for columns in shapes]
            assert all(np.isfinite(array).all() for array in arrays)
        else:
            assert all(np.isnan(array).all() for array in arrays)
    spectra = hyloc.Locator(run.scenario, payload="spectrum").report(run)
    for k, owned in enumerate(run.scenario.owned_subcarriers):
        assert (spectra.spectra[k] == run.echoes[:, :, :, owned]).all(), "a spectrum is the echo on the subcarriers of k"
    part = spectra[10:12]
    assert part.frames.tolist() == [10, 11] and (part.delays_s == spectra.delays_s[10:12]).all()
    assert np.isfinite(spectra.noise_powers_w).all() and spectra.arrivals_rad.shape == (60, 3)
    true_delays = np.linalg.norm(run.positions_m[:, None] - run.scenario.irs_positions_m, axis=2) / 299_792_458.0
    cascade = true_delays[:, :, None] + true_delays[:, None, :]
    assert np.median(np.abs(spectra.delays_s - cascade) / np.sqrt(spectra.delay_variances_s2)) < 1.0


def test_quantised_reports(run: hyloc.Simulation) -> None:
    exact = hyloc.Locator(run.scenario).locate(run).positions_m
    eight = hyloc.Locator(run.scenario, precision="q8").locate(run).positions_m
    two = hyloc.Locator(run.scenario, precision="q2").locate(run).positions_m
    assert 0 < np.abs(eight - exact).max() < 0.05 < np.abs(two - exact).max()


def test_the_pipeline_gives_the_same_fixes(executable: str, tmp_path: Path) -> None:
    """The demo sends blocks of 8 bits; the same in one process gives its fixes."""
    log = tmp_path / "fixes.jsonl"
    command = [executable, "demo", "--frames", "12", "--rate", "10", "--json", "--fixes", str(log)]
    command += ["--set", "seed=5", "--deadline-ms", "20000"]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert len(lines) == 12 and all(line["paths"] == 9 for line in lines)
    scenario = hyloc.Scenario().set("seed", 5)
    fixes = hyloc.Locator(scenario, precision="q8").locate(hyloc.simulate(scenario, 12))
    for line in lines:
        fix = fixes.array[line["frame"]]
        assert fix["status"] == line["status"] and fix["method"] == line["method"]
        assert np.abs(fix["position_m"][:2] - line["position_m"]).max() < 1e-9


def test_several_targets() -> None:
    scenario = hyloc.Scenario.from_toml(
        "[[target]]\nmotion = {fixed = {position_m = [3.0, 3.0]}}\n[[target]]\nmotion = {fixed = {position_m = [7.0, 7.0]}}\n"
    ).set("base_station.power_dbm", 55)
    run = hyloc.simulate(scenario, 5)
    assert len(run.targets) == 10 and run.targets["identity"].tolist() == [0, 1] * 5
    fixes = hyloc.Locator(scenario, max_targets=3).locate(run)
    targets = fixes.targets
    for frame in range(5):
        found = targets[targets["frame"] == frame]
        assert len(found) == 2
        order = found[np.argsort(found["position_m"][:, 0])]
        assert np.abs(order["position_m"][:, :2] - [[3, 3], [7, 7]]).max() < 0.3
    assert len(fixes.tracks) == 0
    assert (fixes.array["method"] == "direct-targets").all()


def test_averages_and_batches(scenario: hyloc.Scenario) -> None:
    weak = scenario.replace({"base_station.power_dbm": 42, "signal.coherent_frames": 4, "target.motion": {"fixed": {"position_m": [4, 6]}}})
    run = hyloc.simulate(weak, 16)
    averaged = hyloc.Locator(weak, "direct", frames_per_fix=4).locate(run)
    assert averaged.frames.tolist() == [0, 4, 8, 12]
    single = hyloc.Locator(weak, "direct").locate(run)
    averaged_m2, single_m2 = (np.trace(fixes.covariances_m2, axis1=1, axis2=2) for fixes in (averaged, single))
    assert np.nanmedian(averaged_m2) < 0.5 * np.nanmedian(single_m2)
    batch = hyloc.Locator(weak, "direct", batch_frames=4).locate(run)
    assert batch.array["method"][0] == "direct" and (batch.array["method"][4:] == "direct-frames").sum() >= 8
    blocks = hyloc.Locator(weak, "direct", batch_frames=4).report(run)
    assert hyloc.Locator(weak, "direct", batch_frames=4).locate(blocks).array.tobytes() == batch.array.tobytes()


def test_a_fix_log_is_written(run: hyloc.Simulation, tmp_path: Path) -> None:
    fixes = hyloc.Locator(run.scenario).locate(run.echoes[:3])
    fixes.write(tmp_path / "fixes.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "fixes.jsonl").read_text().splitlines()]
    assert [line["frame"] for line in lines] == [0, 1, 2]
    assert lines[1]["position_m"] == fixes.positions_m[1, :2].tolist()


PROGRAM = """
import hashlib, hyloc
run = hyloc.simulate(hyloc.Scenario().set("base_station.power_dbm", 44), 24)
fixes = hyloc.Locator(run.scenario).locate(run)
print(hashlib.sha256(run.echoes.tobytes() + fixes.positions_m.tobytes() + fixes.covariances_m2.tobytes()).hexdigest())
"""


def test_results_do_not_depend_on_threads() -> None:
    hashes = set()
    for threads in ("1", "2", "5"):
        environment = {**os.environ, "RAYON_NUM_THREADS": threads}
        said = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True)
        hashes.add(said.stdout)
    assert len(hashes) == 1


def _positions(frames: int) -> "list[list[float]]":
    run = hyloc.simulate(hyloc.Scenario(), frames)
    positions: "list[list[float]]" = hyloc.Locator(run.scenario).locate(run).positions_m.tolist()
    return positions


def test_a_forked_process_works() -> None:
    expected = _positions(4)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map_async(_positions, [4, 4]).get(timeout=60) == [expected, expected]


def test_the_interpreter_runs_meanwhile(run: hyloc.Simulation) -> None:
    """Another thread counts while frames are located: the lock is released."""
    locator, counted, stop = hyloc.Locator(run.scenario), [0], threading.Event()

    def count() -> None:
        while not stop.is_set():
            counted[0] += 1
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    before = counted[0]
    locator.locate(np.concatenate([run.echoes] * 5))
    during = counted[0] - before
    stop.set()
    thread.join()
    assert during > 5


# A process that was started in the background of a shell ignores interrupts unless told otherwise.
INTERRUPTED = """
import os, signal, threading, hyloc
signal.signal(signal.SIGINT, signal.default_int_handler)
run = hyloc.simulate(hyloc.Scenario(), 50)
import numpy as np
echoes = np.concatenate([run.echoes] * 400)
locator = hyloc.Locator(run.scenario)
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    locator.locate(echoes)
except KeyboardInterrupt:
    print("interrupted")
"""


def test_an_interrupt_ends_the_work() -> None:
    said = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=60)
    assert said.stdout == "interrupted\n", said.stderr


def test_a_panic_is_an_exception() -> None:
    from hyloc import _hyloc

    with pytest.raises(hyloc.InternalError, match="as asked for"):
        _hyloc.panic_for_test()
    assert issubclass(hyloc.InternalError, RuntimeError)
