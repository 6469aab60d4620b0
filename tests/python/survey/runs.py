"""Runs with one planted fault each, for the survey."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from python.widgets.talk import begin, end
from smdwidgets import _core

STEPS = 200
LAYERS = 4
Tensors = dict[str, np.ndarray]


def training(steps: int = STEPS) -> Iterator[Tensors]:
    """Yield the tensors of each step of a healthy training."""
    rng = np.random.default_rng(0)
    weights = {f"layers.{i}.weight": rng.normal(0, 0.1, (12, 12)) for i in range(LAYERS)}
    for step in range(steps):
        saved: Tensors = {"loss": np.array(0.5 + 2 * np.exp(-step / 60) + rng.normal(0, 0.02))}
        for i, (name, weight) in enumerate(weights.items()):
            gradient = rng.normal(0, 0.05 * (1 + np.exp(-step / 60)), weight.shape)
            weight -= 0.01 * gradient
            saved |= {name: weight.copy(), f"gradient/{name}": gradient}
            saved[f"relu_{i}"] = np.maximum(0, rng.normal(0, 1, (8, 16)))
        yield saved


def nan(step: int, saved: Tensors) -> None:
    """A gradient grows, then a weight and the loss turn NaN."""
    if 110 <= step < 120:
        saved["gradient/layers.2.weight"] *= 1.6 ** (step - 109)
    if step >= 120:
        saved["layers.2.weight"].flat[:8] = np.nan
    if step >= 121:
        saved["loss"] = np.array(np.nan)


def vanishing(step: int, saved: Tensors) -> None:
    """Gradients of the first layers become smaller and smaller."""
    for i in range(2):
        saved[f"gradient/layers.{i}.weight"] *= 0.94**step


def dead(step: int, saved: Tensors) -> None:
    """The units of a layer die."""
    if step >= 90:
        saved["relu_1"] *= 0


def spike(step: int, saved: Tensors) -> None:
    """The loss jumps for three steps."""
    if 140 <= step < 143:
        saved["loss"] = saved["loss"] + 5


def healthy(step: int, saved: Tensors) -> None:
    """Nothing."""


def written(root: Path, fault: Callable[[int, Tensors], None] = healthy, steps: int = STEPS) -> Path:
    """Write a run with a fault."""
    patterns = {"losses": "^loss$", "weights": r"^layers\.", "gradients": "^gradient/", "relu_output": "^relu_"}
    begin(root, json.dumps({name: {"name": name, "include_regex": [regex]} for name, regex in patterns.items()}))
    for step, saved in enumerate(training(steps)):
        fault(step, saved)
        with _core.StepWriter(root, step, "worker_0", 2 if step % 20 == 19 else 1) as writer:
            for name, value in saved.items():
                writer.tensor(name, value.astype(np.float32))
    return end(root)
