"""Runs made for a test."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from smdwidgets import Collection, modes
from smdwidgets._core import StepWriter
from smdwidgets.config import CollectionManager


def collections(
    root: Path, workers: int = 1, given: Iterable[Collection] = (), written: Iterable[int] | None = None
) -> Path:
    """The collection files of a run: of every worker, or of those `written`."""
    manager = CollectionManager()
    for collection in [Collection("default"), *given]:
        manager.add(collection)
    manager.set_num_workers(workers)
    for rank in range(workers) if written is None else written:
        manager.export(root, f"worker_{rank}_collections.json")
    return root


def step(
    root: Path,
    step: int,
    values: Mapping[str, Any] | None = None,
    worker: str = "worker_0",
    mode: modes = modes.GLOBAL,
    mode_step: int | None = None,
    shapes: Mapping[str, Iterable[int]] | None = None,
) -> None:
    """One step of one worker. Without values: the tensor `x`, which holds the step."""
    with StepWriter(root, step, worker, mode.value, mode_step) as writer:
        for name, value in ({"x": np.full(3, step, np.float32)} if values is None else values).items():
            writer.tensor(name, value)
        for name, shape in (shapes or {}).items():
            writer.shape(name, name, list(shape))


def end(root: Path, ago: float = 60.0) -> Path:
    """The mark of the end, some seconds old: nothing waits for files that may still come."""
    mark = root / "training_job_end.ts"
    mark.touch()
    then = time.time() - ago
    os.utime(mark, (then, then))
    return root


def run(root: Path, steps: Iterable[int] = range(5), ended: bool = True, **kwargs: Any) -> Path:
    """A run of one worker."""
    collections(root)
    for number in steps:
        step(root, number, **kwargs)
    return end(root) if ended else root
