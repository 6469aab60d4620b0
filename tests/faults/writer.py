"""A training that tests kill.

For each line on standard input (`run`, a file that records what was saved, a seed), a fork of this process writes steps
into the run, resuming after the last one, until it is killed. A fork starts in milliseconds; this process has no
threads, so that forking is safe.
"""

from __future__ import annotations

import os
import random
import sys

import numpy as np

from smdwidgets import CapturePlan, modes
from smdwidgets.hooks.loops.numpy import Hook

MODES = (modes.TRAIN, modes.EVAL)


def write(root: str, known: str, seed: str) -> None:
    """Yield steps without end.

    All elements of `x` and `loss` equal the step number, so that incomplete or mixed steps are detected.
    """
    chance = random.Random(seed)
    acknowledged = os.open(known, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    # On a fast machine the steps would exceed the usual budget, so that values of earlier ones were deleted.
    hook = Hook(root, resume=True, export_tensorboard=True, plan=CapturePlan(budget="100GB"))
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
                os._exit(1)  # it is killed before this line, or something is wrong
        print(child, flush=True)
        _, status = os.waitpid(child, 0)
        print(f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else "ended by itself", flush=True)


if __name__ == "__main__":
    main()
