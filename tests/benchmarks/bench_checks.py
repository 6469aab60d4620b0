"""Measure what the checks of a PyTorch training add to a step.

Usage: `make bench-hooks`, or `python tests/benchmarks/bench_checks.py [--steps 400]` with PyTorch. It writes the
section in RESULTS.md.

Two equal trainings of 27.6 million parameters alternate at every step: one bare, one with the hook of
`smdwidgets run --checks-only`. The time is CPU time of the training's thread. What a step adds is the median of the
differences of its pairs. Their inputs are small, because the differences of long steps drown in noise; the checks do
not compute with them. The shares are those of a bare step with a usual batch, in the same run. A training of 6 tensors,
whose steps take a fraction of a millisecond, is measured in the same way.
"""

from __future__ import annotations

import argparse
import gc
import logging
import os
import statistics
import tempfile
import time
from collections.abc import Callable

import torch
from report import table, write_section
from torch import nn

import smdwidgets.pytorch as smd

TITLE = "Cost of the checks"
#: A check is due at the first updates, and then at every 16th. From some update on, most other steps are not looked at.
FIRST, EVERY, SETTLED = 8, 16, 256
#: Microseconds that a step of 6 tensors may take at which nothing is due: 50, and 0.5 for each tensor.
SHORT_US = 53
#: Rows and tokens of a batch.
SMALL, USUAL = (1, 16), (8, 64)


class Transformer(nn.Module):
    """A classifier of 27.6 million parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(8192, 768)
        layers = [nn.TransformerEncoderLayer(768, 12, 3072, dropout=0.0, batch_first=True) for _ in range(3)]
        self.layers = nn.Sequential(*layers)
        self.head = nn.Linear(768, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the logits."""
        return self.head(self.layers(self.embed(x)).mean(1))


def small() -> nn.Module:
    """Return a classifier of 6 tensors."""
    return nn.Sequential(
        nn.Embedding(8192, 16), nn.Flatten(), nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 64), nn.Linear(64, 16, False)
    )


class Training:
    """A training, with the seconds of its steps."""

    def __init__(self, make: Callable[[], nn.Module], hook: smd.Hook | None = None) -> None:
        torch.manual_seed(0)
        self.model = make()
        self.loss = nn.CrossEntropyLoss()
        self.optimizer = torch.optim.SGD(self.model.parameters(), 1e-3)
        if hook is not None:
            hook.register_module(self.model)
            hook.register_loss(self.loss)
        self.seconds: list[float] = []

    def step(self, x: torch.Tensor, y: torch.Tensor) -> None:
        """Train one batch."""
        began = time.thread_time()
        self.optimizer.zero_grad()
        self.loss(self.model(x), y).backward()
        self.optimizer.step()
        self.seconds.append(time.thread_time() - began)


def added(make: Callable[[], nn.Module], steps: int) -> tuple[list[float], float]:
    """Return the seconds that the checks add to each step, and those of a bare one."""
    with tempfile.TemporaryDirectory() as folder:
        hook = smd.Hook(folder, checks=True, checks_only=10**9)
        bare, checked = trainings = [Training(make), Training(make, hook)]
        Training(make).step(*batches(1, SMALL)[0])  # so that neither of them takes what a first step takes
        for number, batch in enumerate(batches(steps, SMALL)):
            for training in trainings[:: 1 if number % 2 else -1]:
                training.step(*batch)
        hook.close()
    if not all(map(torch.equal, bare.model.parameters(), checked.model.parameters())):
        raise SystemExit("the checks have changed the training")
    adds = [one - other for one, other in zip(checked.seconds, bare.seconds, strict=True)]
    return adds, statistics.median(bare.seconds)


def batches(count: int, size: tuple[int, int]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return random batches."""
    generator = torch.Generator().manual_seed(0)
    return [
        (torch.randint(0, 8192, size, generator=generator), torch.randint(0, 16, size[:1], generator=generator))
        for _ in range(count)
    ]


def main() -> None:
    """Measure, and write the section."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    options = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable(logging.CRITICAL)
    gc.disable()
    adds, _ = added(Transformer, options.steps)
    usual = Training(Transformer)
    for batch in batches(12, USUAL):
        usual.step(*batch)
    step = statistics.median(usual.seconds[2:])
    due = statistics.median(adds[number] for number in range(EVERY, options.steps, EVERY))
    other = statistics.median(adds[number] for number in range(FIRST, min(SETTLED, options.steps)) if number % EVERY)
    mean = (due + (EVERY - 1) * other) / EVERY
    shorts, short = added(small, 4 * options.steps)
    settled = statistics.median(shorts[number] for number in range(SETTLED, len(shorts)) if number % EVERY > 1)
    usually = statistics.median(shorts[FIRST:SETTLED])
    rows = []
    for what, seconds, most in (
        ("first step", adds[0], 1.0),
        ("step at which checks are due", due, 0.015 * step),
        (f"other step, to the {SETTLED}th", other, None),
        ("mean to there", mean, 0.003 * step),
    ):
        target = "" if most is None else "<= 1 s" if most == 1.0 else f"<= {most / step:.1%}"
        met = "" if most is None else "yes" if seconds <= most else "**no**"
        rows.append([what, f"{1e3 * seconds:.2f} ms", f"{seconds / step:.2%}", target, met])
    of_short = f"6 tensors, {1e6 * short:.0f} µs: "
    met = "yes" if 1e6 * settled <= SHORT_US else "**no**"
    rows += [
        [f"{of_short}step to the {SETTLED}th", f"{1e6 * usually:.0f} µs", f"{usually / short:.0%}", "", ""],
        [
            f"{of_short}later ones, nothing due",
            f"{1e6 * settled:.0f} µs",
            f"{settled / short:.0%}",
            f"<= {SHORT_US} µs",
            met,
        ],
    ]
    load = f"; load average {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    body = (
        "`make bench-hooks`. CPU time that all checks add to a step of a training of 27.6 million parameters on one thread, "
        f"and the share of a step with {USUAL[0]} rows of {USUAL[1]} tokens, {1e3 * step:.0f} ms ({options.steps} pairs "
        f"of steps{load}).\n\n" + table(("step", "adds", "share", "target", "met"), rows)
    )
    print(body)
    write_section(TITLE, body)


if __name__ == "__main__":
    main()
