#!/usr/bin/env python3
"""GOSPA and tracks of hyloc beside Stone Soup, on the same sets and the same detections.

    pip install stonesoup==1.9.1
    python3 benchmarks/tracking.py [--sets 1000] [--runs 10] [--frames 200] [--detection 0.98,0.9,0.7,0.5] [--clutter 0.01]
    python3 benchmarks/tracking.py --signals [--runs 20] [--tune 3]

First, GOSPA of random sets (0 to 8 members, order 1 or 2, cut-off 0.3 to 5 m) by both; the script fails if any part differs by
more than 1e-9.

Then runs of three targets that walk at 1.5 m/s in a hall of 10 m by 10 m and turn at up to 1.5 rad/s near its walls
(the heading also walks at random, by 0.5 rad in a second), 20 frames a second, deviation 0.1 m, one false detection per
frame on average (--clutter). Both trackers get the same detections, motion model (nearly constant velocity, q = 0.3
m^2/s^3), P_D, clutter density and gate (0.9999); a new target has 1.5 m/s of deviation per axis. hyloc has the defaults
of `tracking::TrackerSettings`. Stone Soup is its JPDA in a MultiTargetMixtureTracker; MultiMeasurementInitiator (M of
N: `points` updates, nearest neighbour, given up after `hold` frames without one) starts tracks, UpdateTimeStepsDeleter
ends them after `steps` frames without update. These three are chosen for every P_D by the least GOSPA over tuning runs
of their own (--tune of them), so that Stone Soup has its best settings of the list; the density of births of hyloc is
chosen in the same way, and its default is scored beside it. Prints GOSPA (p = 2, c = 2 m, alpha = 2) per run with its
parts, means over the frames, and how many false tracks each confirms in frames of false detections alone (--empty of
them).

With --signals: the runs of the figure `tracking-power`, in which hyloc follows its tracks in the echoes themselves, see
`hyloc/src/sweep/measure/tracking.rs`. Stone Soup, as above, gets the detections that hyloc makes in single frames, each with its
own covariance. Its P_D and density of clutter are those measured on these runs, its settings are chosen on tuning runs of another
seed. Writes the rows of Stone Soup to `hyloc/src/figures/stone-soup.csv`, from which the figure takes them.
"""

import argparse
import datetime
import itertools
import json
import subprocess
import sys
from multiprocessing import Pool
from pathlib import Path

import numpy as np
from scipy.optimize import linear_sum_assignment

try:
    from stonesoup.dataassociator.neighbour import GNNWith2DAssignment
    from stonesoup.dataassociator.probability import JPDA
    from stonesoup.deleter.time import UpdateTimeStepsDeleter
    from stonesoup.hypothesiser.distance import DistanceHypothesiser
    from stonesoup.hypothesiser.probability import PDAHypothesiser
    from stonesoup.initiator.simple import MultiMeasurementInitiator
    from stonesoup.measures import Mahalanobis
    from stonesoup.metricgenerator.ospametric import GOSPAMetric
    from stonesoup.models.measurement.linear import LinearGaussian
    from stonesoup.models.transition.linear import CombinedLinearGaussianTransitionModel, ConstantVelocity
    from stonesoup.predictor.kalman import KalmanPredictor
    from stonesoup.tracker.simple import MultiTargetMixtureTracker
    from stonesoup.types.detection import Detection
    from stonesoup.types.state import GaussianState, State
    from stonesoup.updater.kalman import KalmanUpdater
except ImportError as error:
    sys.exit(f"{error}; pip install stonesoup==1.9.1")

