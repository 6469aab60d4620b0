"""Run training stacks, each in a separate process.

Usage: `python -m frameworks.stacks.running WAY MODULE ...`, where the way is `plain` or `hooked`. It reads lines with
the name of a stack of these modules and a folder. The stack is trained in forked processes, which leave in the folder
an outcome and a log for each rank, and the run. The process of the way `plain` never imports the package under test.
"""

from __future__ import annotations

import datetime
import hashlib
import importlib
import os
import pickle
import random
import signal
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

import numpy as np

from frameworks.stacks.table import STACKS, Outcome, Recorder, Stack, Trained, to_numpy

TESTS = Path(__file__).parents[2]
WAYS = ("plain", "hooked")
#: How long a rank waits for another one.
SECONDS = 300


class Runner:
    """Two processes that fork trainings, without and with the hook."""

    def __init__(self, *modules: str, **env: str) -> None:
        path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
        one = {"OMP_NUM_THREADS": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1", "PYTHONPATH": path}
        self._processes = {
            way: subprocess.Popen(
                [sys.executable, "-W", "ignore", "-m", "frameworks.stacks.running", way, *modules],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, **one, **env},
                start_new_session=True,
            )
            for way in WAYS
        }

    def __enter__(self) -> Runner:
        return self

    def run(self, name: str, folder: Path) -> None:
        """Train a stack without and with the hook."""
        for process in self._processes.values():
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(f"{name} {folder}\n")
            process.stdin.flush()
            answer = process.stdout.readline()
            logs = "\n".join(log.read_text(encoding="utf-8") for log in sorted(folder.glob("*.log")))
            assert answer == "trained\n", f"{name}: {answer}\n{logs}"

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End both processes."""
        for process in self._processes.values():
            os.killpg(process.pid, signal.SIGKILL)  # a training that hangs, too
            process.communicate()


def seed() -> None:
    """Give every training the same random numbers."""
    random.seed(0)
    np.random.seed(0)
    if (torch := sys.modules.get("torch")) is not None:
        torch.manual_seed(0)
        torch.set_num_threads(1)


def state_of_random_numbers() -> str:
    """Return a digest of the states of the random generators."""
    states: list[Any] = [random.getstate(), [np.asarray(one).tolist() for one in np.random.get_state()]]
    if (torch := sys.modules.get("torch")) is not None:
        states.append(torch.get_rng_state().tolist())
    return hashlib.sha256(repr(states).encode()).hexdigest()


def outcome(trained: Trained, record: Recorder) -> Outcome:
    """Return what a training has computed."""
    found = dict(trained.weights or {})
    for number, model in enumerate(trained.models):
        found |= {f"{number}/{name}": one for name, one in model.state_dict().items() if hasattr(one, "detach")}
    weights = {name: (array.dtype.str, array.tobytes()) for name, array in ((n, to_numpy(o)) for n, o in found.items())}
    losses = {name: np.array(series).tobytes() for name, series in trained.series.items()}
    assert weights
    assert losses
    return Outcome(losses, weights, state_of_random_numbers(), record.start, record.gradients)


def train(stack: Stack, folder: Path, way: str, rank: int) -> None:
    """Train in this process, and write the outcome."""
    os.chdir(folder / way)
    if stack.workers > 1:
        import torch.distributed as dist

        os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(stack.workers), "LOCAL_RANK": str(rank)}
        meeting = (folder / f"{way}-meeting").as_uri()
        wait = datetime.timedelta(seconds=SECONDS)
        dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=stack.workers, timeout=wait)
    seed()
    record = Recorder(folder / "run" if way == "hooked" else None)
    trained = stack.train(record)
    record.close()
    found = outcome(trained, record)
    (folder / f"{way}-{rank}.pickle").write_bytes(pickle.dumps(found))
    if stack.workers > 1:
        dist.barrier()
        dist.destroy_process_group()


def fork(stack: Stack, folder: Path, way: str, rank: int) -> int:
    """Start a process that trains; return its id."""
    pid = os.fork()
    if pid:
        return pid
    log = os.open(folder / f"{way}-{rank}.log", os.O_CREAT | os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(log, stream)
    code = 1
    try:
        train(stack, folder, way, rank)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main(way: str, modules: list[str]) -> None:
    """Train the stacks that are asked for."""
    for module in modules:
        importlib.import_module(f"frameworks.stacks.{module}")
    for line in sys.stdin:
        name, folder = line.rstrip("\n").split(" ", 1)
        stack, place = STACKS[name], Path(folder)
        for module in (*stack.needs, *(stack.hooks if way == "hooked" else ())):
            importlib.import_module(module)
        (place / way).mkdir()
        started = [fork(stack, place, way, rank) for rank in range(stack.workers)]
        ended = [os.waitpid(pid, 0)[1] for pid in started]
        print(f"the training failed ({way})" if any(ended) else "trained", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
