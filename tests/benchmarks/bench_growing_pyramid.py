"""Measure what the pyramid of a run that grows costs its hook.

Usage: `python tests/benchmarks/bench_growing_pyramid.py [--tensors 2000] [--steps 6000] [--elements 64] [--turns 3]`.

Each turn records the same statistics of all tensors at every step in two processes, with the pyramid and without it.
The CPU seconds are those of the whole process, without those of making the values. As their difference is small beside
what other work on the machine does to both, the same pyramid is also built alone from the same statistics, in the same
portions.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np


def record(run: str, tensors: int, steps: int, elements: int, with_pyramid: bool, fewest: int) -> None:
    """Record a run, and print what it cost."""
    from smdwidgets.hooks.writing import growing_pyramid
    from smdwidgets.numpy import Hook

    growing_pyramid.FEWEST_ROWS = fewest if with_pyramid else sys.maxsize
    chance = np.random.default_rng(0)
    values = [chance.normal(0, 1, elements).astype(np.float32) for _ in range(tensors)]
    names = [f"layers.{tensor // 8}.{'qkvogudn'[tensor % 8]}.weight" for tensor in range(tensors)]
    hook = Hook(run, plan={"budget": "4MB", "statistics": 1})
    outside = 0.0
    begin, wall = time.process_time(), time.perf_counter()
    for step in range(steps):
        moment = time.thread_time()
        scale = np.float32(1 + 0.05 * np.sin(0.1 * step))
        scaled = [value * scale for value in values]
        outside += time.thread_time() - moment
        for name, value in zip(names, scaled, strict=True):
            hook.save_tensor(name, value, "weights")
        hook.step()
    hook.close()
    seconds = time.process_time() - begin - outside
    folder = Path(run, "statistics/worker_0")
    sizes = {path.name: path.stat().st_size for path in folder.iterdir()}
    pyramid = sizes.pop("survey.pyramid", 0)
    print(
        json.dumps(
            {
                "alone": built(run) if with_pyramid else 0.0,
                "cpu": seconds,
                "wall": time.perf_counter() - wall,
                "rows": tensors * steps,
                "statistics": sum(sizes.values()),
                "pyramid": pyramid,
            }
        )
    )


def built(run: str) -> float:
    """Build the pyramid as a hook does, and return the CPU seconds."""
    from smdwidgets import _core
    from smdwidgets.hooks.writing.growing_pyramid import ROWS

    files, reader, path = _core.Files(run), _core.StatisticsReader(), Path(run, "statistics/worker_0/survey.pyramid")
    path.unlink(missing_ok=True)
    reader.refresh(files, [f"statistics/worker_0/{each.name}" for each in path.parent.iterdir()])
    begin, before, size = time.process_time(), -1, 0
    while size != before:
        before, size = size, _core.Pyramid.write(files, reader, "worker_0", str(path), growing=ROWS)
    return time.process_time() - begin


def main() -> None:
    """Print the figures of each turn, and their ratio."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tensors", type=int, default=2000)
    parser.add_argument("--steps", type=int, default=6000)
    parser.add_argument("--elements", type=int, default=64)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--fewest", type=int, default=8_000_000, help="rows from which on there is a pyramid")
    parser.add_argument("--one", choices=("with", "without"), help=argparse.SUPPRESS)
    parser.add_argument("--run", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        record(options.run, options.tensors, options.steps, options.elements, options.one == "with", options.fewest)
        return
    shape = [f"--{name}={getattr(options, name)}" for name in ("tensors", "steps", "elements", "fewest")]
    ratios = []
    for turn in range(options.turns):
        costs: dict[str, dict[str, float]] = {}
        for one in ("with", "without") if turn % 2 else ("without", "with"):
            with tempfile.TemporaryDirectory() as folder:
                command = [sys.executable, __file__, *shape, "--one", one, "--run", f"{folder}/run"]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                costs[one] = json.loads(done.stdout)
        ratios.append(costs["with"]["cpu"] / costs["without"]["cpu"])
        share = costs["with"]["pyramid"] / costs["with"]["statistics"]
        print(
            f"turn {turn}: {costs['without']['cpu']:.1f} s of a core without, {costs['with']['cpu']:.1f} s with "
            f"the pyramid, {100 * (ratios[-1] - 1):+.1f} %; the pyramid alone "
            f"{costs['with']['alone']:.2f} s, {100 * costs['with']['alone'] / costs['without']['cpu']:.1f} %, "
            f"{costs['with']['rows'] / costs['with']['alone'] / 1e6:.1f} million rows a second; wall {costs['without']['wall']:.0f} and "
            f"{costs['with']['wall']:.0f} s; {100 * share:.1f} % of the statistics; load {os.getloadavg()[0]:.1f}",
            flush=True,
        )
    print(f"median {100 * (float(np.median(ratios)) - 1):+.1f} %")


if __name__ == "__main__":
    main()
