"""A terminal shows colours and the course of the loss; a pipe gets plain text."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from smdwidgets.numpy import Hook

pty = pytest.importorskip("pty")  # not on Windows


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("terminal") / "run"
    with Hook(str(root), plan=False) as hook:
        for step in range(40):
            loss = np.float32(2 - step / 40 if step < 30 else np.nan)
            hook.save_tensor("loss", loss, "losses")
            hook.step()
    return root


def in_terminal(run: Path, **variables: str) -> str:
    """Return what `diagnose` prints on a terminal."""
    leader, follower = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "PYTHONIOENCODING": "utf-8", **variables}
    if "NO_COLOR" not in variables:
        environment.pop("NO_COLOR", None)
    command = [sys.executable, "-m", "smdwidgets", "diagnose", str(run)]
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
        assert process.wait() == 1
    os.close(leader)
    return said.decode("utf-8").replace("\r\n", "\n")


def test_a_terminal_shows_colour_and_the_course_of_the_loss(run):
    said = in_terminal(run)
    first = said.splitlines()[0]
    assert first.startswith("loss  █")
    assert "!" in first
    assert first.endswith("2 → nan")
    assert "\x1b[31m1. " in said


@pytest.mark.parametrize("variables", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_a_terminal_without_colour_gets_none(run, variables):
    assert "\x1b" not in in_terminal(run, **variables)


def test_a_terminal_without_unicode_gets_ascii(run):
    first = in_terminal(run, PYTHONIOENCODING="ascii").splitlines()[0]
    assert first.isascii()
    assert first.endswith("2 -> nan")


def test_a_pipe_gets_plain_text(run):
    command = [sys.executable, "-m", "smdwidgets", "diagnose", str(run)]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    assert "\x1b" not in said
    assert not said.startswith("loss  ")
