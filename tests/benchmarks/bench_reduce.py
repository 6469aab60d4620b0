"""Compare all 18 reductions of arrays in memory with NumPy.

The figures are medians of CPU time of all threads, so that more threads are no advantage.

Usage: python tests/benchmarks/bench_reduce.py
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np

from smdwidgets import _core


def eighteen(x: np.ndarray) -> list[object]:
    """The NumPy equivalent of the same 18 numbers."""
    out: list[object] = []
    for y in (x, np.abs(x)):
        out += [y.min(), y.max(), y.mean(), y.prod(), y.std(), y.sum(), y.var()]
        flat = y.reshape(-1)
        out += [np.linalg.norm(flat, 1), np.linalg.norm(flat, 2)]
    return out


def median(work: Callable[[], object], rounds: int) -> float:
    """Return the median CPU seconds of some rounds."""
    work()
    times = []
    for _ in range(rounds):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return statistics.median(times)


def main() -> None:
    """Print a table of ratios."""
    rng = np.random.default_rng(0)
    normal = rng.normal(0, 1, 1_000_000)
    many = [rng.normal(0, 1, 1_000_000).astype(np.float32) for _ in range(50)]
    print(f"{'':34} {'numpy ms':>9} {'ours ms':>9} {'GB/s':>6} {'ratio':>7}")

    def row(what: str, size: int, theirs: float, ours: float) -> None:
        print(f"{what:34} {theirs * 1e3:9.3f} {ours * 1e3:9.3f} {size / ours / 1e9:6.1f} {theirs / ours:6.1f}x")

    old = np.seterr(all="ignore")
    for dtype in ("float32", "float64", "float16", "int8", "int32", "int64", "uint8", "bool", "complex64"):
        x = (normal * 30).astype(dtype)
        theirs = median(lambda x=x: eighteen(x), 7)
        row(f"1,000,000 {dtype}, hot", x.nbytes, theirs, median(lambda x=x: _core.reduce(x), 15))
    x = np.maximum(normal, 0).astype(np.float32)
    row("1,000,000 float32, rectified", x.nbytes, median(lambda: eighteen(x), 7), median(lambda: _core.reduce(x), 15))
    raw = memoryview(b"\0" + many[0].tobytes())[1:]
    ours = median(lambda: _core.reduce(raw, "float32"), 15)
    row("1,000,000 float32, unaligned", len(raw), median(lambda: eighteen(many[0]), 7), ours)
    theirs = median(lambda: [eighteen(x) for x in many], 3)
    row("50 x 1,000,000 float32, 200 MB", 200_000_000, theirs, median(lambda: [_core.reduce(x) for x in many], 7))
    small = normal[:64].astype(np.float32)
    theirs = median(lambda: [eighteen(small) for _ in range(100)], 5) / 100
    row("64 float32", small.nbytes, theirs, median(lambda: [_core.reduce(small) for _ in range(2000)], 9) / 2000)
    x = many[0]
    theirs = median(lambda: np.histogram(x, 256), 7)
    row("histogram, 256 bins", x.nbytes, theirs, median(lambda: _core.histogram(x, 256), 15))
    theirs = median(lambda: np.percentile(x, [1, 25, 50, 75, 99]), 7)
    row("5 percentiles", x.nbytes, theirs, median(lambda: _core.percentiles(x, [1, 25, 50, 75, 99]), 15))
    np.seterr(**old)


if __name__ == "__main__":
    main()
