"""The runner of test suites, `tools/test.py`, with small suites."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

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
    [first] = runner.run_all([suite])
    return runner.run_again(first)


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
