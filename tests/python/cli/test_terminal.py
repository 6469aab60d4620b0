"""A terminal shows colours and the course of the loss; a pipe gets plain text."""

from __future__ import annotations

import os
import re
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from smdwidgets.numpy import Hook

pty = pytest.importorskip("pty")  # not on Windows
fcntl = pytest.importorskip("fcntl")
termios = pytest.importorskip("termios")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("terminal") / "run"
    with Hook(str(root), plan=False) as hook:
        for step in range(40):
            loss = np.float32(2 - step / 40 if step < 30 else np.nan)
            hook.save_tensor("loss", loss, "losses")
            hook.step()
    return root


def in_terminal(*words: str | Path, columns: int = 80, code: int = 1, **variables: str) -> str:
    """Return what a command prints on a terminal."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {**os.environ, "TERM": "xterm", "PYTHONIOENCODING": "utf-8", **variables}
    if "NO_COLOR" not in variables:
        environment.pop("NO_COLOR", None)
    environment.pop("COLUMNS", None)
    command = [sys.executable, "-m", "smdwidgets", *map(str, words)]
    with subprocess.Popen(
        command, stdin=follower, stdout=follower, stderr=subprocess.DEVNULL, env=environment
    ) as process:
        os.close(follower)
        said = b""
        while True:
            try:
                part = os.read(leader, 4096)
            except OSError:  # the process has closed the terminal
                break
            if not part:
                break
            said += part
        assert process.wait() == code
    os.close(leader)
    return said.decode("utf-8").replace("\r\n", "\n")


def test_a_terminal_shows_colour_and_the_course_of_the_loss(run):
    said = in_terminal("diagnose", run)
    first = said.splitlines()[0]
    assert first.startswith("loss  █")
    assert "!" in first
    assert first.endswith("2 → nan")
    assert "\x1b[31m1. " in said


@pytest.mark.parametrize("variables", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
@pytest.mark.slow
def test_a_terminal_without_colour_gets_none(run, variables):
    assert "\x1b" not in in_terminal("diagnose", run, **variables)


def test_a_terminal_without_unicode_gets_ascii(run):
    first = in_terminal("diagnose", run, PYTHONIOENCODING="ascii").splitlines()[0]
    assert first.isascii()
    assert first.endswith("2 -> nan")


def test_a_pipe_gets_plain_text(run):
    command = [sys.executable, "-m", "smdwidgets", "diagnose", str(run)]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    assert "\x1b" not in said
    assert not said.startswith("loss  ")


@pytest.mark.parametrize(("command", "code"), [("diagnose", 1), ("explain", 0)])
@pytest.mark.slow
def test_lines_are_as_long_as_the_terminal_is_wide(run, command, code):
    said = in_terminal(command, run if command == "diagnose" else "frozen", columns=50, code=code)
    assert 40 < max(len(re.sub(r"\x1b\[\d+m", "", line)) for line in said.splitlines()) <= 50


@pytest.mark.parametrize(
    ("words", "code", "coloured"),
    [
        (("check", "--rules", "LossNotDecreasing"), 1, "\x1b[31m✗\x1b[0m LossNotDecreasing"),
        (("verify",), 0, "\x1b[1m\x1b[32mNo faults.\x1b[0m"),
    ],
)
@pytest.mark.slow
def test_commands_colour_what_they_found(run, words, code, coloured):
    assert coloured in in_terminal(words[0], run, *words[1:], code=code)
