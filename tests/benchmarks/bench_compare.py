"""Measure differences and cells over steps, as a widget requests them.

Usage: python tests/benchmarks/bench_compare.py

Prints each figure with its target. Times are CPU seconds, so that other programs do not change them much.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import smdwidgets
from python.trials import runs
from smdwidgets import _core
from smdwidgets.pictures import differences, unpack
from smdwidgets.pictures.view import TensorView

STEPS = 500
SHAPE = (1024, 1024)
#: Saved steps, which are read again and again to bound the disk space.
KEPT = 40
WANT = {"bins": 0, "changed": 12, "image": {"axes": [0, 1], "fixed": [0, 0], "cells": 1 << 14}}


def value(step: int) -> np.ndarray:
    return np.random.default_rng(step).normal(size=SHAPE).astype(np.float32)


def difference(view: TensorView) -> tuple[float, bool]:
    """Return the least CPU seconds, and whether the top cells are NumPy's."""
    best = float("inf")
    for _ in range(7):
        start = time.process_time()
        a, b = differences.saved(view, 1), differences.saved(view, 0)
        packet = differences.difference(a, b, WANT, {"a": {}, "b": {}})
        best = min(best, time.process_time() - start)
    order = np.argsort(-np.abs(value(1).astype(float) - value(0)).reshape(-1), kind="stable")[:12]
    return best, unpack(packet)[1]["index"].tolist() == [[int(at) // SHAPE[1], int(at) % SHAPE[1]] for at in order]


def life(view: TensorView, steps: list[int]) -> tuple[float, float]:
    """Return the CPU seconds of 8 cells over 500 steps, and of the first part."""
    order = [steps[i % len(steps)] for i in range(STEPS)]
    cells = [(i, 7 * i) for i in range(8)]
    start = time.process_time()
    first = 0.0
    for _, done in differences.lives(view, order, cells, {"run": 0, "tensor": "w", "worker": ""}, lambda: False):
        first = first or (time.process_time() - start if done else 0.0)
    return time.process_time() - start, first


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = runs.collections(Path(folder))
        for step in range(KEPT):
            with _core.StepWriter(root, step, "worker_0") as writer:
                writer.tensor("w", value(step))
        view = TensorView(smdwidgets.create_trial(runs.end(root)), "w")
        seconds, equal = difference(view)
        whole, first = min(life(view, view.steps()) for _ in range(3))
    for what, figure, target, met in [
        ("A - B of two 4 MB tensors", f"{seconds * 1000:.0f} ms", "<= 60 ms", seconds <= 0.06),
        ("its top 12 cells", "equal" if equal else "differ", "NumPy's", equal),
        ("8 cells over 500 steps of 1 M elements", f"{whole:.2f} s", "<= 1.5 s", whole <= 1.5),
        ("the first of them after", f"{first * 1000:.0f} ms", "<= 100 ms", first <= 0.1),
    ]:
        print(f"{what:42} {figure:>8}   target {target:10} {'met' if met else 'missed'}")


if __name__ == "__main__":
    main()
