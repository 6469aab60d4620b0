"""The text and HTML of trials and tensors, which is safe for all names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from python.trials import golden, runs
from smdwidgets import create_trial

HOSTILE = "<img src=x onerror=alert(1)>\x1b[2J'\"&"


def test_most_important_facts_come_first(tmp_path: Path) -> None:
    trial = create_trial(golden.run("pt_modes", tmp_path))
    text = repr(trial)
    for part in ("LocalTrial 'run'", "ended", "11 steps, 0 to 15", "TRAIN: ", "EVAL: ", "19: ", "worker_0", "losses"):
        assert part in text
    assert "float32 (" in repr(trial.tensor("Net_fc1.weight"))


def test_display_reads_and_waits_for_nothing(tmp_path: Path) -> None:
    trial = create_trial(runs.run(tmp_path, range(2), ended=False), lazy=True)
    runs.step(tmp_path, 2)
    assert "running" in repr(trial)
    assert "2 steps" in repr(trial)
    assert "not read yet" in repr(trial)
    assert len(trial.reader.run.catalog.unread()) == 2


@pytest.mark.parametrize("show", ["__repr__", "_repr_html_"])
def test_names_are_escaped(tmp_path: Path, show: str) -> None:
    runs.collections(tmp_path)
    runs.step(tmp_path, 0, {HOSTILE: np.float32(1), "long" * 100_000: np.float32(2)})
    trial = create_trial(runs.end(tmp_path), name=HOSTILE)
    for what in (trial, trial.tensor(HOSTILE), trial.tensor("long" * 100_000)):
        text = getattr(what, show)()
        assert len(text) < 3000
        assert "\x1b" not in text
        if show == "_repr_html_":
            assert "<img" not in text


def test_damaged_tensor_is_displayed(tmp_path: Path) -> None:
    trial = create_trial(runs.run(tmp_path, range(1)))
    event = tmp_path / "events/000000000000/000000000000_worker_0.tfevents"
    event.write_bytes(event.read_bytes()[:20])
    assert "unreadable" in repr(trial.tensor("x"))
    assert "truncated data" in trial.tensor("x")._repr_html_()
