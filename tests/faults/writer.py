"""A training that is there to be killed. For each line on its input (`run`, a file for what it knows to be saved, a seed) a
fork of this process writes steps into the run, going on after the last one, until it is killed.

A fork because it starts in milliseconds; of a process without threads, because only that is sound.
"""

from __future__ import annotations

import os
import random
import sys

import numpy as np

from smdwidgets import modes
from smdwidgets.hooks.numpy import Hook

MODES = (modes.TRAIN, modes.EVAL)


def write(root: str, known: str, seed: str) -> None:
    """Steps without end. `x` is all the step's number, `loss` is it, so that a torn or mixed-up step shows."""
    chance = random.Random(seed)
    acknowledged = os.open(known, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    hook = Hook(root, resume=True, export_tensorboard=True)
    while True:
        step = hook.global_step + 1
        hook.set_mode(MODES[step // 5 % 2])
        hook.save_tensor("x", np.full(chance.choice([1, 100, 1000, 30_000]), step, np.float32), "weights")
        hook.save_scalar("loss", step)
        hook.step()
        if chance.random() < 0.5:
            hook.flush()
            os.write(acknowledged, f"{step}\n".encode())


def main() -> None:
    for line in sys.stdin:
        child = os.fork()
        if not child:
            try:
                write(*line.split())
            finally:
                os._exit(1)  # it ends by being killed, or something is wrong
        print(child, flush=True)
        _, status = os.waitpid(child, 0)
        print(f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else "ended by itself", flush=True)


if __name__ == "__main__":
    main()