ROOT = Path(__file__).resolve().parent.parent
START = datetime.datetime(2026, 1, 1)
STEP_S, HALF_M, DEVIATION_M = 0.05, 5.0, 0.1
ACCELERATION, SPEED, TURN, GATE = 0.3, 1.5, 1.5, 0.9999
ORDER, CUTOFF_M = 2, 2.0
# Updates that confirm a track, frames without update that end a tentative and a confirmed one.
CHOICES = list(itertools.product([2, 3, 4], [2, 4], [3, 6, 12]))
# The same for the detections of signals, of which there are fewer at low power; there is a false one in 2000 frames by design.
SIGNAL_CHOICES = list(itertools.product([2, 3, 4], [2, 4, 8], [3, 6, 12, 24]))
LEAST_CLUTTER = 5e-4 / (2 * HALF_M) ** 2
# Targets that no track follows per square metre; the first is the default of hyloc.
BIRTHS = [1e-6, 1e-5, 1e-4]


def hyloc(requests):
    """The answers of the example `score` to these requests."""
    command = ["cargo", "run", "--quiet", "-p", "hyloc-tracking", "--example", "score"]
    lines = "".join(json.dumps(request) + "\n" for request in requests)
    answer = subprocess.run(command, cwd=ROOT, input=lines, check=True, capture_output=True, text=True)
    return [json.loads(line) for line in answer.stdout.splitlines()]


def stonesoup_gospa(truth, estimates, order=ORDER, cutoff_m=CUTOFF_M):
    if len(truth) == 0 and len(estimates) == 0:
        return {"distance": 0.0, "localisation": 0.0, "missed": 0.0, "false": 0.0}
    states = lambda points: np.array([State(point, timestamp=START) for point in points] or [], dtype=object)
    return GOSPAMetric(p=order, c=cutoff_m).compute_gospa_metric(states(estimates), states(truth))[0].value


def compare_metric(rng, count):
    requests = []
    for _ in range(count):
        dimension, spread_m = rng.integers(2, 4), rng.choice([0.5, 2.0, 10.0])
        truth, estimates = (rng.normal(0, spread_m, (rng.integers(0, 9), dimension)).tolist() for _ in range(2))
        requests.append({"truth": truth, "estimates": estimates, "order": int(rng.integers(1, 3)),
                         "cutoff_m": float(rng.uniform(0.3, 5))})
    worst = 0.0
    for request, ours in zip(requests, hyloc(requests), strict=True):
        theirs = stonesoup_gospa(**request)
        for own, other in [("total", "distance"), *((part, part) for part in ("localisation", "missed", "false"))]:
            worst = max(worst, abs(ours[own] - float(theirs[other])))
    print(f"GOSPA of {count} pairs of sets: largest difference of distance and parts {worst:.1e}")
    if worst > 1e-9:
        sys.exit("GOSPA differs")


def scene(key, frames, detection, clutter, targets=3):
    """Places of the targets and detections, frame by frame."""
    rng = np.random.default_rng(key)
    place, heading = rng.uniform(-HALF_M, HALF_M, (targets, 2)), rng.uniform(0, 2 * np.pi, targets)
    truth, detections = [], []
    for _ in range(frames):
        heading += rng.normal(0, 0.5 * np.sqrt(STEP_S), targets)
        # Within 1.5 m of a wall a target turns towards the middle.
        inwards = (np.arctan2(-place[:, 1], -place[:, 0]) - heading + np.pi) % (2 * np.pi) - np.pi
        near = np.abs(place).max(1) > HALF_M - 1.5
        heading += np.where(near, np.clip(inwards, -TURN * STEP_S, TURN * STEP_S), 0)
        place = place + SPEED * STEP_S * np.column_stack([np.cos(heading), np.sin(heading)])
        seen = place[rng.random(targets) < detection]
        noisy = seen + rng.normal(0, DEVIATION_M, seen.shape)
        false = rng.uniform(-HALF_M, HALF_M, (rng.poisson(clutter * 4 * HALF_M**2), 2))
        truth.append(place)
        detections.append(rng.permutation(np.vstack([noisy, false])))
    return truth, detections


def measured(covariance_m2=np.eye(2) * DEVIATION_M**2):
    """The measurement of a position with this covariance."""
    return LinearGaussian(4, (0, 2), covariance_m2)


