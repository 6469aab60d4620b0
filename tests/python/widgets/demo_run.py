"""Runs of the front end's demo page and tests.

They are small, and the same on every machine.
Values are rounded to a grid, so that the recordings of their pictures are small.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from python.widgets.talk import begin, end, save_incident
from smdwidgets import _core

LAST = 1200
LAYERS = {"fc1": (48, 112), "fc2": (32, 48), "fc3": (10, 32)}
WORDS = ("the", "gradient", "vanishes", "where", "nobody", "looks", "<b>bold</b>")
COLLECTIONS = {
    "losses": "CrossEntropyLoss_output_0",
    "metrics": "accuracy",
    "weights": r"^(fc|conv)\d\.weight",
    "biases": r"^fc\d\.bias",
    "gradients": "^gradient/",
    "relu_output": "^relu",
    "custom": "^(attention|tokens|all|nothing|<)",
}


def grid(values: Any, steps: int = 32) -> Any:
    return (np.round(np.asarray(values, np.float64) * steps) / steps).astype(np.float32)


def noise(seed: int, shape: tuple[int, ...]) -> Any:
    """Return noise between -1 and 1 that does not depend on NumPy's version."""
    return np.random.RandomState(seed).randint(-16, 17, shape) / 16


def tensors(step: int, run: int) -> dict[str, Any]:
    """Return the tensors saved at a step of a run."""
    decay = float(np.exp(-step / LAST * (2.2 if run else 3.4)))
    saved: dict[str, Any] = {
        "CrossEntropyLoss_output_0": grid(0.18 + 2.1 * decay + 0.05 * noise(step, (1,))[0], 1024),
        "accuracy": grid(0.97 - 0.86 * decay, 1024),
    }
    for k, (layer, (rows, columns)) in enumerate(LAYERS.items()):
        row, column = np.arange(rows)[:, None], np.arange(columns)[None, :]
        learnt = np.sin(row / (3 + k) + 1.7 * np.sin(column / 14)) * np.exp(-((column % 28 - 14) ** 2) / 90)
        weight = grid(0.15 * noise(k + 10 * run, (rows, columns)) + 0.5 * (1 - decay) * learnt)
        saved[f"{layer}.weight"] = weight
        saved[f"{layer}.bias"] = grid(0.25 * (1 - decay) * np.sin(np.arange(rows) / 2 + k))
        gradient = grid((0.25 + decay) * noise(20 + k, (rows, columns)) ** 3, 256)
        if k == 0 and 700 <= step < 760:
            gradient.flat[::37] = np.nan
            if step == 720:
                gradient.flat[::74] = np.inf
        saved[f"gradient/{layer}.weight"] = gradient
        saved[f"gradient/{layer}.bias"] = grid(decay * noise(30 + k, (rows,)), 256)
        if step % 20 == 0:
            saved[f"relu{k + 1}_output_0"] = np.maximum(0, noise(40 + k, (16, rows))).astype(np.float16)
    if step % 50 == 0:
        saved["conv1.weight"] = grid(
            0.2 * noise(50, (8, 3, 5, 5)) + (1 - decay) * np.cos(np.arange(600) / 2).reshape(8, 3, 5, 5), 16
        )
    if step % 100 == 0:
        distance = np.abs(np.arange(24)[:, None] - np.arange(24)[None, :])
        saved["attention.probabilities"] = np.broadcast_to(
            grid(np.exp(-(distance**2) / (2 + 30 * decay))), (2, 4, 24, 24)
        ).copy()
        saved["tokens"] = np.array([WORDS[i % len(WORDS)] for i in range(24)]).reshape(4, 6)
        saved["all.nan"] = np.full((8, 8), np.nan, np.float32)
        saved["nothing"] = np.zeros((0, 8), np.float32)
        saved["<img src=x onerror=alert(1)>"] = np.arange(4) + step
    return saved


def write(root: Path, run: int = 0, last: int | None = None, first: int = 0) -> Path:
    """Write a run.

    It has a step every 10 global steps; every tenth is EVAL, the others TRAIN.
    """
    if first == 0:
        begin(root, json.dumps({name: {"name": name, "include_regex": [regex]} for name, regex in COLLECTIONS.items()}))
    evals = trains = 0
    for step in range(0, (last if last is not None else 900 if run else LAST) + 1, 10):
        is_eval = step % 100 == 90
        mode_step = (evals if is_eval else trains) * 10
        evals, trains = evals + is_eval, trains + (not is_eval)
        if step < first:
            continue
        saved = tensors(step, run)
        with _core.StepWriter(root, step, "worker_0", 2 if is_eval else 1, mode_step) as writer:
            for name, value in saved.items():
                writer.tensor(name, value)
        with _core.StepWriter(root, step, "worker_1", 2 if is_eval else 1, mode_step) as writer:
            writer.tensor("fc3.weight", saved["fc3.weight"] * 2)
        if step == 700 and run == 0:
            save_incident(root, step, "NaN in 'gradient/fc1.weight'", range(680, 760, 10))
    return root


def finished(root: Path, run: int = 0, last: int | None = None) -> Path:
    return end(write(root, run, last))
