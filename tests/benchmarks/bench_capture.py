"""What statistics of every step cost a training, and how large they are.

Usage: `python tests/benchmarks/bench_capture.py [--parameters 27000000]`. Writes the section in RESULTS.md.

A loop changes 100 float32 tensors at every step and passes them to the NumPy hook, whose plan saves statistics and no
values. Times are CPU time: of the training's thread by turns of a bare step and a step with the hook (minimum of the
turns), and of the writer's thread. A copy of the same bytes in the same process is stated for comparison.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
import time
from pathlib import Path

import numpy as np
from report import table, write_section

from smdwidgets import CapturePlan
from smdwidgets.numpy import Hook

TITLE = "Cost of a capture plan"
TENSORS = 100


def main() -> None:
    """Measure, and write the section."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parameters", type=int, default=27_000_000)
    parser.add_argument("--steps", type=int, default=40)
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    generator = np.random.default_rng(0)
    weights = [generator.standard_normal(options.parameters // TENSORS, np.float32) for _ in range(TENSORS)]
    room = [np.empty_like(one) for one in weights]

    def step() -> None:
        for one in weights:
            one *= np.float32(0.9999)

    def copy() -> None:
        for one, into in zip(weights, room, strict=True):
            np.copyto(into, one)

    def timed(call: object) -> float:
        began = time.thread_time()
        call()  # type: ignore[operator]
        return 1000 * (time.thread_time() - began)

    def capture() -> None:
        for number, one in enumerate(weights):
            hook.save_tensor(f"w{number}", one, "weights")
        hook.step()

    with tempfile.TemporaryDirectory() as folder, Hook(folder, plan=CapturePlan(every=0), recorder_bytes=0) as hook:
        turns = []
        before = time.process_time() - time.thread_time()
        for _ in range(options.steps):
            turns.append((timed(step), timed(copy), timed(capture)))
            hook.flush()
        writer = 1000 * (time.process_time() - time.thread_time() - before) / options.steps
    bare, copied, captured = (min(each) for each in zip(*turns[5:], strict=True))
    with tempfile.TemporaryDirectory() as folder:
        with Hook(folder, plan=CapturePlan(every=0), recorder_bytes=0) as hook:
            small = [one[:1000] for one in weights]
            for _ in range(100):
                for one in small:
                    one += np.float32(0.01) * generator.standard_normal(one.size, np.float32)
                for number, one in enumerate(small):
                    hook.save_tensor(f"w{number}", one, "weights")
                hook.step()
        size = sum(path.stat().st_size for path in Path(folder, "statistics").rglob("*") if path.is_file())
    rows = [
        ["a step without the hook", f"{bare:.1f} ms", ""],
        ["a copy of the same bytes into reused memory", f"{copied:.1f} ms", ""],
        ["added to the training's thread, the tensors being copied", f"{captured:.1f} ms", "16 ms"],
        ["writer's thread", f"{writer:.1f} ms", ""],
        [f"statistics of 100 steps of {TENSORS} tensors", f"{size / 1000:.0f} kB", "200 kB"],
    ]
    text = f"{options.parameters:,} float32 parameters in {TENSORS} tensors; CPU time a step.\n\n"
    write_section(TITLE, text + table(["", "measured", "target"], rows))
    for row in rows:
        print(*row, sep="\t")


if __name__ == "__main__":
    main()
