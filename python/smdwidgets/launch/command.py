"""Start a command so that the trainings of all its Python processes are recorded."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from smdwidgets._text import shown
from smdwidgets.exceptions import SMDebugValueError
from smdwidgets.launch.directories import is_free
from smdwidgets.launch.options import Options

__all__ = ["BOOTSTRAP", "after_separator", "command_line", "default_out", "environment", "start"]

#: The directory whose `sitecustomize` arms a process.
BOOTSTRAP = Path(__file__).parent / "bootstrap"
_PYTHON_FILES = (".py", ".pyw", ".pyc", ".pyz", ".zip")


def command_line(words: Sequence[str], module: Sequence[str] = ()) -> list[str]:
    """Return the command that runs a script, a module or a program.

    Args:
        words: a Python file and its arguments, or a program such as ``torchrun`` and its arguments.
        module: a module, and its arguments, as after ``python -m``.
    """
    if module:
        return [sys.executable, "-m", *module]
    words = after_separator(words)
    if not words:
        raise SMDebugValueError("no script was given; usage: smdwidgets run [OPTIONS] train.py [ARGUMENTS]")
    script = Path(words[0])
    if script.suffix.lower() in _PYTHON_FILES or script.is_dir():
        if not script.exists():
            raise SMDebugValueError(f"script {shown(words[0], 400)} does not exist")
        return [sys.executable, *words]
    if (program := shutil.which(words[0])) is not None:
        return [program, *words[1:]]
    if script.is_file():
        return [sys.executable, *words]
    raise SMDebugValueError(f"{shown(words[0], 400)} is neither a file nor a program on PATH")


def after_separator(words: Sequence[str]) -> list[str]:
    """Return a command without the ``--`` that stands before it.

    >>> after_separator(["--", "python", "train.py", "--", "x"])
    ['python', 'train.py', '--', 'x']
    """
    return list(words[1:] if words[:1] == ["--"] else words)


def default_out(words: Sequence[str], module: Sequence[str] = ()) -> str:
    """Return ``runs/<name of the script>``, with a number if it contains a run.

    >>> default_out(["torchrun", "--nproc-per-node=2", "no-such-folder/train_gan.py", "--lr=0.1"])
    'runs/train_gan'
    """
    words = after_separator(words)
    scripts = [word for word in words if Path(word).suffix.lower() in _PYTHON_FILES]
    named = module[0].rpartition(".")[2] if module else Path(scripts[0] if scripts else words[0]).stem
    base = f"runs/{re.sub(r'[^A-Za-z0-9_.-]+', '-', named).strip('-.') or 'run'}"
    number, path = 1, base
    while not is_free(Path(path)):
        number += 1
        path = f"{base}-{number}"
    return path


def environment(options: Options, inherited: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment variables of the command."""
    earlier = [entry for entry in inherited.get("PYTHONPATH", "").split(os.pathsep) if entry != str(BOOTSTRAP)]
    found = {name: value for name, value in inherited.items() if name != "SMDWIDGETS_LAUNCH"}
    # An empty entry of PYTHONPATH is the working directory; PYTHONPATH that is not set has none.
    path = [str(BOOTSTRAP), *(earlier if inherited.get("PYTHONPATH") else [])]
    return {**found, **options.environment(), "PYTHONPATH": os.pathsep.join(path), "SMDWIDGETS_RUN": "1"}


def start(command: Sequence[str], variables: Mapping[str, str]) -> int:
    """Run a command in place of this process.

    Exit code and signals are those of the command.

    Returns the exit code where a process cannot be replaced.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    if os.name == "nt":
        return subprocess.run(list(command), env=dict(variables), check=False).returncode
    try:
        os.execve(command[0], list(command), dict(variables))
    except OSError as error:
        raise SMDebugValueError(f"cannot run {shown(command[0], 400)}: {error.strerror}") from None
