"""Trains for real with each deep-learning framework: `python tools/frameworks.py [NAME ...]`.

tests/frameworks/NAME.txt lists what the framework needs, tests/frameworks/test_NAME*.py train with it; NAME with a number is
an older release, held to the same tests. Each has a virtual environment of its own, .venv-NAME, because they weigh gigabytes
and disagree; the checkout's package is what they import.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import setup
from steps import ROOT, Step, StepError, run

TESTS = ROOT / "tests" / "frameworks"
PACKAGE = ROOT / "python"


def environment(name: str) -> Step:
    """The virtual environment of a framework."""
    venv = ROOT / f".venv-{name}"
    needed = [*setup.dependencies(), *setup.pins("pytest", "pytest-timeout", "hypothesis", "sybil")]

    def make() -> None:
        setup.make_venv(venv)
        run(setup.python_of(venv), "-m", "pip", "install", "--quiet", "-r", TESTS / f"{name}.txt", *needed)

    return Step(
        f"framework-{name}",
        make,
        made_from=(TESTS / f"{name}.txt",),
        makes=(setup.python_of(venv),),
        settings=tuple(needed),
    )


def tests_of(name: str) -> list[Path]:
    """The test files of a framework, the same for all its releases."""
    return sorted(TESTS.glob(f"test_{name.rstrip('0123456789')}*.py"))


def main(names: list[str]) -> int:
    """Runs the tests of these frameworks, or of all; 1 when one failed. With --only-environment it makes theirs, no more."""
    only_environments = "--only-environment" in names
    names = [name for name in names if name != "--only-environment"]
    known = sorted(file.stem for file in TESTS.glob("*.txt"))
    if unknown := [name for name in names if name not in known]:
        sys.exit(f"error: no such framework: {', '.join(unknown)} (there are {', '.join(known)})")
    if only_environments:
        for name in names:
            environment(name).ensure()
        return 0
    setup.ensure(["python", "front-end", "extension", "peers"])  # smdebug, which reads the runs too
    failed = []
    for name in names or known:
        print(f"==> {name}", flush=True)
        try:
            environment(name).ensure()
        except StepError as error:
            sys.exit(f"error: {error}")
        # One abi3 extension module serves every environment of this Python.
        env = {**os.environ, "PYTHONPATH": str(PACKAGE)}
        # A framework's own warnings are its own affair.
        tests = ["-m", "pytest", "-q", "-W", "default", *map(str, tests_of(name))]
        command = [str(setup.python_of(ROOT / f".venv-{name}")), *tests]
        if subprocess.run(command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, check=False).returncode:
            failed.append(name)
    ran = names or known
    print(f"{len(ran) - len(failed)} passed, {len(failed)} failed" + (f": {', '.join(failed)}" if failed else ""))
    return 1 if failed or not ran else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
