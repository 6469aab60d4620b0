"""Seed, size and counters of all parts of the fault campaign.

`FAULTS_SEED` selects other inputs, `FAULTS_SIZE=long` all inputs. The default is the same small sample for every run.
"""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

SEED = int(os.environ.get("FAULTS_SEED", "1"))
LONG = os.environ.get("FAULTS_SIZE", "short") == "long"
FIGURES = Path(__file__).resolve().parents[2] / ".cache" / "faults"


def rng(*of: object) -> random.Random:
    """Return a random generator for a part; equal seeds give equal sequences."""
    return random.Random(f"{SEED} {of}")


def size(short: int, long: int) -> int:
    """Return a number of cases by campaign size."""
    return long if LONG else short


def some(things: Sequence[T], short: int, chance: random.Random) -> Sequence[T]:
    """Return all items in the long campaign, else a sample in their order."""
    if LONG or len(things) <= short:
        return things
    return [things[at] for at in sorted(chance.sample(range(len(things)), short))]


def most_memory() -> int:
    """Return the peak memory of this process in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


@contextmanager
def tally(name: str) -> Iterator[Counter[str]]:
    """Counts outcomes, and stores them for `make faults`."""
    counts: Counter[str] = Counter()
    began = time.monotonic()
    yield counts
    FIGURES.mkdir(parents=True, exist_ok=True)
    said = {"name": name, "seed": SEED, "long": LONG, "seconds": round(time.monotonic() - began, 1), **counts}
    (FIGURES / f"{name.replace(' ', '-')}.json").write_text(json.dumps(said))


@contextmanager
def writer_process(script: str) -> Iterator[subprocess.Popen[str]]:
    """Run a script of this folder that starts writers, until its input ends.

    A test that fails leaves a writer that nobody kills, so that the whole group of processes is.
    """
    command = [sys.executable, str(Path(__file__).with_name(script))]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, start_new_session=True, **pipes) as process:
        try:
            yield process
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(60) == 0
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
