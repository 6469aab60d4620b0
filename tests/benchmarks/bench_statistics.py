"""Measure the statistics of 27 million parameters, and the file of every step.

CPU time of one thread, minima of alternating rounds, beside one pass of the same machine over the same bytes (`copyto`
into memory that is used again, and `sum`). The file is that of a small training with Adam.

Usage: python tests/benchmarks/bench_statistics.py
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from smdwidgets import _core
from smdwidgets.storage import LocalStorage
from smdwidgets.trials.statistics.file import StatisticsFile

TENSORS, ELEMENTS, STEPS = 100, 270_000, 500


def minima(works: Mapping[str, Callable[[], object]], rounds: int = 15) -> dict[str, float]:
    """Return the least CPU seconds of each, in alternating rounds."""
    best = dict.fromkeys(works, np.inf)
    for _ in range(rounds):
        for name, work in works.items():
            start = time.thread_time()
            work()
            best[name] = min(best[name], time.thread_time() - start)
    return best


def compute() -> None:
    """Print the cost of statistics beside one pass over the bytes."""
    rng = np.random.default_rng(0)
    now = [rng.standard_normal(ELEMENTS, np.float32) for _ in range(TENSORS)]
    before = [x + np.float32(1e-3) for x in now]
    room = np.empty_like(now[0])
    cost = minima(
        {
            "copy": lambda: [np.copyto(room, x) for x in now],
            "sum": lambda: [x.sum() for x in now],
            "statistics": lambda: _core.statistics_of(now),
            "statistics with update": lambda: _core.statistics_of(now, before),
        }
    )
    for name, seconds in cost.items():
        passes = 2 if "update" in name else 1
        ratio = seconds / passes / cost["copy"]
        print(f"{name:24} {seconds * 1e3:7.1f} ms  {ratio:5.2f} x a copy of the bytes that are read")


def training(steps: int) -> list[dict[str, NDArray[np.float64]]]:
    """Return the statistics of a network that learns random targets, at every step."""
    rng = np.random.default_rng(0)
    widths = [(32, 32)] * (TENSORS // 2 - 1) + [(32, 8)]
    weights = [rng.normal(0, 0.2, shape).astype(np.float32) for shape in widths]
    weights += [np.zeros(shape[1], np.float32) for shape in widths]
    first, second = [np.zeros_like(w) for w in weights], [np.zeros_like(w) for w in weights]
    columns = []
    for step in range(1, steps + 1):
        before = [w.copy() for w in weights]
        for w, m, v in zip(weights, first, second, strict=True):
            gradient = 0.1 * w + 0.02 * rng.standard_normal(w.shape, np.float32)
            m += 0.1 * (gradient - m)
            v += 0.001 * (gradient**2 - v)
            w -= 1e-3 * m / (1 - 0.9**step) / (np.sqrt(v / (1 - 0.999**step)) + 1e-8)
        columns.append(_core.statistics_of(weights, before))
    return columns


def store() -> None:
    """Print the size of the file, and the cost of appending to it and of reading it."""
    columns = training(STEPS)
    with tempfile.TemporaryDirectory() as run:
        writer = _core.StatisticsWriter(run, seconds=1e6)
        numbers = [writer.add(f"layers.{at}.weight", "float32", (32, 32), "weights", at) for at in range(TENSORS)]
        start = time.thread_time()
        for step, row in enumerate(columns):
            writer.append(step, numbers, row)
        writer.close()
        append = (time.thread_time() - start) / STEPS
        size = sum(file.stat().st_size for file in Path(run).rglob("*") if file.is_file())
        start = time.thread_time()
        file = StatisticsFile(LocalStorage(run), _core.Files(run))
        file.refresh()
        rows = len(file.read()["step"])
        read = time.thread_time() - start
    print(f"file of {TENSORS} tensors     {size / STEPS / 10:7.1f} kB per 100 steps")
    print(f"append                   {append * 1e6:7.0f} us a step")
    print(f"read                     {read * 1e9 / rows:7.0f} ns a row")


if __name__ == "__main__":
    compute()
    store()
