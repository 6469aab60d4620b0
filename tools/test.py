"""Runs suites of checks side by side and sums them up: `python tools/test.py [SUITE | GROUP ...]`.

Each suite runs in a process of its own and writes to .cache/test/<suite>.log, shown when it fails. A suite that ran no
test has failed. The last line is `N passed, N failed`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

import setup
from steps import CACHE, ROOT

LOGS = CACHE / "test"
HANGS_AFTER = 30 * 60  # seconds; a suite that takes this long is stuck
PY = str(setup.PYTHON)
EXTENSION = ("python", "front-end", "extension")


@dataclass(frozen=True)
class Counts:
    """How many tests of a suite passed, failed and were skipped."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped)


@dataclass(frozen=True)
class Suite:
    """One command, the set-up it needs, and how its tests are counted."""

    name: str
    group: str
    command: tuple[str, ...]
    needs: tuple[str, ...] = ()
    counted: Callable[[Suite, str], Counts | None] = field(default=lambda suite, log: None)
    cwd: Path = ROOT
    turn: str = ""  # suites of one turn never run at the same time
    env: tuple[tuple[str, str], ...] = ()

    def report(self) -> Path:
        """Where the suite's own runner leaves its machine-readable result."""
        return LOGS / f"{self.name}.report"


def _cargo(suite: Suite, log: str) -> Counts:
    found = re.findall(r"^test result: .* (\d+) passed; (\d+) failed; (\d+) ignored", log, re.M)
    return sum((Counts(*map(int, counts)) for counts in found), Counts())


def _junit(suite: Suite, log: str) -> Counts | None:
    if not suite.report().is_file():
        return None
    total = Counts()
    for one in ElementTree.parse(suite.report()).getroot().iter("testsuite"):
        failed = int(one.get("failures", 0)) + int(one.get("errors", 0))
        skipped = int(one.get("skipped", 0))
        total += Counts(int(one.get("tests", 0)) - failed - skipped, failed, skipped)
    return total


def _vitest(suite: Suite, log: str) -> Counts | None:
    if not suite.report().is_file():
        return None
    said = json.loads(suite.report().read_text())
    failed = int(said["numFailedTests"])
    # A file that cannot be loaded holds no test that fails, and is a failure.
    failed = failed or int(said["numFailedTestSuites"])
    return Counts(int(said["numPassedTests"]), failed, int(said["numPendingTests"]))


def lint(name: str, *command: str, needs: tuple[str, ...] = (), cwd: Path = ROOT, turn: str = "") -> Suite:
    """A check that is one test: it holds or it does not."""
    return Suite(name, "lint", command, needs, cwd=cwd, turn=turn)


def pytest(name: str, *arguments: str, needs: tuple[str, ...] = EXTENSION, turn: str = "") -> Suite:
    """Tests run by pytest."""
    command = (PY, "-m", "pytest", "-q", f"--junitxml={LOGS / f'{name}.report'}", *arguments)
    return Suite(name, name, command, needs, _junit, turn=turn)


def vitest(name: str, *arguments: str, needs: tuple[str, ...]) -> Suite:
    """Tests run by vitest."""
    report = LOGS / f"{name}.report"
    command = (
        "npx",
        "--no-install",
        "vitest",
        "run",
        "--reporter=default",
        "--reporter=json",
        f"--outputFile.json={report}",
    )
    return Suite(name, name, (*command, *arguments), needs, _vitest, cwd=ROOT / "js")


def _workers(most: int) -> str:
    return str(min(most, os.cpu_count() or 1))


# The longest first: what runs at the end should be short.
SUITES = (
    lint("clippy", "cargo", "clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings", turn="cargo"),
    Suite("rust", "rust", ("cargo", "test", "--workspace", "--locked", "--no-fail-fast"), (), _cargo, turn="cargo"),
    pytest("e2e", "tests/e2e", needs=(*EXTENSION, "browser"), turn="browser"),
    pytest("python", "tests/python", "-n", _workers(4)),
    pytest("endings", "tests/endings", "-n", _workers(4), needs=(*EXTENSION, "peers")),
    pytest("soak", "tests/faults/test_soak.py"),
    pytest("faults", "tests/faults", "--ignore=tests/faults/test_soak.py", "-n", _workers(4)),
    pytest("examples", "--doctest-modules", "--doctest-ignore-import-errors", "python/smdwidgets", "tests/examples"),
    pytest("pages", "tests/pages"),
    pytest("conformance", "tests/conformance", needs=(*EXTENSION, "peers")),
    pytest("packaging", "tests/packaging", turn="cargo"),
    pytest("notebooks", "tests/notebooks"),
    vitest("browser", "--config", "vitest.browser.config.ts", needs=("npm", "browser")),
    vitest("front-end", needs=("npm", "browser")),
    lint("mypy", PY, "-m", "mypy", needs=("python",)),
    lint(
        "stubtest", PY, "-m", "mypy.stubtest", "--allowlist", "tools/stubtest.txt", "smdwidgets._core", needs=EXTENSION
    ),
    lint("tsc", "npx", "--no-install", "tsc", "--noEmit", needs=("npm",), cwd=ROOT / "js"),
    lint("biome", "npx", "--no-install", "biome", "check", "--error-on-warnings", needs=("npm",), cwd=ROOT / "js"),
    lint("ruff", PY, "-m", "ruff", "check", "--no-cache", needs=("python",)),
    lint("ruff-format", PY, "-m", "ruff", "format", "--check", "--no-cache", needs=("python",)),
    lint("import-linter", str(setup.PYTHON.with_name("lint-imports")), "--no-cache", needs=("python",)),
    lint("rustfmt", "cargo", "fmt", "--all", "--check"),
    lint("licences", PY, "tools/supply.py", "check", needs=("python",), turn="cargo"),
    lint("hygiene", PY, "tools/hygiene.py", needs=("python",)),
)


