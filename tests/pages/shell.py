"""Run commands in pages, except those that install something or run without end."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from doctest import ELLIPSIS, OutputChecker
from importlib import metadata
from pathlib import Path

from sybil import Example

ROOT = Path(__file__).resolve().parents[2]
EXIT_CODE = re.compile(r"# .*exit code (\d)")


def run_script(example: Example) -> None:
    """Run each line of an `sh` block.

    A line that ends with another exit status than 0 names it: `# exit code 1`.
    """
    for line in _lines(example.parsed):
        expected = int(found[1]) if (found := EXIT_CODE.search(line)) else 0
        code, said = _run(line)
        assert code == expected, f"`{line}` ended with {code}\n{said}"


def run_session(example: Example) -> None:
    """Run a `console` block and compare the output.

    The lines below a line that begins with `$` are its output; `...` matches any text.
    """
    code = 0
    for command in re.split(r"^\$ ", example.parsed, flags=re.MULTILINE)[1:]:
        line, _, expected = command.partition("\n")
        if line == "echo $?":
            said, code = f"{code}\n", 0
        else:
            assert code == 0, f"the command before `{line}` ended with unexpected exit status {code}"
            code, said = _run(line)
        same = OutputChecker().check_output(expected.rstrip() + "\n", said.rstrip() + "\n", ELLIPSIS)
        assert same, f"`{line}` printed\n{said}\nand not\n{expected}"
    assert code in (0, 1), said


def _lines(script: str) -> list[str]:
    return [line for line in script.replace("\\\n", " ").splitlines() if line.strip() and not line.startswith("#")]


def _run(line: str) -> tuple[int, str]:
    words = shlex.split(line, comments=True)
    if words[0] in ("pip", "make", "npm", "git") or words[:2] == ["smdwidgets", "demo"]:
        _look_at(words)
        return 0, ""
    if words[0] == "smdwidgets":
        words = [sys.executable, "-m", *words]
    elif words[0] == "python":
        words[0] = sys.executable
    environment = {**os.environ, "COLUMNS": "100", "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        words,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        env=environment,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def _look_at(words: list[str]) -> None:
    """Check that a command that installs, builds or waits for Ctrl-C exists.

    Do not run it.
    """
    match words:
        case ["pip", "install", what] if what.startswith(("smdwidgets[", ".[")):
            extras = set(metadata.metadata("smdwidgets").get_all("Provides-Extra") or ())
            assert set(what.partition("[")[2].removesuffix("]").split(",")) <= extras, what
        case ["pip", "install", "." | "smdwidgets"]:
            pass
        case ["make", target, *_]:
            rules = (ROOT / "Makefile").read_text(encoding="utf-8")
            assert re.search(rf"^{re.escape(target)}:", rules, re.MULTILINE), f"no such target: {target}"
        case ["npm", "--prefix", "js", *rest]:
            scripts = json.loads((ROOT / "js" / "package.json").read_text(encoding="utf-8"))["scripts"]
            assert rest[-1] in scripts, rest
        case ["git", "clone", *_]:
            pass
        case ["smdwidgets", *arguments]:
            from smdwidgets import cli

            cli.parser().parse_args(arguments)
        case _:
            raise AssertionError(f"no check is defined for `{' '.join(words)}`")