def stonesoup_tracks(detections, detection, clutter, points, hold, steps):
    """Identities and positions of all tracks, frame by frame; a detection is a place, or a place and its covariance."""
    motion = CombinedLinearGaussianTransitionModel([ConstantVelocity(ACCELERATION)] * 2)
    measurement = measured()
    predictor, updater = KalmanPredictor(motion), KalmanUpdater(measurement)
    gate = np.sqrt(-2 * np.log(1 - GATE))
    nearest = GNNWith2DAssignment(DistanceHypothesiser(predictor, updater, Mahalanobis(), missed_distance=gate))
    initiator = MultiMeasurementInitiator(
        GaussianState(np.zeros(4), np.diag([0, 1.5**2, 0, 1.5**2])), UpdateTimeStepsDeleter(hold), nearest, updater,
        measurement, min_points=points)
    joint = JPDA(PDAHypothesiser(predictor, updater, clutter, prob_detect=min(detection, 0.999), prob_gate=GATE))
    frames = []
    for index, places in enumerate(detections):
        time = START + datetime.timedelta(seconds=STEP_S * index)
        with_models = [place if isinstance(place, tuple) else (place, measurement) for place in places]
        frames.append((time, {Detection(place, timestamp=time, measurement_model=model) for place, model in with_models}))
    tracker = MultiTargetMixtureTracker(initiator, UpdateTimeStepsDeleter(steps), frames, joint, updater)
    position = lambda track: np.array(track.state.state_vector[[0, 2]], float).ravel()
    return [[(track.id, position(track)) for track in tracks] for _, tracks in tracker]


def hyloc_tracks(runs, detection, clutter, birth):
    """Identities and positions of all confirmed tracks of every run, frame by frame."""
    requests = []
    for detections in runs:
        model = {"detection_probability": detection, "clutter_density": clutter, "birth_density": birth}
        requests.append({"start": model})
        for index, places in enumerate(detections):
            requests.append({"time_s": STEP_S * index, "detections": places.tolist(), "deviation_m": DEVIATION_M})
    answers = iter(hyloc(requests))
    position = lambda track: (track["id"], np.array(track["state"][:2]))
    return [[[position(track) for track in next(answers)["tracks"]] for _ in detections] for detections in runs]


def score(truth, tracks):
    """Means over the frames: distance, localisation, missed, false."""
    places = [[position for _, position in frame] for frame in tracks]
    values = [stonesoup_gospa(list(targets), found) for targets, found in zip(truth, places, strict=True)]
    return [float(np.mean([value[part] for value in values])) for part in ("distance", "localisation", "missed", "false")]


def scores(scenes, tracks):
    return np.array([score(truth, found) for (truth, _), found in zip(scenes, tracks, strict=True)])


