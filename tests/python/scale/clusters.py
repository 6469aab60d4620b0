"""Schedulers and workers as separate processes, as on a cluster."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from distributed import Client

#: A cluster looks for a lost worker's successor 15 seconds later. If that one was killed, too, and is being restarted
#: at this moment, the cluster ends its nanny, and has one worker less from then on.
KEEP_NANNIES = {"distributed.deploy.lost-worker-timeout": "1 day"}
#: Preloaded modules of a process: smdwidgets cannot be imported, or has another version.
WITHOUT = "import sys; sys.modules['smdwidgets'] = None"
OTHER = "from smdwidgets import _core; _core.__version__ = '0.0.1'"


@contextmanager
def process(*command: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program of Python until the end of the block.

    It can import the modules of tests.
    """
    program = [sys.executable, "-m", *command]
    with subprocess.Popen(program, stderr=subprocess.DEVNULL, cwd=Path(__file__).parents[2]) as started:
        try:
            yield started
        finally:
            started.kill()


@contextmanager
def scheduler(folder: Path, *options: str) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Run a scheduler; yield its address and its process."""
    file = folder / "scheduler.json"
    where = ["--host", "127.0.0.1", "--port", "0", "--dashboard-address", "127.0.0.1:0", "--scheduler-file", str(file)]
    with process("distributed.cli.dask_scheduler", *where, *options) as started:
        while not file.exists() or not file.read_text().endswith("}"):
            assert started.poll() is None
            time.sleep(0.05)
        yield json.loads(file.read_text())["address"], started


@contextmanager
def worker(client: Client, *options: str) -> Iterator[str]:
    """Run a worker without a nanny until the end of the block; yield its address."""
    before = set(client.nthreads())
    address = client.scheduler.address
    where = [address, "--no-nanny", "--nthreads", "1", "--host", "127.0.0.1", "--no-dashboard"]
    with process("distributed.cli.dask_worker", *where, *options) as started:
        while not (new := set(client.nthreads()) - before):
            assert started.poll() is None
            time.sleep(0.05)
        yield new.pop()


# ------------------------------------------------------------------------------------------- what tasks of the tests
# call


def pid(number: int, *, cancel: Any) -> int:
    """Return the process of the worker."""
    time.sleep(0.005)
    return os.getpid()


def die(*, cancel: Any) -> None:
    """End the process of the worker."""
    os.kill(os.getpid(), signal.SIGKILL)


#: Memory that a worker may use. One that has just started needs less than a third.
MEMORY_LIMIT = 300 << 20


def fill_memory(*, cancel: Any) -> None:
    """Take as much memory as the process may use, and hold it.

    It takes no more: on a busy machine, its nanny may look at it many seconds later.
    """
    kept = []
    while not cancel.is_set():
        if len(kept) * (8 << 20) < MEMORY_LIMIT:
            kept.append(b"1" * (8 << 20))
        time.sleep(0.01)


def stop(error: type[BaseException], *, cancel: Any) -> None:
    """Raise what ends a process."""
    raise error("reason")
