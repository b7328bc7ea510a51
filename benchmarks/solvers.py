#!/usr/bin/env python3
"""The joint angle problem through general convex solvers, beside `hyloc solve angles`.

    pip install -r benchmarks/requirements.txt
    cargo build --release
    python3 benchmarks/solvers.py [--nodes 2,3,4] [--problems 3] [--skip-clarabel]

Draws joint problems at Table I sizes (M = N = D = 10, SNR of 18 dB per path) for K IRSs, solves each with SCS
and Clarabel through CVXPY and with hyloc, all to a relative objective of 1e-4, and prints median times and
ratios. Times are the solvers' own (CVXPY's compilation is left out), one run, one machine.
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

SIZE = 10
SNR_DB = 18.0
LAMBDA = 2.5
TOLERANCE = 1e-4


def steering(angle_rad):
    centred = np.arange(SIZE) - (SIZE - 1) / 2
    return np.exp(2j * np.pi * centred * np.sin(angle_rad))


def draw(rng, count):
    """Blocks with unit noise, signals of unit spectral norm, weights by energy."""
    noise = lambda: (rng.normal(size=(SIZE, SIZE)) + 1j * rng.normal(size=(SIZE, SIZE))) / np.sqrt(2)
    signals = [noise() for _ in range(count)]
    signals = [s / np.linalg.norm(s, 2) for s in signals]
    angles = rng.uniform(-0.4, 0.4, size=count)
    blocks = []
    for l in range(count):
        row = []
        for k in range(count):
            path = np.outer(steering(angles[l]), steering(angles[k]).conj() @ signals[k])
            gain = np.sqrt(10 ** (SNR_DB / 10)) / np.linalg.norm(path)
            row.append(gain * np.exp(2j * np.pi * rng.uniform()) * path + noise())
        blocks.append(row)
    energy = np.array([[np.linalg.norm(b) ** 2 for b in row] for row in blocks])
    return signals, blocks, energy / energy.max()


def parts(matrix):
    return {"re": matrix.real.tolist(), "im": matrix.imag.tolist()}


def hyloc(executable, problems, repeat):
    cases = [
        {
            "structured_departure": True,
            "lambda": LAMBDA,
            "spacing_wavelengths": 1.0,
            "weights": weights.tolist(),
            "blocks": [[parts(b) for b in row] for row in blocks],
            "reflected_signal": [parts(s) for s in signals],
        }
        for signals, blocks, weights in problems
    ]
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump({"cases": cases}, file)
        file.flush()
        command = [executable, "solve", "angles", "--input", file.name]
        command += ["--tolerance", str(TOLERANCE), "--repeat", str(repeat)]
        answers = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["cases"]
    return [(answer["objective"], answer["solve_time_s"]) for answer in answers]


def toeplitz(row):
    """Hermitian Toeplitz matrix of a complex variable; its first entry is taken as real."""
    size = row.shape[0]
    terms = [cp.real(row[0]) * np.eye(size)]
    for lag in range(1, size):
        shift = np.eye(size, k=lag)
        terms.append(row[lag] * shift + cp.conj(row[lag]) * shift.T)
    return sum(terms)


def general(problem):
    signals, blocks, weights = problem
    count = len(signals)
    arrivals = [cp.Variable(SIZE, complex=True) for _ in range(count)]
    departures = [cp.Variable(SIZE, complex=True) for _ in range(count)]
    objective, constraints = 0, []
    for l in range(count):
        for k in range(count):
            corner = cp.Variable((2 * SIZE, 2 * SIZE), hermitian=True)
            denoised = corner[:SIZE, SIZE:]
            constraints += [
                corner >> 0,
                corner[:SIZE, :SIZE] == toeplitz(arrivals[l]),
                corner[SIZE:, SIZE:] == toeplitz(departures[k]),
            ]
            fit = cp.sum_squares(denoised @ signals[k] - blocks[l][k])
            traces = SIZE * (cp.real(arrivals[l][0]) + cp.real(departures[k][0]))
            objective += weights[l, k] * (traces + LAMBDA * fit)
    return cp.Problem(cp.Minimize(objective), constraints)


def solve(problem, solver, options):
    formulated = general(problem)
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
        rng = np.random.default_rng(count)
        problems = [draw(rng, count) for _ in range(arguments.problems)]
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
