"""Live fixes of a running demo."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Iterator

import numpy as np
import pytest

import hyloc


@pytest.fixture
def address(executable: str) -> Iterator[str]:
    """The gRPC address of a demo with two targets that runs until it is stopped."""
    command = [executable, "demo", "--dashboard", "--targets", "2", "--rate", "20"]
    demo = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        yield hyloc_address(demo)
    finally:
        demo.send_signal(signal.SIGINT)
        try:
            demo.wait(timeout=30)
        except subprocess.TimeoutExpired:
            demo.kill()


def hyloc_address(demo: "subprocess.Popen[str]") -> str:
    """What the demo says about its gRPC address."""
    assert demo.stdout is not None
    for line in demo.stdout:
        found = re.search(r"gRPC ([^;]+);", line)
        if found:
            return found[1]
    raise AssertionError("the demo ended without an address")


def test_fixes_as_they_are_made(address: str) -> None:
    with hyloc.watch(address, timeout_s=60) as watch:
        fixes = [fix for fix, _ in zip(watch, range(20))]
    frames = [fix.frame for fix in fixes]
    assert frames == sorted(set(frames)) and len({fix.run for fix in fixes}) == 1
    located = [fix for fix in fixes if fix.position_m is not None]
    assert len(located) > 10
    for fix in located:
        assert fix.position_m is not None and fix.covariance_m2 is not None
        assert fix.position_m.shape == (3,) and fix.covariance_m2.shape == (2, 2)
        assert (np.linalg.eigvalsh(fix.covariance_m2) > 0).all()
        assert fix.nodes and fix.paths <= 9 and fix.status in ("nominal", "degraded", "doubtful")
        assert fix.targets and (fix.targets[0].position_m == fix.position_m).all()
    tracks = fixes[-1].tracks
    assert all(track.covariance.shape == (4, 4) and 0 <= track.existence <= 1 for track in tracks)
    with pytest.raises(StopIteration):
        next(watch)


INTERRUPTED = """
import os, signal, sys, threading, hyloc
signal.signal(signal.SIGINT, signal.default_int_handler)
threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    with hyloc.watch(sys.argv[1]) as fixes:
        for fix in fixes:
            pass
except KeyboardInterrupt:
    print("interrupted")
"""


def test_an_interrupt_ends_the_watch(address: str) -> None:
    said = subprocess.run([sys.executable, "-c", INTERRUPTED, address], capture_output=True, text=True, timeout=60)
    assert said.stdout == "interrupted\n", said.stderr


def test_nobody_answers() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        with pytest.raises(hyloc.UnavailableError, match=f"127.0.0.1:{port}: "):
            hyloc.watch(f"127.0.0.1:{port}")
    assert issubclass(hyloc.UnavailableError, ConnectionError)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        with pytest.raises((TimeoutError, hyloc.UnavailableError)):
            hyloc.watch(f"127.0.0.1:{silent.getsockname()[1]}", timeout_s=0.5)


def test_certificates_belong_together(tmp_path: Path) -> None:
    with pytest.raises(hyloc.ArgumentError, match="tls_ca, tls_cert and tls_key belong together"):
        hyloc.watch("127.0.0.1:1", tls_ca=tmp_path / "ca.pem")
    with pytest.raises(hyloc.ArgumentError, match="timeout_s"):
        hyloc.watch("127.0.0.1:1", timeout_s=-1)
