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


def test_a_curriculum_that_comes_to_harder_samples() -> None:
    at = np.arange(120)
    loss = np.where(at < 40, 0.7 + 2.5 * np.exp(-at / 5), 1.9 + 0.5 * np.exp(-(at - 40) / 20)) * noise(120)
    better = np.array([2.9, 2.7, 2.5, 2.35, 2.25, 2.18, 2.1, 2.07])
    steps = 15 * np.arange(1, 9)
    assert kinds_of({"loss": (at, loss), "eval_loss": (steps, better)}) == []
    worse = np.array([2.9, 2.7, 3.3, 3.5, 3.4, 3.45, 3.5, 3.5])
    assert "diverged" in kinds_of({"loss": (at, loss), "eval_loss": (steps, worse)})
    assert "diverged" in kinds_of({"loss": (at, loss)})


def test_answers_of_which_many_reach_the_limit_from_the_first_on() -> None:
    at = np.arange(200)
    reward = 0.2 + 0.8 / (1 + np.exp(-(at - 90) / 15)) + 0.02 * RNG.standard_normal(200)
    rises = 1 / (1 + np.exp(-(at - 60) / 12))
    entropy = 1.5 - 0.8 * rises
    run = {
        "reward": (at, reward),
        "entropy": (at, entropy),
        "completions/mean_length": (at, 190 + 66 * rises),
        "completions/clipped_ratio": (at, 0.42 + 0.56 * rises),
    }
    assert kinds_of(run) == []
    run["completions/mean_length"] = (at, 140 + 116 * rises)
    assert kinds_of(run) == ["length_explosion"]


def test_an_accuracy_of_next_to_nothing() -> None:
    run = {"val_loss": ([0, 1], [0.5, 0.5]), "val_accuracy": ([0, 1], [5e-324, 5e-324])}
    assert kinds_of(run) == []
