"""Kill the process that appends statistics, while a reader follows.

No row is torn, lost or read twice.
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
from smdwidgets import _core

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="requires fork and SIGKILL")

#: Kills per run: each of them starts a segment, and the reader reads all rows at every poll.
OF_A_RUN = 20


@pytest.fixture
def writers() -> Iterator[subprocess.Popen[str]]:
    with campaign.writer_process("statistics_writer.py") as process:
        yield process


class Reader:
    """Follows the statistics of a run, and checks all rows at every poll."""

    def __init__(self, root: Path, counts: Counter[str]) -> None:
        self.root = root
        self.counts = counts
        self.files = _core.Files(root)
        self.reader = _core.StatisticsReader()
        self.steps = 0

    def poll(self) -> None:
        keys = [str(path.relative_to(self.root)) for path in (self.root / "statistics").glob("*/*")]
        if not self.reader.refresh(self.files, keys):
            return
        table = self.reader.read(self.files)
        assert table["error"] == [], "a batch that counts is damaged"
        steps = table["step"]
        # Rows of equal tensor and step are read once, so a repeated one would be missing here.
        assert self.reader.size()[1] == len(steps)
        for column in ("mode_step", "count", "nan", "zeros", "min", "max", "mean", "std", "l1", "update"):
            np.testing.assert_array_equal(table[column], steps)
        last = int(steps.max())
        assert last + 1 >= self.steps, "a step that was read is missing"
        self.steps = last + 1
        # A step has all its rows: batches end between steps.
        rows = np.bincount(steps, minlength=self.steps)
        np.testing.assert_array_equal(rows, 1 + np.arange(self.steps) % 50)
        number = np.array([int(name.removeprefix("tensor ")) for name in table["name"]])
        assert (number <= steps % 50).all()
        self.counts["polls with new rows"] += 1

    def finish(self, known: Path) -> None:
        """A new reader reads the same, and so does pyarrow up to the last commit record."""
        self.poll()
        flushed = [int(line) for line in known.read_text().split()] if known.exists() else []
        assert max(flushed, default=-1) < self.steps
        again = Reader(self.root, self.counts)
        again.poll()
        assert again.steps == self.steps
        assert not again.reader.verify(again.files)
        assert not again.reader.problems()
        torn = again.reader.dropped(again.files)
        self.counts["torn tails"] += len(torn)
        self.counts["rows"] += again.reader.size()[1]
        pyarrow = pytest.importorskip("pyarrow")
        # Its threads may wait for each other where tests before have forked.
        alone = pyarrow.ipc.IpcReadOptions(use_threads=False)
        dropped = {key: count for key, count, _ in torn}
        rows = 0
        for stream in (self.root / "statistics").glob("*/*.arrows"):
            content, commit = stream.read_bytes(), stream.with_suffix(".commit")
            if commits := commit.stat().st_size // 48 if commit.exists() else 0:
                whole = content[: len(content) - dropped.get(str(stream.relative_to(self.root)), 0)]
                with pyarrow.ipc.open_stream(pyarrow.py_buffer(whole), options=alone) as batches:
                    table = batches.read_all()
                table.validate(full=True)
                rows += table.num_rows
                self.counts["batches"] += commits
        assert rows == again.reader.size()[1]


def test_killed_writer_leaves_whole_batches(writers: subprocess.Popen[str], tmp_path: Path) -> None:
    assert writers.stdin is not None
    assert writers.stdout is not None
    chance = campaign.rng("kill statistics")
    kills = campaign.size(40, 1000)
    with campaign.tally("kills of statistics") as counts:
        for run in range(0, kills, OF_A_RUN):
            root, known = tmp_path / f"run {run}", tmp_path / f"known {run}"
            root.mkdir()
            reader = Reader(root, counts)
            for kill in range(min(OF_A_RUN, kills - run)):
                writers.stdin.write(f"{root}\t{known}\t{reader.steps}\t{campaign.SEED} {run} {kill}\n")
                writers.stdin.flush()
                child = int(writers.stdout.readline())
                until = time.monotonic() + chance.uniform(0, 0.04)
                while time.monotonic() < until:
                    reader.poll()
                os.kill(child, signal.SIGKILL)
                assert int(writers.stdout.readline()) == signal.SIGKILL, "the writer failed by itself"
                reader.poll()
                counts["kills"] += 1
            reader.finish(known)
    assert counts["kills"] == kills
    assert counts["rows"] > 0
