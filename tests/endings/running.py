"""Run a training script to its end and read its run with this package and smdebug."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np

from endings.scripts import ENDS, STEPS, script
from smdwidgets import create_trial
from smdwidgets.run_end import END_FILE

ROOT = Path(__file__).resolve().parents[2]
PEERS = ROOT / ".venv-peers" / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


class Smdebug:
    """smdebug 1.0.34 in a separate process, which reads many runs."""

    def __init__(self) -> None:
        env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        env |= {"SMDEBUG_LOG_LEVEL": "off", "SMDEBUG_TRAINING_END_DELAY_REFRESH": "0"}
        program = Path(__file__).with_name("smdebug_reader.py")
        self._process = subprocess.Popen(
            [PEERS, "-W", "ignore", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
        )

    def read(self, run: Path) -> dict[str, object]:
        """Return the steps, whether all are loaded, and the last value of a tensor."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{run}\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"smdebug could not read {run}"
        return json.loads(line)

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


def run_script(text: str, folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a script from a file in its own process, without a terminal."""
    path = folder / "train.py"
    path.write_text(text, encoding="utf-8")
    command = [sys.executable, str(path), *map(str, arguments)]
    return subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
        cwd=folder,
        preexec_fn=None if os.name == "nt" else default_signals,
    )


def default_signals() -> None:
    """Handle signals as in a terminal.

    A test run in the background ignores some of them.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def check(framework: str, hold: str, end: str, folder: Path, smdebug: Smdebug) -> None:
    """Assert that a script leaves a complete run, which both packages read alike."""
    run = folder / "run"
    done = run_script(script(framework, hold, end), folder, run)
    expected = ENDS[end]
    assert done.returncode == expected.exit, done.stderr

    with create_trial(run) as trial:
        rounds = 0
        while not trial.loaded_all_steps and rounds < 100:
            trial.refresh_data()
            rounds += 1
        assert trial.steps() == list(range(STEPS)), done.stderr
        marker = trial.run_end()
    how = expected.with_block if hold == "a with block" and expected.with_block else expected.marker
    assert (None if marker is None else str(marker)) == how
    assert (run / END_FILE).exists() == (how is not None)
    assert not [*run.rglob("*.tmp")]

    theirs = smdebug.read(run)
    assert theirs["steps"] == list(range(STEPS))
    assert theirs["ended"] == (how is not None)
    with create_trial(run) as trial:
        ours = trial.tensor(theirs["name"]).value(STEPS - 1)
    assert np.asarray(ours).ravel().tolist() == theirs["last"]
