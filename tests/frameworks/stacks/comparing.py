"""Compare a training with the same one without a hook, and with its run."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np

from frameworks.stacks.running import Runner
from frameworks.stacks.table import STACKS, Outcome
from smdwidgets import Trial, create_trial, modes


def check(name: str, runner: Runner, folder: Path) -> None:
    """Assert that the hook leaves a training as it is, and records it."""
    runner.run(name, folder)
    stack = STACKS[name]
    for rank in range(stack.workers):
        plain, hooked = (_read(folder / f"{way}-{rank}.pickle") for way in ("plain", "hooked"))
        assert hooked.losses == plain.losses
        assert hooked.weights.keys() == plain.weights.keys()
        assert [key for key, value in plain.weights.items() if hooked.weights[key] != value] == []
        assert hooked.random == plain.random
        assert "recording failed" not in (folder / f"hooked-{rank}.log").read_text(encoding="utf-8")
    first = _read(folder / "hooked-0.pickle")
    with create_trial(folder / "run") as trial:
        assert trial.problems() == []
        _check_notes(trial, stack.notes)
        losses = {name: np.frombuffer(series) for name, series in first.losses.items()}
        updates = stack.updates or len(next(iter(losses.values())))
        assert trial.steps(mode=modes.TRAIN) == list(range(updates))
        if stack.losses:
            _check_losses(trial, losses)
        _check_weights(trial, first, stack.first)
        if stack.gradients:
            assert [name for name in first.gradients if not trial.tensor(name).steps(mode=modes.TRAIN)] == []


def _read(file: Path) -> Outcome:
    return pickle.loads(file.read_bytes())


def _check_notes(trial: Trial, expected: tuple[str, ...]) -> None:
    texts = [text for _, text in trial.notes()]
    assert [text for text in texts if not any(words in text for words in expected)] == []


def _check_losses(trial: Trial, losses: dict[str, np.ndarray]) -> None:
    for name, expected in losses.items():
        assert name in trial.tensor_names(collection="losses")
        tensor = trial.tensor(name)
        assert tensor.steps(mode=modes.TRAIN) == list(range(len(expected)))
        found = [np.ravel(tensor.value(step, mode=modes.TRAIN))[0] for step in range(len(expected))]
        # A mean of micro-batches is computed in another order by the script.
        np.testing.assert_allclose(found, expected.astype("f4"), rtol=1e-6 if name.endswith("_mean") else 0)


def _check_weights(trial: Trial, outcome: Outcome, step: int) -> None:
    missing = sorted(outcome.start.keys() - set(trial.tensor_names()))
    assert missing == []
    assert outcome.start
    for name, expected in outcome.start.items():
        found = trial.tensor(name).value(step, mode=modes.TRAIN)
        if step == 0:
            assert found.tobytes() == expected.tobytes(), name
