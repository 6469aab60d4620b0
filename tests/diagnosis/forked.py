"""Record programs, each in a fork of a process that has imported a framework.

Usage: `python tests/diagnosis/forked.py SECONDS`, by `exam.py --jobs`. A program runs as under `smdwidgets run`. Each
line of standard input is a JSON list: a program, and the folder that its run goes to. One line is the answer, when the
program has ended: its error, or what the recorder said last, as JSON. A program is ended that takes longer than
SECONDS. The import of a framework takes longer than most programs of an exam.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import runpy
import signal
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path

#: Output of a program, in the folder of its run.
OUTPUT, ERRORS = "out.txt", "err.txt"


def main() -> None:
    """Record the programs of standard input."""
    longest = float(sys.argv[1])
    with suppress(ImportError):  # programs of other frameworks import them themselves
        import torch
        import torch._dynamo  # the first optimizer imports it

        torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], 0.1)
    with suppress(ImportError):
        importlib.import_module("tensorflow")  # its threads begin with the first operation, in the fork
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    for line in sys.stdin:
        program, folder = map(Path, json.loads(line))
        process = os.fork()
        if not process:  # it ends as a Python process does, after the functions of `atexit`
            _run(program, folder)
            return
        answers.write(json.dumps(_wait(process, longest) or _reason(folder / ERRORS)) + "\n")
        answers.flush()


def _run(program: Path, folder: Path) -> None:
    """Run a program in this process, armed for a run in a folder."""
    from smdwidgets.launch.command import BOOTSTRAP, environment
    from smdwidgets.launch.options import Options

    os.environ.update(environment(Options(out=str(folder / "run")).or_else(Options.of_environment()).check()))
    for name, descriptor in ((os.devnull, 0), (folder / OUTPUT, 1), (folder / ERRORS, 2)):
        opened = os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(opened, descriptor)
    os.chdir(folder)
    sys.path[0] = str(BOOTSTRAP)
    import _smdwidgets_finder  # type: ignore[import-not-found, unused-ignore]

    _smdwidgets_finder.install()
    sys.path[0], sys.argv = str(program.parent), [str(program)]
    try:
        runpy.run_path(str(program), run_name="__main__")
    except SystemExit:
        pass
    except BaseException:
        traceback.print_exc()


def _wait(process: int, longest: float) -> str:
    """Wait for a process; return why it was ended."""
    begin = time.monotonic()
    while not os.waitpid(process, os.WNOHANG)[0]:
        if time.monotonic() - begin > longest:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
            return f"longer than {longest:g} s"
        time.sleep(0.02)
    return ""


def _reason(path: Path) -> str:
    return reason_in(path.read_text(encoding="utf-8", errors="replace"))


def reason_in(text: str) -> str:
    """Return the error that ended a program, or its last message.

    >>> reason_in("Traceback ...\\nKeyError: 'x'\\nsmdwidgets: nothing was recorded\\n")
    "KeyError: 'x'"
    """
    lines = text.strip().splitlines()
    errors = [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b", line)]
    return (errors or lines or [""])[-1]


if __name__ == "__main__":
    main()
