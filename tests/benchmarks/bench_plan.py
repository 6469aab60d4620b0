"""Measure what the capture plan costs, by length of step and number of tensors.

Usage: `make bench-hooks`, or `PYTHONPATH=python .venv-torch/bin/python tests/benchmarks/bench_plan.py`. It writes the
section in RESULTS.md, in about ten minutes.

The model is a chain of small linear layers; a step is made longer by products of matrices, the same number with and
without the hook. A chain of 150 layers takes more than a millisecond, and one of 1,500 more than 30, so these rows are
missing. Each row is a separate process with a fork, in which a training without a hook goes on: in the same process,
the hook would see its backward passes and updates. The two alternate. Times are CPU time of the training's thread, and
of the process, which includes the writer's thread. The hook's clock also counts the time that the training waits inside
the hook.

* Nothing due: the plan captures tensors at every 1,024th step. The result is the median time that the training's
  thread is inside the hook, by the hook's clock: a difference of two steps of tens of milliseconds has more noise. For
  the process it is the median difference of CPU time.
* Default plan: `smd.record(model, directory)`. The sum over all steps is compared after three seconds of training, when
  signals are still read at every second update, and after 45 seconds.
"""

from __future__ import annotations

import argparse
import functools
import json
import logging
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

from apart import apart
from report import table, write_section

HERE = Path(__file__).resolve()
TITLE = "Cost of the capture plan"
#: Tensors, and milliseconds of a step.
ROWS = ((6, 1), (6, 30), (6, 300), (300, 30), (300, 300), (3000, 300))
#: Seconds of training before the share is measured, and while it is.
BEFORE, WHILE = 3.0, 2.0
#: Seconds of training after which nothing is read more often because a training has just begun.
SETTLED = 45.0
#: Seconds and number of short steps before steps are measured at which nothing is due: signals are read more often at
#: the start.
START, FIRST = 6.0, 300
#: Seconds of steps that follow each other, where shares are measured.
BLOCK = 0.5
#: What the plan promises: microseconds of a step and of a tensor, and the share of a step.
STEP_US, TENSOR_US, SHARE = 50.0, 0.5, 0.01
SEED, RATE = 0, 1e-4


def training(tensors: int) -> tuple[Callable[[int], None], object]:
    """Return a function that trains for one step, and the model.

    The function takes a number of products of matrices, which make a step longer.
    """
    import torch
    from torch import nn

    torch.manual_seed(SEED)
    layers = [nn.Linear(16, 16) for _ in range(tensors // 2)]
    model = nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), RATE, foreach=True)
    x, matrix = torch.randn(8, 16), torch.randn(64, 64)

    def step(products: int) -> None:
        optimizer.zero_grad()
        for _ in range(products):
            torch.mm(matrix, matrix)
        model(x).square().mean().backward()
        optimizer.step()

    return step, model


def products_of(step: Callable[[int], None], milliseconds: int) -> int:
    """Return the number of products with which a step takes so long."""

    def timed(count: int, products: int) -> float:
        began = time.thread_time()
        for _ in range(count):
            step(products)
        return (time.thread_time() - began) / count

    timed(3, 0)
    bare = min(timed(5, 0) for _ in range(3))
    products, longer = 200, 0.0
    while longer < max(bare, 1e-3):  # a few products take less time than the times of a long step differ
        products *= 2
        longer = min(timed(3, products) for _ in range(3)) - bare
    return max(round((milliseconds / 1e3 - bare) * products / longer), 0)


class Fork:
    """A training in a forked process.

    Args:
        step: trains for one step.
    """

    def __init__(self, step: Callable[[], None]) -> None:
        answers, self._answers = multiprocessing.Pipe()
        self._process = multiprocessing.get_context("fork").Process(
            target=self._serve, args=(step, answers), daemon=True
        )
        self._process.start()

    @staticmethod
    def _serve(step: Callable[[], None], answers: Connection) -> None:
        while count := answers.recv():
            answers.send(timed(step, count))

    def timed(self, count: int) -> tuple[float, float]:
        """Return what :func:`timed` does, in the fork."""
        self._answers.send(count)
        seconds: tuple[float, float] = self._answers.recv()
        return seconds

    def end(self) -> None:
        """End the process."""
        self._answers.send(0)
        self._process.join()


def timed(step: Callable[[], None], count: int) -> tuple[float, float]:
    """Return seconds of the thread and of the process, by step of so many."""
    began = time.thread_time(), time.process_time()
    for _ in range(count):
        step()
    return (time.thread_time() - began[0]) / count, (time.process_time() - began[1]) / count


def clocked(hooked: Callable[[], None], seconds: float, clock: Callable[[], float]) -> list[float]:
    """Train for some seconds; return what the hook's clock says of each step.

    No other training runs in between, which would leave its data in the caches of the processor.
    """
    taken = []
    ends = time.thread_time() + seconds
    while time.thread_time() < ends or len(taken) < 8:
        before = clock()
        hooked()
        taken.append(clock() - before)
    return taken


