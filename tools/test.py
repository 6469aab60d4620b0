"""Run test suites in parallel and count the results.

Usage: `python tools/test.py [SUITE | GROUP ...]`. Without names: the suites of a normal change. `all`: every suite, at
full length.

Each suite is a process that writes to .cache/test/SUITE.log; the log is printed when the suite fails. A suite that runs
no test fails. Up to `UNSTABLE` failed tests of a run are tried a second time when nothing else runs; one that passes
then is listed as unstable, with the log of its failure. The last line printed is `N passed, N failed`.

Temporary files are written to a tmpfs where there is one, and are deleted at the end. Ctrl-C and SIGTERM end all
processes of the suites.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from pathlib import Path

import setup
from processes import ProcessFamily, interrupt_on_termination
from steps import CACHE, ROOT

LOGS = CACHE / "test"
TIMEOUT = 120 * 60  # seconds; ends a suite that hangs, and no other on a slow machine
#: More failed tests of a run than this have a cause that a second attempt would only hide.
UNSTABLE = 3
#: Memory that must be free for temporary files on a tmpfs.
TMPFS_FREE = 6 << 30
CORES = os.cpu_count() or 1
PY = str(setup.PYTHON)
EXTENSION = ("python", "front-end", "extension")


@dataclass(frozen=True)
class Counts:
    """Numbers of tests that passed, failed and were skipped."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped)


@dataclass(frozen=True)
class Suite:
    """A command, the set-up steps it needs, and how its tests are counted.

    Attributes:
        slots: how many suites it counts as; see `Runner.run_all`.
        lock: suites with the same lock never run at the same time.
        again: the command that runs the failed tests a second time, if there is one; with vitest, all tests.
        quick: arguments that select the tests of a normal change; None if the suite is no part of `make test`.
    """

    name: str
    group: str
    command: tuple[str, ...]
    needs: tuple[str, ...] = ()
    count: Callable[[Suite, str], Counts | None] = field(default=lambda suite, log: None)
    cwd: Path = ROOT
    lock: str = ""
    slots: int = 1
    env: tuple[tuple[str, str], ...] = ()
    again: tuple[str, ...] = ()
    quick: tuple[str, ...] | None = ()

    def report(self) -> Path:
        """Return where the suite's test runner writes its machine-readable result."""
        return LOGS / f"{self.name}.report"


def _cargo(suite: Suite, log: str) -> Counts:
    results = re.findall(r"^test result: .* (\d+) passed; (\d+) failed; (\d+) ignored", log, re.M)
    return sum((Counts(*map(int, counts)) for counts in results), Counts())


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
    report = json.loads(suite.report().read_text())
    # A file that cannot be loaded contains no failed test; its suite fails.
    failed = int(report["numFailedTests"]) or int(report["numFailedTestSuites"])
    return Counts(int(report["numPassedTests"]), failed, int(report["numPendingTests"]))


def lint(
    name: str,
    *command: str,
    needs: tuple[str, ...] = (),
    cwd: Path = ROOT,
    lock: str = "",
    quick: tuple[str, ...] | None = (),
) -> Suite:
    """Return a check that counts as one test."""
    return Suite(name, "lint", command, needs, cwd=cwd, lock=lock, quick=quick)


def pytest(
    name: str,
    *arguments: str,
    needs: tuple[str, ...] = EXTENSION,
    lock: str = "",
    slots: int = 1,
    workers: int = 0,
    quick: tuple[str, ...] | None = (),
    **env: str,
) -> Suite:
    """Return tests run by pytest, in up to `workers` processes."""
    # One process more than cores, because tests also wait. A process begins with tests that follow each other, so that
    # few processes start the same server or cluster.
    side_by_side = ("-n", str(min(workers, CORES + 1)), "--dist", "worksteal") if workers else ()
    report = f"--junitxml={LOGS / f'{name}.report'}"
    # Suites that run at the same time must not share the record of failed tests.
    cache = ("-o", f"cache_dir={LOGS / f'{name}.pytest'}", "-o", "tmp_path_retention_policy=none")
    base = (PY, "-m", "pytest", "-q", report, *cache)
    command = (*base, "--durations=15", *side_by_side, *arguments)
    again = (*base, "--last-failed", "--last-failed-no-failures=none", *arguments)
    variables = tuple(env.items())
    return Suite(name, name, command, needs, _junit, lock=lock, slots=slots, env=variables, again=again, quick=quick)


