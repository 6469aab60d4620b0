"""A writer of statistics that tests kill.

For each line on standard input (`run`, a file that records what was flushed, first step, a seed), a fork of this
process appends steps until it is killed. A fork starts in milliseconds; this process has no threads, so that forking is
safe.
"""

from __future__ import annotations

import os
import random
import sys

import numpy as np

from smdwidgets import _core

COUNTS = ("count", "nan", "neg_inf", "pos_inf", "zeros")
NUMBERS = ("min", "max", "mean", "std", "l1", "update")


def write(root: str, known: str, first: int, seed: str) -> None:
    """Append steps without end.

    Every number of a row equals its step, so that mixed rows are detected.
    """
    chance = random.Random(seed)
    acknowledged = os.open(known, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    writer = _core.StatisticsWriter(root, steps=chance.choice([1, 3, 20]), segment=chance.choice([5_000, 1 << 26]))
    step = first
    while True:
        # More tensors as the training goes on, so that names are written between batches.
        tensors = [writer.add(f"tensor {at}", "float32", (step,)) for at in range(1 + step % 50)]
        columns = {name: np.full(len(tensors), step, np.int64) for name in COUNTS}
        columns |= {name: np.full(len(tensors), step, float) for name in NUMBERS}
        writer.append(step, tensors, columns, 1, step)
        if chance.random() < 0.2:
            writer.flush()
            os.write(acknowledged, f"{step}\n".encode())
        step += 1


def main() -> None:
    """Fork a writer for each line, and report its process id."""
    for line in sys.stdin:
        root, known, first, seed = line.rstrip("\n").split("\t")
        child = os.fork()
        if not child:
            write(root, known, int(first), seed)
        print(child, flush=True)
        _, status = os.waitpid(child, 0)
        print(os.WTERMSIG(status) if os.WIFSIGNALED(status) else -os.WEXITSTATUS(status), flush=True)


if __name__ == "__main__":
    main()
