"""Compare what this package's and smdebug's hooks add to a PyTorch training.

Usage: `make bench-hooks`, or `make bench-hooks ARGS="--turns 15"`. It creates .venv-torch if needed and writes the
section in RESULTS.md.

The model is a residual network on 32x32 images; weights, biases, gradients and losses are saved. All trainings run in
one process.

Every step saved: three equal trainings, one bare and one with each hook, alternate every few steps. For each turn the
CPU seconds of the training's thread, those of all threads, and the wall time until everything is written are measured.
The result is the median difference from the bare training. CPU seconds of the training's thread are least affected by
other processes; if the training keeps all cores busy, those of all threads are what it pays.

Every 100th step saved: a bare training and one with a hook alternate at every step. The result is the median difference
for steps that are not saved, and each difference for those that are.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from apart import apart
from report import table, write_section

HERE = Path(__file__).resolve()
#: Steps that are not timed: the first ones allocate memory.
WARM = 5
COLLECTIONS = ["weights", "biases", "gradients", "losses"]
TITLE = "Cost of hooks"


def trainings(interval: int, width: int, batch: int, root: Path, names: tuple[str, ...]) -> Iterator[tuple]:
    """Equal trainings, as functions for one step, for waiting, and for the end."""
    logging.disable(logging.CRITICAL)
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self, channels: int) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
            self.bn1 = nn.BatchNorm2d(channels)
            self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
            self.bn2 = nn.BatchNorm2d(channels)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = torch.relu(self.bn1(self.conv1(x)))
            return torch.relu(x + self.bn2(self.conv2(y)))

    def stage(before: int, channels: int) -> nn.Module:
        down = nn.Conv2d(before, channels, 3, stride=2, padding=1)
        return nn.Sequential(down, Block(channels), Block(channels))

    x, y = torch.randn(batch, 3, 32, 32), torch.randint(0, 10, (batch,))
    for name in names:
        torch.manual_seed(0)
        model: nn.Module = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1),
            Block(width),
            stage(width, 2 * width),
            stage(2 * width, 4 * width),
            stage(4 * width, 8 * width),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(8 * width, 10),
        )
        criterion = nn.CrossEntropyLoss()
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        hook = None
        if name != "bare":
            if name == "ours":
                import smdwidgets.pytorch as smd
            else:
                import smdebug.pytorch as smd
            config = smd.SaveConfig(save_interval=interval)
            hook = smd.Hook(out_dir=str(root / name), include_collections=COLLECTIONS, save_config=config)
            hook.register_module(model)
            hook.register_loss(criterion)

        def step(model=model, criterion=criterion, optimizer=optimizer) -> None:
            optimizer.zero_grad()
            criterion(model(x), y).backward()
            optimizer.step()

        for _ in range(WARM):
            step()
        yield step, getattr(hook, "flush", None), getattr(hook, "close", None), model


def every_step(turns: int, length: int, width: int, batch: int, threads: int, root: Path) -> dict[str, object]:
    """Return the seconds per step that each hook adds if every step is saved, by kind."""
    import torch

    torch.set_num_threads(threads)
    names = ("bare", "ours", "smdebug")
    made = dict(zip(names, trainings(1, width, batch, root, names), strict=True))
    taken: dict[str, list[tuple[float, ...]]] = {name: [] for name in names}
    for turn in range(turns):
        for name in names[turn % 3 :] + names[: turn % 3]:
            step, flush, _, _ = made[name]
            began = time.thread_time(), time.process_time(), time.perf_counter()
            for _ in range(length):
                step()
            thread = time.thread_time()
            if flush:
                flush()
            ended = thread, time.process_time(), time.perf_counter()
            taken[name].append(tuple((after - before) / length for before, after in zip(began, ended, strict=True)))
            for file in root.rglob("*.tfevents"):  # so that every turn has memory for its files
                file.unlink()
    for _, _, close, _ in made.values():
        if close:
            close()
    added = {}
    for name in ("ours", "smdebug"):
        differences = [
            [one - bare for one, bare in zip(*pair, strict=True)]
            for pair in zip(taken[name], taken["bare"], strict=True)
        ]
        added[name] = [statistics.median(column) for column in zip(*differences, strict=True)]
    parameters = list(made["bare"][3].parameters())
    return {
        **added,
        "bare": [statistics.median(column) for column in zip(*taken["bare"], strict=True)],
        "parameters": sum(parameter.numel() for parameter in parameters),
        "tensors": len(parameters),
    }


def now_and_then(which: str, steps: int, width: int, batch: int, root: Path) -> dict[str, object]:
    """Return the CPU seconds per step that a hook adds if every 100th step is saved."""
    import torch

    torch.set_num_threads(1)
    (hooked, _, close, _), (bare, *_) = trainings(100, width, batch, root, (which, "bare"))

    def timed(step: Callable[[], None]) -> float:
        began = time.thread_time()
        step()
        return time.thread_time() - began

    long, short = [], []
    for i in range(steps):  # the order alternates: the second finds warm caches
        for mine, step in ((long, hooked), (short, bare))[:: 1 if i % 2 else -1]:
            mine.append(timed(step))
    close()
    added = [one - other for one, other in zip(long, short, strict=True)]
    saved = [one for i, one in enumerate(added, WARM) if i % 100 == 0]
    seldom = statistics.median(one for i, one in enumerate(added, WARM) if i % 100)
    return {
        "added": (sum(saved) + seldom * (steps - len(saved))) / steps,
        "step": statistics.median(short),
    }


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A temporary directory."""
    root = Path(tempfile.mkdtemp())
    try:
        yield root
    finally:
        shutil.rmtree(root, ignore_errors=True)


