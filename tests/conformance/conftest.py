"""smdebug 1.0.34 in a separate environment, and the runs that it writes there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ENVIRONMENT = {
    **os.environ,
    "SMDEBUG_LOG_LEVEL": "off",
    "SMDEBUG_TRAINING_END_DELAY_REFRESH": "0",
    "SMDEBUG_MISSING_EVENT_FILE_RETRY_LIMIT": "1",
}


def output(*command: str | Path, cwd: Path | None = None) -> str:
    """Return the output of a program; fail with its error message."""
    done = subprocess.run(command, env=ENVIRONMENT, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


@pytest.fixture(scope="session")
def smdebug_python(repository: Path) -> Path:
    """The Python interpreter that has smdebug."""
    folder = repository / ".venv-peers"
    python = folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    if not python.exists():
        pytest.fail("smdebug 1.0.34 is not set up: `make conformance` does it", pytrace=False)
    return python


@pytest.fixture(scope="session")
def runs(smdebug_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs written by smdebug."""
    folder = tmp_path_factory.mktemp("by-smdebug")
    output(smdebug_python, Path(__file__).with_name("write_runs.py"), folder)
    return folder
