"""The runner of test suites, `tools/test.py`, with small suites."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

TOOLS = Path(__file__).resolve().parents[3] / "tools"


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(TOOLS))
    spec = importlib.util.spec_from_file_location("suites_runner", TOOLS / "test.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "suites_runner", module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "LOGS", tmp_path / "logs")
    monkeypatch.setattr(module, "PY", sys.executable)
    (tmp_path / "logs").mkdir()
    return module


def outcome(runner: Any, folder: Path, text: str) -> Any:
    file = folder / "test_made.py"
    file.write_text(text, encoding="utf-8")
    suite = runner.pytest("made", str(file), "--rootdir", str(folder), "-c", "/dev/null")
    with runner.Runner() as run:
        [result] = run.run_all([suite])
    assert not run.temporary.exists()
    return result


FIRST_TIME = """
from pathlib import Path
def attempt(name):
    mark = Path(__file__).with_name(name)
    number = int(mark.read_text()) + 1 if mark.exists() else 1
    mark.write_text(str(number))
    return number
def test_steady():
    assert attempt("steady") == 1
"""


def test_a_test_that_fails_once_is_unstable_and_only_it_runs_again(runner, tmp_path):
    result = outcome(runner, tmp_path, FIRST_TIME + "def test_once():\n    assert attempt('once') == 2\n")
    assert (result.counts.passed, result.counts.failed, result.unstable) == (2, 0, 1)
    log = (tmp_path / "logs" / "made.log").read_text()
    assert "assert 1 == 2" in log
    assert "second attempt" in log


def test_a_test_that_fails_twice_fails(runner, tmp_path):
    result = outcome(runner, tmp_path, FIRST_TIME + "def test_never():\n    assert attempt('never') == 0\n")
    assert (result.counts.failed, result.unstable) == (1, 0)
    assert (tmp_path / "never").read_text() == "2"


def test_temporary_files_are_deleted_with_their_test(runner, tmp_path):
    written = (
        "def test_first(tmp_path):\n    (tmp_path / 'file').touch()\n"
        "def test_second(tmp_path):\n    assert not list(tmp_path.parent.glob('*/file'))\n"
    )
    assert outcome(runner, tmp_path, written).counts.passed == 2


def test_many_failures_are_not_tried_again(runner, tmp_path):
    several = (
        "import pytest\n@pytest.mark.parametrize('n', range(4))\ndef test_all(n):\n    assert attempt(f'all{n}') == 2\n"
    )
    result = outcome(runner, tmp_path, FIRST_TIME + several)
    assert (result.counts.failed, result.unstable) == (4, 0)
    assert (tmp_path / "all0").read_text() == "1"


def test_a_file_that_cannot_be_imported_fails(runner, tmp_path):
    result = outcome(runner, tmp_path, "import no_such_module_anywhere\n")
    assert result.counts.failed
    assert not result.unstable


#: A suite that starts a process in a new session, as Jupyter starts kernels.
SUITE = """
import subprocess, sys, time
code = "import pathlib, sys, time; pathlib.Path(sys.argv[1]).touch(); time.sleep(600)"
subprocess.Popen([sys.executable, "-c", code, sys.argv[1]], start_new_session=True)
time.sleep(600)
"""
RUN = """
import sys
from pathlib import Path
tools, folder = sys.argv[1:]
sys.path.insert(0, tools)
import test as runner
runner.LOGS = Path(folder) / "logs"
runner.SUITES = (runner.lint("sleeper", sys.executable, f"{folder}/suite.py", f"{folder}/ready"),)
runner.setup.ensure = lambda names: None
sys.exit(runner.main(["sleeper"]))
"""


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="requires /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_no_process(number, tmp_path):
    ready = tmp_path / "ready"
    (tmp_path / "suite.py").write_text(SUITE, encoding="utf-8")
    mark = f"IN_TEST={tmp_path}"
    env = {**os.environ, "IN_TEST": str(tmp_path)}
    command = [sys.executable, "-c", RUN, str(TOOLS), str(tmp_path)]
    process = subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True)
    while not ready.exists():
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.02)
    process.send_signal(number)
    assert process.wait() == 130
    assert "interrupted" in process.stderr.read()
    process.stderr.close()
    while left := _with_environment(mark):  # the system removes killed processes a moment later
        assert all(_is_zombie(pid) for pid in left), left
        time.sleep(0.02)


def _with_environment(entry: str) -> list[int]:
    pids = []
    for file in Path("/proc").glob("[0-9]*/environ"):
        try:
            if entry.encode() in file.read_bytes().split(b"\0"):
                pids.append(int(file.parent.name))
        except OSError:
            continue
    return pids


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
