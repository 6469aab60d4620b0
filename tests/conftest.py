"""What all tests share: deterministic property tests in CI, and where things lie."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from fixtures import unpacked

# A failure in CI has to be the same failure on a desk; at a desk, new examples are welcome.
settings.register_profile(
    "ci", derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("desk", database=None, deadline=None, print_blob=True)
# Where each example takes a hundred times as long: `make memcheck`.
settings.register_profile("few", parent=settings.get_profile("ci"), max_examples=3)
settings.load_profile("ci" if os.environ.get("CI") else "desk")

# A process in the background, or under nohup, ignores signals that tests send to themselves and to their children.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="session")
def repository() -> Path:
    """The checkout under test."""
    return Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def golden_runs() -> Path:
    """Small runs that smdebug itself wrote."""
    return unpacked("golden")


@pytest.fixture(scope="session")
def run_python() -> Callable[[str], str]:
    """Runs code in a process of its own, for what would change this one for good; what it prints."""

    def run(code: str) -> str:
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert not done.returncode, done.stderr
        return done.stdout

    return run


@pytest.fixture
def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port
