"""Run scripts with and without the launcher, in separate processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import smdwidgets

#: The package under test, which is not installed in every environment.
PACKAGE = str(Path(smdwidgets.__file__).parents[1])
FAKES = Path(__file__).parent


@dataclass(frozen=True)
class Done:
    """How a process ended, and what it printed."""

    code: int
    out: str
    err: str

    @property
    def said(self) -> list[str]:
        """The lines that the launcher printed."""
        return [line.removeprefix("smdwidgets: ") for line in self.err.splitlines() if line.startswith("smdwidgets: ")]

    @property
    def own_err(self) -> str:
        """What the script printed on standard error."""
        return "".join(line for line in self.err.splitlines(True) if not line.startswith("smdwidgets: "))


class Place:
    """A directory in which scripts run.

    Args:
        folder: the directory.
        path: further entries of PYTHONPATH.
    """

    def __init__(self, folder: Path, *path: Path) -> None:
        self.folder = folder
        self._path = [PACKAGE, *map(str, path)]

    def write(self, name: str, text: str) -> Path:
        """Write a file."""
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return file

    def python(self, *words: object, env: Mapping[str, str] | None = None) -> Done:
        """Run Python with these arguments."""
        return self.command(sys.executable, *words, env=env)

    def run(self, *words: object, env: Mapping[str, str] | None = None) -> Done:
        """Run `smdwidgets run` with these arguments."""
        return self.python("-m", "smdwidgets", "run", *words, env=env)

    def command(self, *words: object, env: Mapping[str, str] | None = None) -> Done:
        """Run a command."""
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("SMDWIDGETS_")}
        variables = {**inherited, "PYTHONPATH": os.pathsep.join(self._path), **(env or {})}
        done = subprocess.run(
            [str(word) for word in words],
            cwd=self.folder,
            env=variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)
