"""Time smdwidgets on a run in a store.

Usage: `python ours_stores.py open URL [CONCURRENCY]`, or `one URL VALUES`, or `all URL VALUES`. An earlier version runs
the same program.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable

# smdebug imports it too, before its clock starts.
import boto3  # noqa: F401
from clock import print_result

from smdwidgets import create_trial
from smdwidgets.trials import Trial

TENSORS = 10


def timed(work: Callable[[], object]) -> dict[str, float]:
    """Return wall and CPU seconds of a call, and the MB that it added to the peak."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    cpu, wall = time.process_time(), time.perf_counter()
    work()
    taken = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    return taken | {"memory": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024}


def opening(url: str, *concurrency: str) -> dict[str, float]:
    """Measure until names and locations of all tensors and steps are known."""
    opened: list[Trial] = []

    def work() -> None:
        opened.append(create_trial(url, **({"concurrency": int(concurrency[0])} if concurrency else {})))
        opened[0].tensor_names()
        opened[0].steps()

    taken = timed(work)
    with opened[0] as trial:
        return taken | {"steps": len(trial.steps())}


def one_by_one(url: str, count: str) -> dict[str, float]:
    """Read so many values, each by a call."""
    with create_trial(url) as trial:
        trial.tensor_names()
        steps = trial.steps()

        def work() -> None:
            for n in range(int(count)):
                trial.tensor(f"t{n % TENSORS}").value(steps[n // TENSORS])

        return timed(work)


def in_one_call(url: str, count: str) -> dict[str, float]:
    """Read so many values by one call."""
    with create_trial(url) as trial:
        trial.tensor_names()
        wanted = trial.steps()[: int(count) // TENSORS]
        return timed(lambda: trial.values({f"t{n}": wanted for n in range(TENSORS)}))


print_result({"open": opening, "one": one_by_one, "all": in_one_call}[sys.argv[1]](*sys.argv[2:]))