def vitest(name: str, *arguments: str, needs: tuple[str, ...]) -> Suite:
    """Return tests run by vitest."""
    reporters = ("--reporter=default", "--reporter=json", f"--outputFile.json={LOGS / f'{name}.report'}")
    command = ("npx", "--no-install", "vitest", "run", *reporters, *arguments)
    return Suite(name, name, command, needs, _vitest, cwd=ROOT / "js", again=command)


#: Tests of `make test` in suites that have slow ones.
NOT_SLOW = ("-m", "not slow")
# The longest first, so that both cores are busy until the end.
SUITES = (
    pytest("python", "tests/python", workers=4, needs=(*EXTENSION, "servers"), quick=NOT_SLOW),
    pytest("e2e", "tests/e2e", workers=2, needs=(*EXTENSION, "browser"), lock="browser", slots=2, quick=NOT_SLOW),
    pytest("notebooks", "tests/notebooks", needs=(*EXTENSION, "browser"), quick=None),
    lint("clippy", "cargo", "clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings", lock="cargo"),
    Suite("rust", "rust", ("cargo", "test", "--workspace", "--locked", "--no-fail-fast"), (), _cargo, lock="cargo"),
    pytest("diagnosis", "tests/diagnosis", workers=4, quick=NOT_SLOW, OPENBLAS_NUM_THREADS="1"),
    pytest("endings", "tests/endings", workers=4, needs=(*EXTENSION, "peers"), quick=None),
    pytest("soak", "tests/faults/test_soak.py", quick=None),
    pytest("faults", "tests/faults", "--ignore=tests/faults/test_soak.py", workers=4, quick=None),
    pytest("examples", "--doctest-modules", "--doctest-ignore-import-errors", "python/smdwidgets", "tests/examples"),
    pytest("pages", "tests/pages", needs=(*EXTENSION, "servers"), quick=NOT_SLOW),
    pytest("conformance", "tests/conformance", needs=(*EXTENSION, "peers"), quick=None),
    pytest("packaging", "tests/packaging", lock="cargo", quick=None),
    vitest("browser", "--config", "vitest.browser.config.ts", needs=("npm", "browser")),
    vitest("front-end", needs=("npm", "browser")),
    lint("mypy", PY, "-m", "mypy", needs=("python",)),
    lint(
        "stubtest",
        *(PY, "-m", "mypy.stubtest", "--allowlist", "tools/stubtest.txt", "smdwidgets._core"),
        needs=EXTENSION,
        quick=None,
    ),
    lint("tsc", "npx", "--no-install", "tsc", "--noEmit", needs=("npm",), cwd=ROOT / "js"),
    lint("ts-layers", "node", "scripts/check-layers.mjs", needs=("npm",), cwd=ROOT / "js"),
    lint("ts-casts", "node", "scripts/check-casts.mjs", needs=("npm",), cwd=ROOT / "js"),
    lint("biome", "npx", "--no-install", "biome", "check", "--error-on-warnings", needs=("npm",), cwd=ROOT / "js"),
    lint("ruff", PY, "-m", "ruff", "check", "--no-cache", needs=("python",)),
    lint("ruff-format", PY, "-m", "ruff", "format", "--check", "--no-cache", needs=("python",)),
    lint("import-linter", str(setup.PYTHON.with_name("lint-imports")), "--no-cache", needs=("python",)),
    lint("rustfmt", "cargo", "fmt", "--all", "--check"),
    lint("reference", PY, "tools/reference.py", "--check", needs=("python",)),
    lint("protocol", PY, "tools/protocol.py", "--check", needs=("python",)),
    lint("rust-layers", PY, "tools/check_rust_layers.py"),
    lint("language", PY, "tools/check_language.py", needs=("python",)),
    lint("licences", PY, "tools/supply.py", "check", needs=("python",), lock="cargo", quick=None),
    lint(
        "workflows",
        str(setup.PYTHON.with_name("zizmor")),
        *("--offline", "--quiet", "--min-severity=medium", ".github/workflows"),
        needs=("python",),
        quick=None,
    ),
    lint("hygiene", PY, "tools/hygiene.py", needs=("python",)),
)


