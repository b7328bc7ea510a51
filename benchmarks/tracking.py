#!/usr/bin/env python3
"""GOSPA and tracks of hyloc beside Stone Soup, on the same sets and the same detections.

    pip install stonesoup==1.9.1
    python3 benchmarks/tracking.py [--sets 1000] [--runs 10] [--frames 200] [--detection 0.98,0.9,0.7,0.5] [--clutter 0.01]

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
"""

import argparse
import datetime
import itertools
import json
import subprocess
import sys
from pathlib import Path

import numpy as np

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


def stonesoup_tracks(detections, detection, clutter, points, hold, steps):
    """Identities and positions of all tracks, frame by frame."""
    motion = CombinedLinearGaussianTransitionModel([ConstantVelocity(ACCELERATION)] * 2)
    measurement = LinearGaussian(4, (0, 2), np.eye(2) * DEVIATION_M**2)
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
        frames.append((time, {Detection(place, timestamp=time, measurement_model=measurement) for place in places}))
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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--tune", type=int, default=2)
    parser.add_argument("--empty", type=int, default=6000)
    parser.add_argument("--clutter", type=float, default=0.01)
    parser.add_argument("--frames", type=int, default=200)
    parser.add_argument("--detection", default="0.98,0.9,0.7,0.5")
    parser.add_argument("--seed", type=int, default=20)
    arguments = parser.parse_args()
    compare_metric(np.random.default_rng(arguments.seed), arguments.sets)
    for detection in map(float, arguments.detection.split(",")):
        compare_tracks(detection, arguments)


if __name__ == "__main__":
    main()