@dataclass(frozen=True)
class Result:
    """What came of a suite."""

    suite: Suite
    counts: Counts
    seconds: float
    problem: str = ""


TURNS = {suite.turn: Lock() for suite in SUITES}


def run(suite: Suite) -> Result:
    """Runs one suite to its end."""
    if suite.turn:
        with TURNS[suite.turn]:
            return _run(suite)
    return _run(suite)


def _run(suite: Suite) -> Result:
    log = LOGS / f"{suite.name}.log"
    suite.report().unlink(missing_ok=True)
    began = time.monotonic()
    problem = ""
    env = {
        **os.environ,
        "NO_COLOR": "1",
        "CARGO_TERM_COLOR": "never",
        "npm_config_loglevel": "error",
        **dict(suite.env),
    }
    command = (shutil.which(suite.command[0]) or suite.command[0], *suite.command[1:])
    with log.open("wb") as out:
        try:
            done = subprocess.run(
                command,
                cwd=suite.cwd,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                timeout=HANGS_AFTER,
                check=False,
            )
            code = done.returncode
        except subprocess.TimeoutExpired:
            code, problem = 1, f"still running after {HANGS_AFTER // 60} minutes"
        except FileNotFoundError:
            code, problem = 1, f"`{suite.command[0]}` is not on this machine"
    seconds = time.monotonic() - began
    counts = suite.counted(suite, log.read_text(errors="replace"))
    if suite.group == "lint":
        counts = Counts(passed=int(code == 0), failed=int(code != 0))
    counts = counts or Counts()
    if code and not counts.failed:
        problem = problem or f"ended with {code}"
        counts += Counts(failed=1)
    if not counts.passed and not counts.failed:
        problem, counts = "ran no test", counts + Counts(failed=1)
    print(_line(Result(suite, counts, seconds, problem)), flush=True)
    return Result(suite, counts, seconds, problem)


def _line(result: Result) -> str:
    counts = result.counts
    said = "ok" if not counts.failed else "FAILED"
    if result.suite.group != "lint":
        said += f", {counts.passed} passed" + (f", {counts.failed} failed" if counts.failed else "")
        said += f", {counts.skipped} skipped" if counts.skipped else ""
    said += f" ({result.problem})" if result.problem else ""
    return f"  {result.suite.name:<12} {result.seconds:6.1f} s  {said}"


def chosen(names: list[str]) -> list[Suite]:
    """The suites of these names or groups; all of them when none is named."""
    known = {suite.name for suite in SUITES} | {suite.group for suite in SUITES}
    if unknown := [name for name in names if name not in known]:
        sys.exit(f"error: no such suite: {', '.join(unknown)} (there are {', '.join(sorted(known))})")
    return [suite for suite in SUITES if not names or suite.name in names or suite.group in names]


def main(names: list[str]) -> int:
    """Runs what is asked for; 0 when every suite ran tests and none failed."""
    suites = chosen(names)
    LOGS.mkdir(parents=True, exist_ok=True)
    setup.ensure(list(dict.fromkeys(step for suite in suites for step in suite.needs)) or ["python"])
    began = time.monotonic()
    with ThreadPoolExecutor(max_workers=max(2, (os.cpu_count() or 2) // 2)) as pool:
        results = list(pool.map(run, suites))
    for result in results:
        if result.counts.failed:
            log = (LOGS / f"{result.suite.name}.log").read_text(errors="replace").rstrip()
            print(f"\n--- {result.suite.name} {'-' * (90 - len(result.suite.name))}\n{log[-20_000:]}")
    total = sum((result.counts for result in results), Counts())
    failed = [result.suite.name for result in results if result.counts.failed]
    print(
        f"\n{len(results)} suites in {time.monotonic() - began:.0f} s"
        + (f"; failed: {', '.join(failed)}" if failed else "")
    )
    skipped = f", {total.skipped} skipped" if total.skipped else ""
    print(f"{total.passed} passed, {total.failed} failed{skipped}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
