"""The time of 1000 frames of Table I from echoes to fixes, in Python beside Rust: pairs of runs, one after the other.

    cargo build --release -p hyloc-estimation --example thousand_frames
    python python/benchmarks/frames.py
"""

from __future__ import annotations

import os
import re
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Tuple

import hyloc

BUILT = Path(__file__).resolve().parents[2] / "target/release/examples/thousand_frames"
RUST = os.environ.get("THOUSAND_FRAMES", str(BUILT))


def in_rust() -> Tuple[float, float]:
    """Seconds that Rust takes to locate, and processor seconds of the whole process, which also simulates."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    said = subprocess.run([RUST], capture_output=True, text=True, check=True).stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = re.search(r"(\d+) fixes in ([\d.]+) s", said)
    assert found, said
    return float(found[2]), after.ru_utime - before.ru_utime


def in_python() -> Tuple[float, float]:
    """The same in Python."""
    before = resource.getrusage(resource.RUSAGE_SELF)
    run = hyloc.simulate(hyloc.Scenario(), 1000)
    locator = hyloc.Locator(run.scenario)
    began = time.perf_counter()
    locator.locate(run.echoes)
    seconds = time.perf_counter() - began
    return seconds, resource.getrusage(resource.RUSAGE_SELF).ru_utime - before.ru_utime


def main() -> None:
    """Prints both times of every pair, and the medians of their ratios: by the clock, and by processor time on a busy machine."""
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    clock, processor = [], []
    for pair in range(pairs):
        first, second = (in_python, in_rust) if pair % 2 else (in_rust, in_python)
        one, other = first(), second()
        python, rust = (one, other) if pair % 2 else (other, one)
        clock.append(python[0] / rust[0])
        processor.append(python[1] / rust[1])
        print(f"Python {python[0]:.3f} s, Rust {rust[0]:.3f} s; processor {python[1]:.2f} s and {rust[1]:.2f} s", flush=True)
    print(f"median ratio of {pairs} pairs: {statistics.median(clock):.3f} by the clock, ", end="")
    print(f"{statistics.median(processor):.3f} by processor time")


if __name__ == "__main__":
    main()