def pairs(bare: Fork, hooked: Callable[[], None], seconds: float, together: int = 1) -> list[list[float]]:
    """Train both in turn for some seconds.

    Returns thread and process seconds of the bare steps and of the others, of so many steps together. For the hook, a
    bare training in between is a pause: a long one changes less than many short ones.
    """
    taken = []
    ends = time.thread_time() + seconds
    while time.thread_time() < ends or len(taken) < 8:
        taken.append([*bare.timed(together), *timed(hooked, together)])
    return taken


def measure(tensors: int, milliseconds: int, root: Path) -> dict[str, float]:
    """Return the figures of one row."""
    logging.disable(logging.CRITICAL)
    import torch

    import smdwidgets.pytorch as smd
    from smdwidgets import CapturePlan

    torch.set_num_threads(1)
    step, _ = training(tensors)
    hooked_step, model = training(tensors)
    products = products_of(step, milliseconds)  # the same number for both: two measurements of it differ
    bare, hooked = Fork(functools.partial(step, products)), functools.partial(hooked_step, products)
    hook = smd.record(model, root / "idle", plan=CapturePlan(statistics=1024, every=1024))
    ends = time.thread_time() + START
    while time.thread_time() < ends or hook.global_step < FIRST:
        hooked_step(0)
    inside = clocked(hooked, 1.0, lambda: hook.guard.gate.seconds)
    idle = pairs(bare, hooked, 1.0)
    hook.close()

    hook = smd.record(model, root / "default")
    together = max(round(BLOCK / milliseconds * 1e3), 1)
    begun = time.thread_time()
    for _ in range(round(BEFORE / milliseconds * 1e3)):
        hooked()
    planned = pairs(bare, hooked, WHILE, together)
    while time.thread_time() < begun + SETTLED:
        hooked()
    settled = pairs(bare, hooked, WHILE, together)
    steps = hook.global_step + 1
    intervals = hook.parts.plan.capture.time.intervals
    measured = hook.parts.plan.capture.time.measured_share or 0.0
    hook.close()
    bare.end()
    files = [file for file in (root / "default").rglob("*") if file.is_file()]
    totals = [sum(column) for column in zip(*planned, strict=True)]
    later = [sum(column) for column in zip(*settled, strict=True)]
    return {
        "bare": min(row[0] for row in idle),
        "idle": statistics.median(inside),
        "idle_process": statistics.median(row[3] - row[1] for row in idle),
        "share": totals[2] / totals[0] - 1,
        "share_process": totals[3] / totals[1] - 1,
        "settled": later[2] / later[0] - 1,
        "settled_process": later[3] / later[1] - 1,
        "measured": measured,
        "longest": max(intervals.values()),
        "steps": steps,
        "files": len(files),
        "bytes": sum(file.stat().st_size for file in files),
    }


def main() -> None:
    """Write the section."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, nargs="*", help="numbers of rows to measure; all by default")
    parser.add_argument("--print", action="store_true", help="do not write the section")
    parser.add_argument("--apart", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.apart:
        tensors, milliseconds, root = arguments.apart
        print(json.dumps(measure(int(tensors), int(milliseconds), Path(root))))
        return
    rows = []
    for number, (tensors, milliseconds) in enumerate(ROWS):
        if arguments.rows and number not in arguments.rows:
            continue
        one = apart(HERE, tensors, milliseconds)
        target = STEP_US + TENSOR_US * tensors
        cells = (
            f"{tensors:,}",
            f"{one['bare'] * 1e3:.1f} ms",
            f"{one['idle'] * 1e6:,.0f} µs",
            f"{target:,.0f} µs",
            "yes" if one["idle"] * 1e6 <= target else "**no**",
            f"{one['idle_process'] * 1e6:,.0f} µs",
            f"{one['share']:.1%}",
            f"{one['share_process']:.1%}",
            f"{one['settled']:.1%}",
            "yes" if one["settled"] <= SHARE else "**no**",
            f"{one['settled_process']:.1%}",
            f"{one['measured']:.1%}",
            f"{one['longest']:.0f}",
            f"{one['files']:,.0f} of {one['steps']:,.0f}",
        )
        rows.append(cells)
        print(cells, flush=True)
    load = f"; load average {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    body = (
        f"`make bench-hooks`. CPU time that the hook adds to a step{load}. Nothing due: time inside the hook by its clock, in steps that "
        "follow each other, beside the "
        f"target of {STEP_US:.0f} µs and {TENSOR_US} µs a tensor, and of the process. Default plan, after "
        f"{BEFORE:.0f} s of training, and after {SETTLED:.0f} s beside the target of {SHARE:.0%}: the share of the step that is added; by the hook's own "
        "clock, which the plan follows; the longest interval that the plan has chosen; files of the run and its steps. "
        "Differences of long steps, also negative ones, are within the noise of the machine.\n\n"
        + table(
            (
                "tensors",
                "step",
                "nothing due: in the hook",
                "target",
                "met",
                "nothing due: process",
                "default plan: thread",
                "process",
                f"after {SETTLED:.0f} s: thread",
                f"<= {SHARE:.0%}",
                "process",
                "by the hook's clock",
                "longest interval",
                "files of steps",
            ),
            rows,
        )
    )
    if not arguments.print:
        write_section(TITLE, body)


if __name__ == "__main__":
    main()
