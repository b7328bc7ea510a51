#!/usr/bin/env python3
"""The joint angle problem through general convex solvers, beside `hyloc solve angles`.

    pip install -r benchmarks/requirements.txt
    cargo build --release
    python3 benchmarks/solvers.py [--nodes 2,3,4] [--problems 3] [--skip-clarabel]

The problems are those of simulated scenes, with their own S_k (`hyloc scenario blocks`): Table I for K = 3, for other K
its sizes with the IRSs on a ring (`hyloc scenario generate`). Each is solved with SCS and Clarabel through CVXPY and with
hyloc, all to a relative objective of 1e-4. Prints median times and ratios. Times are the solvers' own (CVXPY's compilation
is left out), one run, one machine.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import cvxpy as cp
import numpy as np

TOLERANCE = 1e-4


def run(executable, *arguments):
    return subprocess.run([executable, *arguments], check=True, capture_output=True, text=True).stdout


def scenes(executable, count, problems):
    """The cases of `count` IRSs, as hyloc writes and reads them."""
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as scenario:
        if count != 3:
            scenario.write(run(executable, "scenario", "generate", "--nodes", str(count)))
            scenario.flush()
        return json.loads(run(executable, "scenario", "blocks", scenario.name, "--scenes", str(problems)))["cases"]


def hyloc(executable, cases, repeat):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump({"cases": cases}, file)
        file.flush()
        arguments = ["--input", file.name, "--tolerance", str(TOLERANCE), "--repeat", str(repeat)]
        answers = json.loads(run(executable, "solve", "angles", *arguments))["cases"]
    return [(answer["objective"], answer["solve_time_s"]) for answer in answers]


def matrix(parts):
    return np.array(parts["re"]) + 1j * np.array(parts["im"])


def toeplitz(row):
    """Hermitian Toeplitz matrix of a complex variable; its first entry is taken as real."""
    size = row.shape[0]
    terms = [cp.real(row[0]) * np.eye(size)]
    for lag in range(1, size):
        shift = np.eye(size, k=lag)
        terms.append(row[lag] * shift + cp.conj(row[lag]) * shift.T)
    return sum(terms)


def general(case):
    signals = [matrix(signal) for signal in case["reflected_signal"]]
    count, elements = len(signals), signals[0].shape[0]
    sensors = len(case["blocks"][0][0]["re"])
    arrivals = [cp.Variable(sensors, complex=True) for _ in range(count)]
    departures = [cp.Variable(elements, complex=True) for _ in range(count)]
    objective, constraints = 0, []
    for l in range(count):
        for k in range(count):
            corner = cp.Variable((sensors + elements, sensors + elements), hermitian=True)
            denoised = corner[:sensors, sensors:]
            constraints += [
                corner >> 0,
                corner[:sensors, :sensors] == toeplitz(arrivals[l]),
                corner[sensors:, sensors:] == toeplitz(departures[k]),
            ]
            fit = cp.sum_squares(denoised @ signals[k] - matrix(case["blocks"][l][k]))
            traces = sensors * cp.real(arrivals[l][0]) + elements * cp.real(departures[k][0])
            objective += case["weights"][l][k] * (traces + case["lambda"] * fit)
    return cp.Problem(cp.Minimize(objective), constraints)


def solve(case, solver, options):
    formulated = general(case)
    formulated.solve(solver=solver, **options)
    return formulated.value, formulated.solver_stats.solve_time


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", default="2,3,4", help="IRS counts (default: %(default)s)")
    parser.add_argument("--problems", type=int, default=3, help="problems per count (default: %(default)s)")
    parser.add_argument("--repeat", type=int, default=51, help="hyloc solves per problem (default: %(default)s)")
    parser.add_argument("--skip-clarabel", action="store_true", help="leave the slowest out")
    default = Path(__file__).resolve().parent.parent / "target" / "release" / "hyloc"
    parser.add_argument("--hyloc", default=str(default), help="executable (default: %(default)s)")
    arguments = parser.parse_args()
    if not Path(arguments.hyloc).exists():
        sys.exit(f"{arguments.hyloc} does not exist: run `cargo build --release` first")
    solvers = {"SCS": (cp.SCS, {"eps_abs": TOLERANCE, "eps_rel": TOLERANCE, "max_iters": 100_000})}
    if not arguments.skip_clarabel:
        gaps = {"tol_gap_abs": TOLERANCE, "tol_gap_rel": TOLERANCE, "tol_feas": TOLERANCE}
        solvers["Clarabel"] = (cp.CLARABEL, gaps)

    print("| K | hyloc (ms) | solver | time (s) | times slower | objective off hyloc's by |")
    print("| --- | --- | --- | --- | --- | --- |")
    for count in (int(text) for text in arguments.nodes.split(",")):
        problems = scenes(arguments.hyloc, count, arguments.problems)
        ours = hyloc(arguments.hyloc, problems, arguments.repeat)
        own_s = statistics.median(time for _, time in ours)
        for name, (solver, options) in solvers.items():
            theirs = [solve(problem, solver, options) for problem in problems]
            time_s = statistics.median(time for _, time in theirs)
            off = max(abs(a / b - 1) for (a, _), (b, _) in zip(theirs, ours))
            print(f"| {count} | {own_s * 1e3:.2f} | {name} | {time_s:.2f} | {time_s / own_s:.0f} | {off:.1e} |")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