def compare_tracks(detection, arguments):
    clutter, frames = arguments.clutter, arguments.frames
    make = lambda kind, count: [scene([arguments.seed, kind, run], frames, detection, clutter) for run in range(count)]
    tuning, scenes = make(1, arguments.tune), make(0, arguments.runs)
    theirs = lambda runs, choice: [stonesoup_tracks(found, detection, clutter, *choice) for _, found in runs]
    ours = lambda runs, birth: hyloc_tracks([found for _, found in runs], detection, clutter, birth)
    choice = min(CHOICES, key=lambda choice: scores(tuning, theirs(tuning, choice))[:, 0].mean())
    birth = min(BIRTHS, key=lambda birth: scores(tuning, ours(tuning, birth))[:, 0].mean())
    empty = [scene([arguments.seed, 2], arguments.empty, detection, clutter, targets=0)]
    results = {}
    for name, follow in [("hyloc, default", lambda runs: ours(runs, BIRTHS[0])),
                         (f"hyloc, births {birth:g}", lambda runs: ours(runs, birth)),
                         ("Stone Soup", lambda runs: theirs(runs, choice))]:
        false = {track for frame in follow(empty)[0] for track, _ in frame}
        results[name] = (scores(scenes, follow(scenes)), len(false))
    print(f"\nP_D = {detection}; Stone Soup: points {choice[0]}, hold {choice[1]}, steps {choice[2]}; GOSPA per run in metres\n")
    print("| tracker | " + " | ".join(map(str, range(len(scenes)))) + " | mean | localisation, missed, false (m^2) | false tracks |")
    print("| --- |" + " --- |" * (len(scenes) + 3))
    for name, (values, false) in results.items():
        runs, mean = " | ".join(f"{value:.3f}" for value in values[:, 0]), values.mean(0)
        parts = f"{mean[1]:.3f}, {mean[2]:.3f}, {mean[3]:.3f}"
        print(f"| {name} | {runs} | {mean[0]:.3f} | {parts} | {false} |")
    default, tuned, stonesoup = (values[:, 0] for values, _ in results.values())
    print(f"\nRuns in which hyloc is not above Stone Soup: {(default <= stonesoup).sum()} with its default, "
          f"{(tuned <= stonesoup).sum()} tuned, of {len(scenes)}; ratio of the means {default.mean() / stonesoup.mean():.2f} and "
          f"{tuned.mean() / stonesoup.mean():.2f}", flush=True)


def signals(seed, runs, profile):
    """The runs of the figure `tracking-power` by power: per run its frames as the example prints them."""
    command = ["cargo", "run", "--quiet", "--profile", profile, "-p", "hyloc", "--example", "tracked_signals", "--",
               str(seed), str(runs)]
    answer = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    powers = {}
    for line in map(json.loads, answer.stdout.splitlines()):
        powers.setdefault(line["power_dbm"], [[] for _ in range(runs)])[line["run"]].append(line)
    return powers


def places(run, kind):
    """Identities and positions of a kind in the frames of a run."""
    return [[(member["id"], np.array(member["place_m"])) for member in frame[kind]] for frame in run]


def detected(run):
    """Detections of a run with their own covariances."""
    frames = []
    for frame, found in zip(run, places(run, "detections"), strict=True):
        joint = np.array(frame["covariance_m2"])
        frames.append([(place, measured(joint[2 * i:2 * i + 2, 2 * i:2 * i + 2])) for i, (_, place) in enumerate(found)])
    return frames


def signal_score(run, estimates):
    """Means over the scored frames: GOSPA, localisation, missed, false; share of the targets shown; identity switches."""
    values, last, switches = [], {}, 0
    for frame, truth, found in zip(run, places(run, "truth"), estimates, strict=True):
        if not frame["scored"]:
            continue
        truth_m, found_m = ([place for _, place in members] for members in (truth, found))
        value = stonesoup_gospa(truth_m, found_m)
        values.append([float(value[part]) for part in ("distance", "localisation", "missed", "false")])
        if not found:
            continue
        distances = np.linalg.norm(np.array(truth_m)[:, None] - np.array(found_m)[None], axis=2)
        for target, track in zip(*linear_sum_assignment(np.minimum(distances, CUTOFF_M) ** ORDER), strict=True):
            if distances[target, track] < CUTOFF_M:
                switches += last.get(target, found[track][0]) != found[track][0]
                last[target] = found[track][0]
    mean = np.mean(values, 0)
    return [*mean, 1 - mean[2] / (CUTOFF_M**ORDER / 2 * len(run[0]["truth"])), switches]


METRICS = ["gospa_m", "localisation_m2", "missed_m2", "false_m2", "target_share", "switches"]


def signal_scores(runs, estimates):
    return np.array([signal_score(run, found) for run, found in zip(runs, estimates, strict=True)])


