"""Shared fixtures, and profiles of property tests: deterministic in CI."""

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

# Failures in CI must be reproducible; on a developer's machine, new examples are welcome.
settings.register_profile(
    "ci", derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("local", database=None, deadline=None, print_blob=True)
# For environments in which each example takes a hundred times as long: `make memcheck`.
settings.register_profile("few", parent=settings.get_profile("ci"), max_examples=3)
settings.load_profile("ci" if os.environ.get("CI") else "local")

# A process in the background, or under nohup, ignores signals that tests send to themselves and to their children.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep computed statistics out of the user's cache directory."""
    for each in ("cache", "kept_pyramids"):
        if (module := sys.modules.get(f"smdwidgets.trials.statistics.{each}")) is not None:
            monkeypatch.setattr(module, "user_cache", lambda name: tmp_path_factory.getbasetemp() / f"{name}-cache")


@pytest.fixture(scope="session")
def repository() -> Path:
    """The checkout under test."""
    return Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def golden_runs() -> Path:
    """Small runs written by smdebug."""
    return unpacked("golden")


@pytest.fixture(scope="session")
def source_runs() -> Path:
    """Small runs in other formats, written by the programs whose formats they are."""
    return unpacked("sources")


@pytest.fixture(scope="session")
def log_runs() -> Path:
    """A TensorBoard log written by PyTorch: the runs `trained` and `restarted`."""
    return unpacked("tensorboard")


@pytest.fixture(scope="session")
def run_python() -> Callable[[str], str]:
    """Run code that changes the process in a separate one; return its output."""

    def run(code: str) -> str:
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert not done.returncode, done.stderr
        return done.stdout

    return run


@pytest.fixture
def free_port() -> int:
    """Return a port of this machine on which nothing listens."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port
