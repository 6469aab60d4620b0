"""Record a conversation over a table of runs."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import pytest

import smdwidgets
from python.logs.logs import log, scalars
from python.run_table.test_runs import hparams
from python.widgets.transcripts import Recorder, compare
from smdwidgets.run_table import live
from smdwidgets.widgets import request_handler

#: Long ago, so that a log without new data has ended.
WRITTEN = 1.7e9


def write(root: Path, lr: float, seed: int, steps: int = 40) -> None:
    """Write a run whose loss falls to lr + seed / 100; the first one becomes NaN."""
    losses = [lr + seed / 100 + math.exp(-step / 8) for step in range(steps)]
    if lr == 0.1 and seed == 0:
        losses[15:] = [math.nan] * len(losses[15:])
    content = hparams(lr=lr, seed=float(seed), optimizer="adam")
    content += scalars(
        {"train/loss": losses, "val/acc": [0.5 if math.isnan(loss) else 1 - loss / 4 for loss in losses]}
    )
    run = root / f"lr_{lr}" / f"seed_{seed}"
    log(run, content)
    for file in run.iterdir():
        os.utime(file, (WRITTEN, WRITTEN))


def test_runs_transcript(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "runs"
    for lr in (0.1, 0.01, 0.001):
        for seed in range(4):
            write(root, lr, seed, steps=40 if seed else 25)
    (root / "damaged").mkdir()
    damaged = root / "damaged" / "events.out.tfevents.1.host"
    damaged.write_bytes(b"\x18\0\0\0\0\0\0\0 no record")
    os.utime(damaged, (WRITTEN, WRITTEN))
    monkeypatch.setattr(request_handler.poller, "add", lambda widget: None)  # `news` polls
    monkeypatch.setattr(request_handler, "HEARTBEAT", 1e9)
    monkeypatch.setattr(live.LiveTable, "check", lambda table: None)  # the test does the work of the thread
    widget = smdwidgets.explore(smdwidgets.runs(root, cache=False), table=True)
    table: Any = widget.live_table
    recorder = Recorder(widget)
    try:
        recorder.exchange("hello", protocol=1, again=False)
        recorder.exchange("runs", tag="val/acc")
        recorder.exchange("runs", tag="train/loss")
        recorder.exchange("runs_work", do="diagnose", runs=[0, 1])
        table._diagnose()
        recorder.news()
        recorder.exchange("runs_work", do="stop")
        recorder.exchange("runs_work", do="read")
        recorder.exchange("open", run=1)
        recorder.exchange("open", run=99)
        write(root, 0.001, 1, steps=50)
        table._next_look = 0.0
        table._work()
        recorder.news()
    finally:
        widget.close()
    compare("runs", recorder.exchanges)
