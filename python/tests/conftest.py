"""Shared scenes of the tests."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Iterator

import pytest

import hyloc

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def scenario() -> hyloc.Scenario:
    """Table I."""
    return hyloc.Scenario()


@pytest.fixture(scope="session")
def run(scenario: hyloc.Scenario) -> hyloc.Simulation:
    """Sixty frames of Table I."""
    return hyloc.simulate(scenario, 60)


@pytest.fixture(scope="session")
def executable() -> str:
    """The command `hyloc`: that of the environment variable HYLOC, or one that was built."""
    named = os.environ.get("HYLOC")
    candidates = [Path(named)] if named else [ROOT / "target" / kind / "hyloc" for kind in ("debug", "release")]
    for candidate in candidates:
        if candidate.exists():
            return str(candidate)
    pytest.fail("no executable hyloc: build it with `cargo build`, or name it in HYLOC")


@pytest.fixture(scope="session")
def recording(executable: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A recording of a short demo with two targets, and its fix log beside it."""
    import subprocess

    folder = tmp_path_factory.mktemp("recording")
    command = [executable, "demo", "--targets", "2", "--frames", "30", "--rate", "25", "--deadline-ms", "20000", "--json"]
    command += ["--record", str(folder / "recorded"), "--fixes", str(folder / "fixes.jsonl")]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    yield folder / "recorded"
