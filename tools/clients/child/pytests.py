"""Run a test file of the clone, and report the outcome of each test."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class _Outcomes:
    """A pytest plugin that records outcomes; has the fixtures of the clone's conftest."""

    def __init__(self) -> None:
        self.outcomes: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: Any) -> None:
        name = report.nodeid.rpartition("/")[2]
        if report.when == "call" or report.outcome != "passed":
            reason = ""
            if report.failed:
                crash = getattr(report.longrepr, "reprcrash", None)
                reason = ": " + (crash.message if crash else str(report.longrepr)).strip().split("\n")[0][:200]
            self.outcomes[name] = f"{report.outcome}{reason}"

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            last = [line for line in str(report.longrepr).strip().split("\n") if line.startswith("E  ")]
            self.outcomes[report.nodeid.rpartition("/")[2] or "collection"] = (
                f"error: {last[-1][1:].strip() if last else ''}"
            )


def _fixtures() -> Any:
    import pytest

    class Fixtures:
        @pytest.fixture
        def out_dir(self, tmp_path: Path) -> Iterator[str]:
            path = tmp_path / "out"
            yield str(path)
            shutil.rmtree(path, ignore_errors=True)

    return Fixtures()


def run(job: dict[str, Any]) -> dict[str, Any]:
    """The outcome of each test in a file.

    Its conftest.py is replaced by the fixtures above.
    """
    import pytest

    sys.path.append(job["root"])  # last, so that an installed smdebug comes before the clone's
    outcomes = _Outcomes()
    options = ["-q", "--noconftest", "--import-mode=importlib", "-p", "no:cacheprovider", "-p", "no:hypothesispytest"]
    options += ["--basetemp", str(Path(job["directory"]) / "tmp"), "--rootdir", job["directory"], "-c", "/dev/null"]
    options += ["-W", "ignore"]
    pytest.main([*options, job["path"]], plugins=[outcomes, _fixtures()])
    return {"outcomes": outcomes.outcomes or {"collection": "no tests"}}
