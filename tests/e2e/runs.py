"""Runs for the browser tests, with known values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import smdwidgets.numpy as smd
from smdwidgets.modes import ModeKeys

WEIGHT, LOSS, GRADIENT = "net/fc.weight", "loss", "gradient/net/fc.weight"
VANISHES_AT = 20


def weight(step: int) -> np.ndarray:
    """Few cells, so that each is visible; at step 7 some are not finite."""
    value = np.random.default_rng(step).normal(step / 20, 0.5, (12, 16)).astype(np.float32)
    if step == 7:
        value[2, 3], value[4, 5], value[6, 7] = np.nan, np.inf, -np.inf
    return value


def gradient(step: int) -> np.ndarray:
    """A vanishing gradient."""
    size = 1e-12 if step >= VANISHES_AT else 1e-2
    return (np.random.default_rng(1000 + step).normal(0, size, (12, 16))).astype(np.float32)


def tensors(step: int) -> dict[str, tuple[Any, str]]:
    """Return what is saved at a step: name to value and collection."""
    return {
        WEIGHT: (weight(step), "weights"),
        GRADIENT: (gradient(step), "gradients"),
        LOSS: (np.float32(2.0 / (step + 1)), "losses"),
    }


def write(
    root: Path,
    steps: int = 30,
    of_step: Callable[[int], Mapping[str, tuple[Any, str]]] = tensors,
    *,
    modes: bool = False,
) -> Path:
    """Write an ended run; with `modes`, each fifth step is an evaluation."""
    with smd.Hook(root) as hook:
        for step in range(steps):
            hook.set_mode(ModeKeys.EVAL if modes and step % 5 == 4 else ModeKeys.TRAIN)
            for name, (value, collection) in of_step(step).items():
                hook.save_tensor(name, value, collection)
            hook.step()
    return root
