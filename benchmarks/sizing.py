#!/usr/bin/env python3
"""What a sweep costs and how it scales, for docs/guide/sizing.md.

    cargo build --release
    python3 benchmarks/sizing.py [--nodes 2,3,4,8,16] [--seconds 2]

Prints the processor time of a fix in `hyloc sweep` by number of IRSs and method, from the difference of two sweeps of different
length, so that starting and plotting are left out; then the wall time of one process with one thread against two shards with
one thread each; then fixes per second in process against the live pipeline at the highest rate that `hyloc latency`
finds to hold. Needs no packages.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

METHODS = ["direct", "three-stage", "auto"]


def run(executable, *arguments):
    """Wall time and processor time of a command."""
    started = time.monotonic()
    process = subprocess.Popen([executable, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(f"{executable} {' '.join(arguments)} failed")
    return time.monotonic() - started, usage.ru_utime + usage.ru_stime


def sweep(executable, nodes, method, trials, *more):
    with tempfile.TemporaryDirectory() as out:
        grid = ["--grid", f"method={method}"] + (["--grid", f"nodes={nodes}"] if nodes != 3 else [])
        return run(executable, "sweep", *grid, "--trials", str(trials), "--out", out, *more)


def per_fix_s(executable, nodes, method, seconds):
    """Processor time of a fix, from sweeps of n and 3 n trials."""
    trials = 25
    while True:
        cost = sweep(executable, nodes, method, 3 * trials)[1] - sweep(executable, nodes, method, trials)[1]
        if cost > seconds or trials >= 30_000:
            return cost / (2 * trials)
        trials = min(30_000, int(trials * max(2.0, min(10.0, 1.3 * seconds / max(cost, 0.05)))))


def shards(executable, trials):
    """Wall time of a sweep by one thread, and by two shards of one thread at a time."""
    whole, _ = sweep(executable, 3, "direct", trials, "--threads", "1")
    with tempfile.TemporaryDirectory() as out:
        command = [executable, "sweep", "--grid", "method=direct", "--trials", str(trials), "--threads", "1", "--out", out]
        started = time.monotonic()
        both = [
            subprocess.Popen([*command, "--shard", f"{i}/2"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            for i in range(2)
        ]
        if any(process.wait() != 0 for process in both):
            sys.exit("a shard failed")
        subprocess.run([executable, "sweep", "merge", out], check=True, capture_output=True)
        return whole, time.monotonic() - started


def held_hz(executable, rate):
    """The highest rate that holds live at K = 3, direct method, looked for downwards."""
    arguments = ["latency", "--nodes", "3", "--method", "direct", "--frames", "3000", "--rate", str(rate)]
    output = subprocess.run([executable, *arguments], capture_output=True, text=True)
    found = re.search(r"K = 3: ([0-9.]+) frames a second hold", output.stderr + output.stdout)
    return float(found.group(1)) if found else float("nan")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", default="2,3,4,8,16")
    parser.add_argument("--seconds", type=float, default=2.0, help="least processor time that a figure is based on")
    parser.add_argument("--executable", default=str(Path(__file__).parent.parent / "target/release/hyloc"))
    flags = parser.parse_args()
    print(f"| K | {' | '.join(f'{method} (ms)' for method in METHODS)} |")
    print(f"| --- | {' | '.join('---' for _ in METHODS)} |")
    for nodes in filter(None, flags.nodes.split(",")):
        costs = [per_fix_s(flags.executable, int(nodes), method, flags.seconds) for method in METHODS]
        print(f"| {nodes} | {' | '.join(f'{1e3 * cost:.2f}' for cost in costs)} |", flush=True)
    whole, both = shards(flags.executable, 6000)
    print(f"\nshards: one of one thread {whole:.2f} s, two at once with the merge {both:.2f} s: {whole / both:.2f} times as fast")
    elapsed = sweep(flags.executable, 3, "direct", 12_000)[0] - sweep(flags.executable, 3, "direct", 2000)[0]
    live = max(held_hz(flags.executable, rate) for rate in (900, 800))
    print(f"fixes a second, K = 3, direct: {10_000 / elapsed:.0f} in process, {live:.0f} live: {10_000 / elapsed / live:.1f} times")


if __name__ == "__main__":
    main()
