"""Faults in logs of small trainings, each beside a healthy one that looks alike."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest

import smdwidgets

RNG = np.random.default_rng(23)


@pytest.fixture(autouse=True)
def noise_of_each_test_alone(monkeypatch) -> None:
    """Make the noise of a test independent of those before it."""
    monkeypatch.setitem(globals(), "RNG", np.random.default_rng(23))


def noise(count: int, size: float = 0.02) -> np.ndarray:
    return 1 + size * RNG.standard_normal(count)


def kinds_of(run) -> list[str]:
    """Return the kinds of the findings of series with steps, without notes."""
    return [one.kind for one in smdwidgets.diagnose(run).findings]


def kinds(every: int = 1, **series: np.ndarray) -> list[str]:
    """Return the same of series with one value for every so many steps; `__` in a name is a slash."""
    return kinds_of({name.replace("__", "/"): (every * np.arange(len(one)), one) for name, one in series.items()})


def of_trainer(folder, rows) -> list[str]:
    """Return the same of the state that Transformers writes."""
    folder.mkdir(exist_ok=True)
    file = folder / "trainer_state.json"
    last = rows[-1]["step"]
    file.write_text(json.dumps({"global_step": last, "max_steps": last, "num_train_epochs": 1, "log_history": rows}))
    os.utime(file, (0, 0))
    return [one.kind for one in smdwidgets.diagnose(folder).findings]


def test_an_accuracy_of_next_to_nothing() -> None:
    run = {"val_loss": ([0, 1], [0.5, 0.5]), "val_accuracy": ([0, 1], [5e-324, 5e-324])}
    assert kinds_of(run) == []
