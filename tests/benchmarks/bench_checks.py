"""Measure what the checks of a PyTorch training add to a step.

Usage: `make bench-hooks`, or `python tests/benchmarks/bench_checks.py [--steps 400]` with PyTorch. It writes the
section in RESULTS.md.

Two equal trainings of 27.6 million parameters alternate at every step: one bare, one with the hook of
`smdwidgets run --checks-only`. The time is CPU time of the training's thread. What a step adds is the median of the
differences of its pairs. Their inputs are small, because the differences of long steps drown in noise; the checks do
not compute with them. The shares are those of a bare step with a usual batch, in the same run.
"""

from __future__ import annotations

import argparse
import gc
import logging
import os
import statistics
import tempfile
import time

import torch
from report import table, write_section
from torch import nn

import smdwidgets.pytorch as smd

TITLE = "Cost of the checks"
#: A check is due at the first updates, and then at every 16th.
FIRST, EVERY = 8, 16
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


class Training:
    """A training, with the seconds of its steps."""

    def __init__(self, hook: smd.Hook | None = None) -> None:
        torch.manual_seed(0)
        self.model = Transformer()
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
    with tempfile.TemporaryDirectory() as folder:
        hook = smd.Hook(folder, checks=True, checks_only=10**9)
        trainings = [Training(), Training(hook)]
        gc.disable()
        for number, batch in enumerate(batches(options.steps, SMALL)):
            for training in trainings[:: 1 if number % 2 else -1]:
                training.step(*batch)
        hook.close()
    bare, checked = trainings
    if not all(map(torch.equal, bare.model.parameters(), checked.model.parameters())):
        raise SystemExit("the checks have changed the training")
    usual = Training()
    for batch in batches(12, USUAL):
        usual.step(*batch)
    step = statistics.median(usual.seconds[2:])
    adds = [one - other for one, other in zip(checked.seconds, bare.seconds, strict=True)]
    due = statistics.median(adds[number] for number in range(EVERY, options.steps, EVERY))
    other = statistics.median(adds[number] for number in range(FIRST, options.steps) if number % EVERY)
    mean = (due + (EVERY - 1) * other) / EVERY
    rows = []
    for what, seconds, most in (
        ("first step", adds[0], 1.0),
        ("step at which checks are due", due, 0.015 * step),
        ("other step", other, None),
        ("mean", mean, 0.003 * step),
    ):
        target = "" if most is None else "<= 1 s" if most == 1.0 else f"<= {most / step:.1%}"
        met = "" if most is None else "yes" if seconds <= most else "**no**"
        rows.append([what, f"{1e3 * seconds:.2f} ms", f"{seconds / step:.2%}", target, met])
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
