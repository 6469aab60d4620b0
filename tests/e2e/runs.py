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


def transformer(root: Path, *, fault_at: int = 80, steps: int = 120, layers: int = 8) -> Path:
    """Write a run whose layer 5 turns NaN after its gradient grew for ten steps."""
    random = np.random.default_rng(0)
    shapes = {
        name: random.normal(0, 1, (12, 12)).astype(np.float32)
        for layer in range(layers)
        for name in (f"layers.{layer}.{part}.weight" for part in ("q_proj", "k_proj", "v_proj", "mlp.up_proj"))
    }
    with smd.Hook(root) as hook:
        for step in range(steps):
            evaluates = step % 20 >= 18
            hook.set_mode(ModeKeys.EVAL if evaluates else ModeKeys.TRAIN)
            for name, shape in shapes.items():
                bad = name == "layers.5.k_proj.weight"
                noise = random.normal(0, 1e-4, shape.shape).astype(np.float32)
                value = shape * np.float32(0.05 * (1 + 5e-4 * step)) + noise
                if bad and step >= fault_at:
                    value[2:4] = np.nan
                hook.save_tensor(name, value, "weights")
                if evaluates or not name.endswith(("q_proj.weight", "k_proj.weight")):
                    continue
                size = 1e-3 * np.exp(random.normal(0, 0.1))
                if bad and fault_at - 10 <= step < fault_at:
                    size *= 40 ** ((step - fault_at + 11) / 10)
                gradient = random.normal(0, size, shape.shape).astype(np.float32)
                hook.save_tensor(f"gradient/{name}", gradient, "gradients")
            loss = 1 + 3 * np.exp(-step / 30) + random.normal(0, 0.02) + (2 if step > fault_at else 0)
            hook.save_tensor(LOSS, np.float32(loss + 0.2 * evaluates), "losses")
            hook.step()
    return root
