"""`make clients` on a small clone: one row per program, and the exit status."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

LIBRARY = """
def answer():
    return 42
"""
SAME = """
import smdebug.trials
if __name__ == "__main__":
    print("half of", 84, "is", 42)
"""
DIFFERENT = """
import smdebug.trials
if __name__ == "__main__":
    print("the module is", smdebug.trials.__name__)
    print("the package is", smdebug.__name__)
"""
RAISES = """
from smdebug.answers import answer
if __name__ == "__main__":
    print(answer())
"""
HANGS = """
import threading
import smdebug.trials
if __name__ == "__main__":
    threading.Event().wait()
"""


@pytest.fixture
def clone(tmp_path):
    """A clone with a library called smdebug and no clients."""
    package = tmp_path / "clone" / "smdebug"
    package.mkdir(parents=True)
    for name, text in (("__init__", ""), ("trials", ""), ("answers", LIBRARY)):
        (package / f"{name}.py").write_text(text)
    (tmp_path / "clone" / "examples").mkdir()
    return tmp_path / "clone"


@pytest.fixture
def clients(repository, tmp_path):
    """Run the tool; return its exit status and output."""

    def run(*arguments):
        env = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, (repository / "tools", repository / "python"))),
            "SMDWIDGETS_CLIENTS_CACHE": str(tmp_path / "cache"),
        }
        command = [sys.executable, "-m", "clients", *map(str, arguments)]
        done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    return run


def compared(clients, clone, *arguments):
    return clients(
        clone, "--python", f"*={sys.executable}", "--smdebug-path", clone, "--only", "examples/own", *arguments
    )


def add(clone, name, text):
    folder = clone / "examples" / "own"
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.py").write_text(text)


def row(output, name):
    return next(line for line in output.splitlines() if line.startswith(f"examples/own/{name}.py"))


def test_equal_output_passes(clients, clone):
    add(clone, "same", SAME)
    status, output, progress = compared(clients, clone)
    assert status == 0, output
    assert "same: output" in row(output, "same")
    assert "1 passed, 0 failed" in output
    assert "[1/1] examples/own/same.py" in progress


def test_different_output_fails(clients, clone, tmp_path):
    add(clone, "same", SAME)
    add(clone, "different", DIFFERENT)
    status, output, _ = compared(clients, clone)
    assert status == 1
    assert "differs: prints" in row(output, "different")
    assert "same: output" in row(output, "same")
    assert "1 passed, 1 failed" in output
    logs = re.findall(r"log: (\S+)", output)
    assert len(logs) == 2
    assert all(Path(log).is_file() for log in logs)


def test_exception_on_one_side_fails(clients, clone):
    add(clone, "raises", RAISES)
    status, output, _ = compared(clients, clone)
    assert status == 1
    assert "differs: ends with ModuleNotFoundError" in row(output, "raises")


def test_hanging_program_times_out(clients, clone):
    add(clone, "hangs", HANGS)
    status, output, _ = compared(clients, clone, "--timeout", "2")
    assert status == 1
    assert "differs: time-out: smdebug and smdwidgets" in row(output, "hangs")


def test_missing_clone_is_skipped(clients):
    status, output, _ = clients()
    assert status == 0
    assert output.startswith("skipped: no clone of awslabs/sagemaker-debugger given.")
    assert "git clone" in output


@pytest.mark.parametrize("made", [False, True])
def test_other_directory_is_skipped(clients, tmp_path, made):
    directory = tmp_path / "elsewhere"
    if made:
        directory.mkdir()
    status, output, _ = clients(directory)
    assert status == 0
    assert output.startswith(f"skipped: {directory} ")
