"""Measure saving a widget as a web page.

Usage: python tests/benchmarks/bench_export.py

Needs 0.7 GB of disk.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import numpy as np
from report import table, write_section

import smdwidgets
import smdwidgets.numpy as smd

TENSORS, STEPS, REPEATS = 300, 500, 3


def write(root: Path) -> Path:
    """Write 299 matrices of 32 × 32, one of which turns NaN, and a loss."""
    values = np.random.default_rng(0).normal(size=(TENSORS - 1, 32, 32)).astype(np.float32)
    with smd.Hook(root) as hook:
        for step in range(STEPS):
            for number, value in enumerate(values):
                value = value * np.float32(1 + np.sin(step / 9 + number) / 10)
                if number == 170 and step >= 371:
                    value[0, 0] = np.nan
                hook.save_tensor(f"layers.{number // 6}.p{number % 6}.weight", value, "weights")
            hook.save_tensor("loss", np.float32(3 * np.exp(-step / 60)), "losses")
            hook.step()
    return root


def main() -> None:
    found = []
    with tempfile.TemporaryDirectory() as folder:
        run = write(Path(folder) / "run")
        for _ in range(REPEATS):
            widget = smdwidgets.explore(run)
            begin, cpu = time.monotonic(), time.process_time()
            size = widget.to_html(Path(folder) / "page.html").stat().st_size
            found.append((time.process_time() - cpu, time.monotonic() - begin, size))
            widget.close()
    cpu_seconds, seconds, size = min(found)
    row = [f"{TENSORS} tensors × {STEPS} steps", f"{seconds:.1f} s", f"{cpu_seconds:.1f} s", f"{size / 1e6:.1f} MB"]
    load = os.getloadavg()[0]
    write_section(
        "Saving a page",
        f"`python tests/benchmarks/bench_export.py`. The fastest of {REPEATS}, the statistics of the run cached after the first. "
        f"Load average {load:.0f} on {os.cpu_count()} cores.\n\n"
        + table(["run", "time", "CPU", "size", "target"], [[*row, "≤ 10 s, ≤ 20 MB"]]),
    )
    print(*row)


if __name__ == "__main__":
    main()