def throughput(megabytes: int) -> tuple[float, float]:
    """Return the seconds to save one step with the hook, and with one `write`.

    Both are the best of several.
    """
    import numpy as np

    from smdwidgets.numpy import Hook

    tensors = [np.random.default_rng(i).random(1 << 19, dtype=np.float32) for i in range(megabytes // 2)]
    block = b"".join(tensor.tobytes() for tensor in tensors)
    ours, plain = [], []
    with scratch() as root, Hook(root / "run") as hook:
        for turn in range(13):
            began = time.perf_counter()
            for i, tensor in enumerate(tensors):
                hook.save_tensor(f"t{i}", tensor)
            hook.step()
            hook.flush()
            if turn:  # the first step allocates memory
                ours.append(time.perf_counter() - began)
            for file in root.rglob("*.tfevents"):
                file.unlink()
            began = time.perf_counter()
            with (root / "plain").open("wb", buffering=0) as file:
                file.write(block)
            plain.append(time.perf_counter() - began)
            (root / "plain").unlink()
    return min(ours), min(plain)


def milliseconds(seconds: float) -> str:
    """Format for a table."""
    return f"{seconds * 1e3:,.2f} ms"


def less(ours: float, theirs: float) -> str:
    """Return the ratio of what both add, which can be below the noise between steps."""
    return f"{theirs / ours:.1f}x less" if ours > 0 else "not measurable"


def main() -> None:
    """Write the section."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--turns", type=int, default=9, help="of each training, every step saved")
    parser.add_argument("--steps", type=int, default=200, help="of each training, every 100th step saved")
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="that PyTorch may use")
    parser.add_argument("--apart", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.apart:
        work, *rest, root = arguments.apart
        numbers = [int(one) if one.isdecimal() else one for one in rest]
        print(json.dumps({"every_step": every_step, "now_and_then": now_and_then}[work](*numbers, Path(root))))
        return

    width, batch = arguments.width, arguments.batch
    rows = []
    every = apart(HERE, "every_step", arguments.turns, 4, width, batch, arguments.threads)
    kinds = ("CPU of the training's thread", "CPU of all threads", "wall clock, until all is written")
    for kind, ours, theirs, bare, target in zip(
        kinds, every["ours"], every["smdebug"], every["bare"], (">= 5x less", "", ">= 5x less"), strict=True
    ):
        met = "" if not target else "yes" if theirs >= 5 * ours else "**no**"
        cells = (f"every step saved: {kind}", milliseconds(bare), milliseconds(ours), milliseconds(theirs))
        rows.append([*cells, less(ours, theirs), target, met])
    seldom = {which: apart(HERE, "now_and_then", which, arguments.steps, width, batch) for which in ("ours", "smdebug")}
    share = seldom["ours"]["added"] / seldom["ours"]["step"]
    rows.append(
        [
            "every 100th step saved: CPU of the training's thread",
            milliseconds(seldom["ours"]["step"]),
            f"{milliseconds(seldom['ours']['added'])} ({share:.2%})",
            milliseconds(seldom["smdebug"]["added"]),
            less(seldom["ours"]["added"], seldom["smdebug"]["added"]),
            "<= 1 % of a step",
            "lost in what steps differ by" if share <= 0 else "yes" if share <= 0.01 else "**no**",
        ]
    )
    saving, writing = throughput(128)
    ratio = saving / writing
    what = "saving a step of 128 MB, beside one `write` of the same bytes"
    met = "yes" if ratio <= 2 else "**no**"
    rows.append([what, milliseconds(writing), milliseconds(saving), "", f"{ratio:.2f}x the time", "<= 2x", met])
    load = f"; load average {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    body = (
        f"`make bench-hooks`. A residual network of {every['parameters']:,} parameters in {every['tensors']} tensors, batches "
        f"of {batch}, PyTorch on {arguments.threads} threads; weights, biases, gradients and losses saved. A step's time and "
        f"what each hook adds to it{load}.\n\n"
        + table(("what", "bare", "ours adds", "smdebug adds", "ratio", "target", "met"), rows)
    )
    print(body)
    write_section(TITLE, body)


if __name__ == "__main__":
    main()