@dataclass(frozen=True)
class Result:
    """The outcome of a suite.

    `cpu` is the processor time of its processes, which other work on the machine does not inflate. `unstable` is the
    number of tests that passed only in the second attempt.
    """

    suite: Suite
    counts: Counts
    seconds: float
    cpu: float = 0.0
    problem: str = ""
    unstable: int = 0


class Runner:
    """Runs suites as processes of one family, with temporary files in one folder."""

    def __init__(self) -> None:
        self.family = ProcessFamily()
        self.temporary = Path(tempfile.mkdtemp(prefix="smdw-", dir=_tmpfs()))
        # Tests give up their privileges and must still reach their files.
        self.temporary.chmod(0o711)

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *exception: object) -> None:
        self.family.end()
        shutil.rmtree(self.temporary, ignore_errors=True)

    def run(self, suite: Suite) -> Result:
        """Run one suite, print its line and return the result."""
        log = LOGS / f"{suite.name}.log"
        suite.report().unlink(missing_ok=True)
        folder = self.temporary / suite.name
        folder.mkdir(parents=True, exist_ok=True)
        env = {
            **os.environ,
            "NO_COLOR": "1",
            "CARGO_TERM_COLOR": "never",
            "npm_config_loglevel": "error",
            "TMPDIR": str(folder),
            **dict(suite.env),
        }
        # Hundreds of processes import the same modules: without bytecode files, each compiles them again.
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        program, *arguments = suite.command
        start, cpu, problem = time.monotonic(), 0.0, ""
        with log.open("wb") as out:
            try:
                command = [shutil.which(program) or program, *arguments]
                options = {"cwd": suite.cwd, "stdin": subprocess.DEVNULL, "stdout": out, "stderr": out}
                code, cpu = _wait(self.family.start(command, env=env, **options))
            except TimeoutError:
                code, problem = 1, f"still running after {TIMEOUT // 60} minutes"
            except FileNotFoundError:
                code, problem = 1, f"command not found: {program}"
        shutil.rmtree(folder, ignore_errors=True)
        counts = suite.count(suite, log.read_text(errors="replace"))
        if suite.group == "lint":
            counts = Counts(passed=int(code == 0), failed=int(code != 0))
        counts = counts or Counts()
        if code and not counts.failed:
            problem = problem or f"exit status {code}"
            counts += Counts(failed=1)
        if not counts.passed and not counts.failed:
            problem, counts = "ran no test", counts + Counts(failed=1)
        result = Result(suite, counts, time.monotonic() - start, cpu, problem)
        print(_line(result), flush=True)
        return result

    def run_again(self, first: Result) -> Result:
        """Run the failed tests of a suite a second time; return the result of both runs.

        A browser or a process that got no processor for seconds fails a test once. Both logs are kept.
        """
        suite, failed = first.suite, first.counts.failed
        if not (suite.again and failed) or first.problem:
            return first
        log = LOGS / f"{suite.name}.log"
        earlier = log.read_text(errors="replace")
        second = self.run(replace(suite, command=suite.again))
        log.write_text(f"{earlier}\n--- second attempt ---\n{log.read_text(errors='replace')}", encoding="utf-8")
        if second.counts.failed or not second.counts.passed:
            return first
        return replace(
            first,
            counts=replace(first.counts, passed=first.counts.passed + failed, failed=0),
            seconds=first.seconds + second.seconds,
            cpu=first.cpu + second.cpu,
            unstable=failed,
        )

    def run_all(self, suites: list[Suite]) -> list[Result]:
        """Run suites side by side, and try a few failed tests again.

        Suites begin in their order as far as locks and slots allow. There is a slot more than suites keep the cores
        busy, because tests also wait; a suite whose tests wait for a browser takes two.
        """
        waiting, running, results = list(suites), dict[Future[Result], Suite](), list[Result]()
        slots = max(3, CORES // 2 + 1)
        with ThreadPoolExecutor(max_workers=slots) as pool:
            try:
                while waiting or running:
                    held = {suite.lock for suite in running.values() if suite.lock}
                    free = slots - sum(suite.slots for suite in running.values())
                    for suite in list(waiting):
                        if suite.slots <= free and suite.lock not in held:
                            waiting.remove(suite)
                            running[pool.submit(self.run, suite)] = suite
                            held |= {suite.lock} - {""}
                            free -= suite.slots
                    done, _ = wait(running, return_when=FIRST_COMPLETED)
                    for future in done:
                        del running[future]
                        results.append(future.result())
            except BaseException:
                self.family.end()  # the threads of the pool wait for these processes
                raise
        if sum(result.counts.failed for result in results) <= UNSTABLE:
            results = [self.run_again(result) for result in results]
        return results


def _tmpfs() -> str | None:
    """Return a folder in memory with space for the suites' files, or None.

    Suites create and delete hundreds of thousands of small files, which a disk can make slower than the tests
    themselves.
    """
    folder = Path("/dev/shm")
    if not (folder.is_dir() and os.access(folder, os.W_OK)):
        return None
    available = re.search(r"^MemAvailable: +(\d+) kB", Path("/proc/meminfo").read_text(), re.M)
    free = min(shutil.disk_usage(folder).free, int(available[1]) << 10 if available else 0)
    return str(folder) if free >= TMPFS_FREE else None


def _wait(process: subprocess.Popen[bytes]) -> tuple[int, float]:
    """Wait for a process.

    Return its exit status and the processor time that it and its children took.
    """
    if not hasattr(os, "wait4"):
        try:
            return process.wait(TIMEOUT), 0.0
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise TimeoutError from None
    expired = threading.Event()

    def kill() -> None:
        expired.set()
        os.killpg(process.pid, signal.SIGKILL)

    timer = threading.Timer(TIMEOUT, kill)
    timer.daemon = True
    timer.start()
    _, status, usage = os.wait4(process.pid, 0)
    timer.cancel()
    process.returncode = os.waitstatus_to_exitcode(status)
    if expired.is_set():
        raise TimeoutError
    return process.returncode, usage.ru_utime + usage.ru_stime


def _line(result: Result) -> str:
    counts = result.counts
    text = "ok" if not counts.failed else "FAILED"
    if result.suite.group != "lint":
        text += f", {counts.passed} passed" + (f", {counts.failed} failed" if counts.failed else "")
        text += f", {counts.skipped} skipped" if counts.skipped else ""
    text += f" ({result.problem})" if result.problem else ""
    return f"  {result.suite.name:<12} {result.seconds:6.1f} s {result.cpu:6.1f} s CPU  {text}"


def select(names: list[str]) -> list[Suite]:
    """Return the suites with these names or groups.

    Without names: the tests of a normal change.
    """
    choices = {"all", *(suite.name for suite in SUITES), *(suite.group for suite in SUITES)}
    if unknown := [name for name in names if name not in choices]:
        sys.exit(f"error: unknown suite: {', '.join(unknown)}; choose from {', '.join(sorted(choices))}")
    if names:
        return [suite for suite in SUITES if {"all", suite.name, suite.group} & set(names)]
    return [replace(suite, command=(*suite.command, *suite.quick)) for suite in SUITES if suite.quick is not None]


def main(names: list[str]) -> int:
    """Run the selected suites; return 0 when each ran tests and none failed."""
    suites = select(names)
    interrupt_on_termination()
    LOGS.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    try:
        setup.ensure(tuple(dict.fromkeys(step for suite in suites for step in suite.needs)) or ("python",))
        ready = time.monotonic()
        with Runner() as runner:
            results = runner.run_all(suites)
    except KeyboardInterrupt:
        print("interrupted; all processes of the suites are ended", file=sys.stderr)
        return 130
    failed = [result.suite.name for result in results if result.counts.failed]
    unstable = [result.suite.name for result in results if result.unstable]
    for name in [*unstable, *failed]:
        log = (LOGS / f"{name}.log").read_text(errors="replace").rstrip()
        print(f"\n--- {name} {'-' * (90 - len(name))}\n{log[-20_000:]}")
    total = sum((result.counts for result in results), Counts())
    cpu = sum(result.cpu for result in results)
    took = f"{time.monotonic() - ready:.0f} s ({cpu:.0f} s CPU) after {ready - start:.0f} s of set-up"
    print(f"\n{len(results)} suites in {took}" + (f"; failed: {', '.join(failed)}" if failed else ""))
    if unstable:
        count = sum(result.unstable for result in results)
        print(f"{count} unstable, passed only in the second attempt: {', '.join(unstable)}")
    skipped = f", {total.skipped} skipped" if total.skipped else ""
    print(f"{total.passed} passed, {total.failed} failed{skipped}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
