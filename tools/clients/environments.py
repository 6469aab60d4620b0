"""Virtual environments of the clients, and how they are made."""

from __future__ import annotations

from pathlib import Path

import frameworks
import setup
import steps
from steps import ROOT, Step
from uv import UV, make_venv, python_of

REQUIREMENTS = ROOT / "tests" / "clients"


def _own(name: str) -> Step:
    """An environment that only clients use: `.venv-clients-NAME`.

    Its requirements are in tests/clients/NAME.txt.
    """
    venv, needed = ROOT / f".venv-clients-{name}", REQUIREMENTS / f"{name}.txt"
    return Step(
        f"clients-{name}",
        lambda: make_venv(venv, "-r", needed),
        inputs=(needed,),
        outputs=(python_of(venv),),
        requires=(UV,),
    )


class Environments:
    """Finds the interpreter of an environment by name, in one of several folders."""

    def __init__(self, folders: list[Path], named: dict[str, Path]) -> None:
        self._folders = folders
        self._named = named

    def python(self, name: str) -> Path | None:
        """The interpreter of the environment `.venv-NAME`; None if it is not installed."""
        if name in self._named or "*" in self._named:
            return self._named.get(name) or self._named["*"]
        found = (python_of(folder / f".venv-{name}") for folder in self._folders)
        return next((python for python in found if python.exists()), None)


def install(names: set[str]) -> None:
    """Create the environments that are missing or outdated in this checkout."""
    setup.ensure(["python", "front-end", "extension", "peers"])
    for name in sorted(names):
        own = name.removeprefix("clients-")
        steps.ensure(_own(own) if own != name else frameworks.environment(name))
