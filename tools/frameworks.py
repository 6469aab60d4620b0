"""Train with each framework: `python tools/frameworks.py [NAME ...]`.

tests/frameworks/NAME.txt lists the framework's requirements, tests/frameworks/test_NAME*.py trains with it. A NAME that
ends in a number is an older release, run against the same tests. Each has its own virtual environment, .venv-NAME,
because their requirements conflict. They import the package of this checkout.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import setup
import steps
from steps import ROOT, SetupError, Step
from uv import PROJECT, UV, make_venv, pins, python_of

TESTS = ROOT / "tests" / "frameworks"
PACKAGE = ROOT / "python"
#: What tests of a framework need that open a page on its kernel.
IN_JUPYTERLAB = {"torch": ("ipykernel", "jupyterlab", "playwright")}


def venv_of(name: str) -> Path:
    """Return the folder of a framework's virtual environment."""
    return ROOT / f".venv-{name}"


def environment(name: str) -> Step:
    """Return the step that creates a framework's virtual environment."""
    packages = ("pytest", "pytest-timeout", "hypothesis", "sybil", *IN_JUPYTERLAB.get(name, ()))
    common = [*PROJECT["project"]["dependencies"], *pins(*packages)]
    requirements = TESTS / f"{name}.txt"
    return Step(
        f"framework-{name}",
        lambda: make_venv(venv_of(name), "-r", requirements, *common),
        inputs=(requirements,),
        outputs=(python_of(venv_of(name)),),
        requires=(UV,),
        key=tuple(common),
    )


def tests_of(name: str) -> list[Path]:
    """Return the test files of a framework, the same for all its releases."""
    return sorted(TESTS.glob(f"test_{name.rstrip('0123456789')}*.py"))


def main(names: list[str]) -> int:
    """Run the tests of these frameworks, all by default; return 1 when one fails.

    With --only-environment, create the environments and run no tests.
    """
    only_environments = "--only-environment" in names
    names = [name for name in names if name != "--only-environment"]
    known = sorted(file.stem for file in TESTS.glob("*.txt"))
    if unknown := [name for name in names if name not in known]:
        sys.exit(f"error: unknown framework: {', '.join(unknown)}; choose from {', '.join(known)}")
    names = names or known
    if not only_environments:
        setup.ensure((*setup.DEFAULT, "peers"))  # tests compare with smdebug, which is in .venv-peers
    failed = []
    for name in names:
        print(f"==> {name}", flush=True)
        try:
            steps.ensure(environment(name))
        except SetupError as error:
            sys.exit(f"error: {error}")
        if only_environments:
            continue
        # One abi3 extension module serves every environment of this Python.
        env = {**os.environ, "PYTHONPATH": str(PACKAGE)}
        # Warnings of a framework are not errors here.
        command = [python_of(venv_of(name)), "-m", "pytest", "-q", "-W", "default", *tests_of(name)]
        if subprocess.run(command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, check=False).returncode:
            failed.append(name)
    if not only_environments:
        print(f"{len(names) - len(failed)} passed, {len(failed)} failed" + (f": {', '.join(failed)}" if failed else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
