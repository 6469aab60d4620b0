"""Measure what the flight recorder adds to a step, and the time of a dump.

Usage: `python tests/benchmarks/bench_incidents.py`. It writes the section in RESULTS.md.

A step: a network of NumPy, whose weights and gradients are 56 MiB, so that 8 of its steps fit the recorder's 512 MiB. A
bare training, one whose hook has no recorder, and one whose hook has one, alternate at every step. The result is the
median of the CPU seconds of the training's thread. It includes a step's copy, which the hook makes for statistics
anyway.

A dump: the steps in memory are written with their index files, beside one `write` of the same bytes to the same disk,
by turns. The result is the least time of each, in CPU seconds, which other processes affect least.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from report import table, write_section

from smdwidgets.hooks.capture.arrays import Staging, copy_tensor
from smdwidgets.hooks.capture.captured import Captured
from smdwidgets.hooks.capture.save_spec import SaveSpec
from smdwidgets.hooks.incidents.flight_recorder import FlightRecorder
from smdwidgets.hooks.incidents.incident_log import IncidentLog
from smdwidgets.hooks.writing.step_files import StepFiles
from smdwidgets.modes import ModeKeys
from smdwidgets.naming.tensors import Kinds
from smdwidgets.numpy import Hook

TITLE = "Flight recorder"
#: Width of the network: a weight of 14 MiB.
WIDTH = 1920
BOUND = 512 << 20
MIB = 1 << 20
#: Steps that are not timed: the first ones allocate memory.
WARM = 10


def training(hook: Hook | None, batch: int) -> Callable[[], float]:
    """Return a function for one step that returns its CPU seconds."""
    random = np.random.default_rng(0)
    weights = [random.normal(0, 0.02, (WIDTH, WIDTH)).astype("float32") for _ in range(2)]
    x = random.normal(size=(batch, WIDTH)).astype("float32")

    def step() -> float:
        began = time.thread_time()
        hidden = np.maximum(x @ weights[0], 0)
        out = hidden @ weights[1]
        difference = (out - x) / out.size
        gradients = [x.T @ ((difference @ weights[1].T) * (hidden > 0)), hidden.T @ difference]
        if hook is not None:
            for number in range(2):
                hook.save_tensor(f"fc{number}.weight", weights[number], "weights")
                hook.save_tensor(f"gradient/fc{number}.weight", gradients[number], "gradients")
            hook.save_scalar("loss", float((difference**2).sum()))
            hook.step()
        for weight, gradient in zip(weights, gradients, strict=True):
            weight -= 0.01 * gradient
        return time.thread_time() - began

    return step


def step_cost(steps: int, batch: int, root: Path) -> tuple[list[float], int]:
    """Return the median CPU seconds of a step: bare, without a recorder, with one.

    And the steps that it keeps.
    """
    plan = {"every": 0, "statistics": 1}
    hooks = [Hook(root / str(size), plan=plan, recorder_bytes=size) for size in (0, BOUND)]
    trainings = [training(hook, batch) for hook in (None, *hooks)]
    for _ in range(WARM):
        for one in trainings:
            one()
    taken: list[list[float]] = [[] for _ in trainings]
    for _ in range(steps):
        for one, seconds in zip(trainings, taken, strict=True):
            seconds.append(one())
    hooks[1].flush()
    recorder = hooks[1].parts.incidents._flight_recorder
    kept = 0 if recorder is None else len(recorder.steps)
    for hook in hooks:
        hook.close()
    return [statistics.median(seconds) for seconds in taken], kept


def dump_cost(turns: int, root: Path) -> tuple[tuple[float, float], tuple[float, float], int]:
    """Return CPU seconds, wall seconds and bytes of a dump and of one `write`."""
    content = np.random.default_rng(0).integers(0, 255, 16 * MIB, np.uint8).view("float32")
    dumps, writes, nbytes = [], [], 0
    for turn in range(turns):
        folder = root / f"dump{turn}"
        staging = Staging(1 << 40)
        files = StepFiles(folder, "worker_0", staging, None, False)
        log = IncidentLog(folder, "worker_0")
        flight = FlightRecorder(BOUND + 64 * MIB, staging, Kinds(lambda *names: False), files, log)
        files.observe(flight)
        for step in range(8):
            key = (step, ModeKeys.TRAIN, step)
            copies = [(f"t{number}", copy_tensor("t", content, staging)) for number in range(4)]
            files.write(key, [Captured(name, copy, copy.shape, SaveSpec(raw=False), 0.0) for name, copy in copies])
            files.finish(key)
        nbytes = len(flight.steps) * 4 * content.nbytes
        block = memoryview(np.concatenate([content] * (nbytes // content.nbytes))).cast("B")

        def write(block: memoryview = block) -> None:
            with (root / "write").open("wb", buffering=0) as file:
                done = 0
                while done < len(block):
                    done += file.write(block[done:]) or 0

        # The disk may slow the second one down, so they take turns in being the first.
        works = [(dumps, lambda flight=flight: flight.dump("benchmark")), (writes, write)]
        for taken, work in works if turn % 2 else reversed(works):
            cpu, wall = time.process_time(), time.perf_counter()
            work()
            taken.append((time.process_time() - cpu, time.perf_counter() - wall))
        files.close()
        shutil.rmtree(folder)
        (root / "write").unlink()
        del block
    least = [(min(cpu for cpu, _ in taken), min(wall for _, wall in taken)) for taken in (dumps, writes)]
    return least[0], least[1], nbytes


def main() -> None:
    """Write the section."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--turns", type=int, default=7)
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder:
        (bare, without, with_one), kept = step_cost(arguments.steps, arguments.batch, Path(folder))
        dump, write, nbytes = dump_cost(arguments.turns, Path(folder))
    added = (with_one - without) / bare
    rows = [
        [
            f"a step with {kept} steps in memory: CPU of the training's thread",
            f"{bare * 1e3:.1f} ms bare",
            f"{(without - bare) * 1e3:+.1f} ms with statistics, {(with_one - without) * 1e3:+.1f} ms more with the recorder",
            f"{added:+.1%}",
            "<= 3 %",
            "yes" if added <= 0.03 else "**no**",
        ],
        [
            f"writing the steps in memory, {nbytes / MIB:.0f} MiB",
            f"one `write`: {write[0] * 1e3:.0f} ms CPU, {write[1] * 1e3:.0f} ms wall",
            f"{dump[0] * 1e3:.0f} ms CPU, {dump[1] * 1e3:.0f} ms wall",
            f"{dump[0] / write[0]:.2f}x CPU, {dump[1] / write[1]:.2f}x wall",
            "<= 2x",
            "yes" if dump[0] <= 2 * write[0] else "**no**",
        ],
    ]
    load = f"; load average {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    body = (
        f"`python tests/benchmarks/bench_incidents.py`. Weights and gradients of 56 MiB, batches of {arguments.batch}{load}.\n\n"
        + table(("what", "beside", "ours", "ratio", "target", "met"), rows)
    )
    print(body)
    write_section(TITLE, body)


if __name__ == "__main__":
    main()
