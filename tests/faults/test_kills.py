"""Kill the writing process repeatedly while a reader polls the run.

No step is lost, incomplete or repeated.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from faults import campaign
from smdwidgets import create_trial
from smdwidgets.trials import Trial

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="requires fork and SIGKILL")

#: Kills per run; a resumed run becomes slow, because resuming reads all steps.
OF_A_RUN = 40


@pytest.fixture
def writers() -> Iterator[subprocess.Popen[str]]:
    with campaign.writer_process("writer.py") as process:
        yield process


class Reader:
    """Polls a run, and checks each step once, when it first appears."""

    def __init__(self, root: Path, counts: Counter[str]) -> None:
        self.root = root
        self.counts = counts
        self.trial: Trial | None = None
        self.seen: list[int] = []

    def poll(self) -> None:
        if self.trial is None:
            if not (self.root / "collections").exists():
                return
            self.trial = create_trial(self.root)
        steps = self.trial.steps(show_incomplete_steps=True)
        assert steps[: len(self.seen)] == self.seen, "a step went, or came before others"
        for step in steps[len(self.seen) :]:
            x, loss = self.trial.tensor("x").value(step), self.trial.tensor("scalar/loss").value(step)
            assert (x == step).all(), step
            assert loss == step
            self.counts["steps seen"] += 1
        assert len(set(steps)) == len(steps)
        self.seen = steps

    def finish(self, known: Path) -> None:
        """All recorded steps are readable, also in a newly opened trial."""
        self.poll()
        acknowledged = {int(line) for line in known.read_text().split()} if known.exists() else set()
        assert self.seen == list(range(len(self.seen)))
        assert acknowledged <= set(self.seen)
        if self.trial is None:
            return
        assert self.trial.problems() == []
        self.trial.close()
        with create_trial(self.root) as again:
            assert again.steps(show_incomplete_steps=True) == self.seen
            table = again.values("scalar/loss")
            assert not table.errors
            assert table["value"].ravel().tolist() == self.seen
        self.read_log(acknowledged)

    def read_log(self, acknowledged: set[int]) -> None:
        """The TensorBoard log of the same hook.

        The last record of each file may be incomplete.
        """
        with create_trial(self.root / "tensorboard", live=False) as log:
            losses = {}
            for mode in ("TRAIN", "EVAL"):
                if "scalar/loss" in log.tensor_names(mode=mode):
                    losses |= log.tensor("scalar/loss").values(mode)
        assert acknowledged <= set(losses)
        assert all(float(value) == np.float32(step) for step, value in losses.items())
        self.counts["log records"] += len(losses)


def kill_one(writers: subprocess.Popen[str], reader: Reader, known: Path, seed: str, after: float) -> None:
    assert writers.stdin is not None
    assert writers.stdout is not None
    print(reader.root, known, seed, file=writers.stdin, flush=True)
    child = int(writers.stdout.readline())
    deadline = time.monotonic() + after
    while time.monotonic() < deadline:
        reader.poll()
    os.kill(child, signal.SIGKILL)
    assert writers.stdout.readline().strip() == f"signal {int(signal.SIGKILL)}"


def test_reader_polls_a_writer_that_is_killed(writers: subprocess.Popen[str], tmp_path: Path) -> None:
    chance = campaign.rng("kills")
    kills = campaign.size(30, 1000)
    with campaign.tally("kills") as counts:
        for first in range(0, kills, OF_A_RUN):
            known = tmp_path / f"known{first}"
            reader = Reader(tmp_path / f"run{first}", counts)
            for kill in range(first, min(first + OF_A_RUN, kills)):
                # From the start of the process to some time into its writing.
                after = chance.choice([0.02, 0.1, 0.3]) * chance.random()
                kill_one(writers, reader, known, f"{campaign.SEED}-{kill}", after)
                counts["kills"] += 1
                reader.poll()
            reader.finish(known)
    assert counts["steps seen"]