def compare_signals(arguments):
    tuning, scored = (signals(seed, runs, arguments.profile) for seed, runs in [(2, arguments.tune), (1, arguments.runs)])
    print("\n| power | P_D | Stone Soup's settings | tracker | GOSPA (m) | localisation, missed, false (m^2) | targets shown | "
          "identity switches per run | GOSPA of the tracks to Stone Soup's |\n|" + " --- |" * 9)
    rng, rows = np.random.default_rng(arguments.seed), ["figure,x,scheme,metric,value,low,high,trials"]
    with Pool(arguments.processes) as pool:
        for power, runs in scored.items():
            own = tuning[power]
            values = {name: signal_scores(runs, [places(run, kind) for run in runs])
                      for name, kind in [("single frames", "detections"), ("hyloc", "tracks")]}
            single = values["single frames"].mean(0)
            detection, clutter = single[4], max(single[3] / (CUTOFF_M**ORDER / 2) / (2 * HALF_M) ** 2, LEAST_CLUTTER)
            theirs = lambda runs, choices: [(detected(run), detection, clutter, *choice) for choice in choices for run in runs]
            tuned = pool.starmap(stonesoup_tracks, theirs(own, SIGNAL_CHOICES), chunksize=1)
            tuned = [tuned[i:i + len(own)] for i in range(0, len(tuned), len(own))]
            least = np.argmin([signal_scores(own, tracks)[:, 0].mean() for tracks in tuned])
            choice = SIGNAL_CHOICES[least]
            values["Stone Soup"] = signal_scores(runs, pool.starmap(stonesoup_tracks, theirs(runs, [choice]), chunksize=1))
            ratio = values["hyloc"][:, 0].mean() / values["Stone Soup"][:, 0].mean()
            for name, value in values.items():
                mean = value.mean(0)
                switches = "" if name == "single frames" else f"{mean[5]:.2f}"
                print(f"| {power:g} dBm | {detection:.3f} | {choice[0]}, {choice[1]}, {choice[2]} | {name} | {mean[0]:.3f} | "
                      f"{mean[1]:.3f}, {mean[2]:.3f}, {mean[3]:.3f} | {mean[4]:.3f} | {switches} | "
                      f"{f'{ratio:.2f}' if name == 'hyloc' else ''} |", flush=True)
            for metric, value in zip(METRICS, values["Stone Soup"].T, strict=True):
                means = value[rng.integers(0, len(value), (1000, len(value)))].mean(1)
                low, high = min(np.quantile(means, 0.025), value.mean()), max(np.quantile(means, 0.975), value.mean())
                # The nearest numbers with five significant digits, as in the other rows.
                numbers = ",".join(f"{float(f'{number:.4e}'):g}" for number in (value.mean(), low, high))
                rows.append(f"tracking-power,{power:g},stone-soup,{metric},{numbers},{len(value)}")
    (ROOT / "hyloc/src/figures/stone-soup.csv").write_text("\n".join(rows) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--signals", action="store_true", help="tracks in the signals; 20 runs and 3 to tune unless set")
    parser.add_argument("--profile", default="release", help="build of hyloc for --signals")
    parser.add_argument("--processes", type=int, help="processes of Stone Soup with --signals; all cores by default")
    parser.add_argument("--sets", type=int, default=1000)
    parser.add_argument("--runs", type=int)
    parser.add_argument("--tune", type=int)
    parser.add_argument("--empty", type=int, default=6000)
    parser.add_argument("--clutter", type=float, default=0.01)
    parser.add_argument("--frames", type=int, default=200)
    parser.add_argument("--detection", default="0.98,0.9,0.7,0.5")
    parser.add_argument("--seed", type=int, default=20)
    arguments = parser.parse_args()
    runs, tune = (20, 3) if arguments.signals else (10, 2)
    arguments.runs, arguments.tune = arguments.runs or runs, arguments.tune or tune
    if arguments.signals:
        return compare_signals(arguments)
    compare_metric(np.random.default_rng(arguments.seed), arguments.sets)
    for detection in map(float, arguments.detection.split(",")):
        compare_tracks(detection, arguments)


if __name__ == "__main__":
    main()
