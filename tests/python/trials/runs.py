"""Write small runs for tests."""

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
    """Write the collection files of a run: of all workers, or of those `written`."""
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
    """Write one step of one worker; by default the tensor `x` with the step number."""
    with StepWriter(root, step, worker, mode.value, mode_step) as writer:
        for name, value in ({"x": np.full(3, step, np.float32)} if values is None else values).items():
            writer.tensor(name, value)
        for name, shape in (shapes or {}).items():
            writer.shape(name, name, list(shape))


def end(root: Path, ago: float = 60.0) -> Path:
    """Write the end marker, a few seconds old, so that no trial waits for late files."""
    mark = root / "training_job_end.ts"
    mark.touch()
    then = time.time() - ago
    os.utime(mark, (then, then))
    return root


def run(root: Path, steps: Iterable[int] = range(5), ended: bool = True, **kwargs: Any) -> Path:
    """Write a run of one worker."""
    collections(root)
    for number in steps:
        step(root, number, **kwargs)
    return end(root) if ended else root
