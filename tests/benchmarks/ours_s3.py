"""Time smdwidgets on a run on S3.

Usage: `python ours_s3.py open URL [CONCURRENCY]`, or `read URL VALUES`; as peer_s3.py.
"""

from __future__ import annotations

import sys
import time

# smdebug imports it too, before its clock starts.
import boto3  # noqa: F401
from clock import print_result

from smdwidgets import create_trial

TENSORS = 10


def opening(url: str, *concurrency: str) -> dict[str, float]:
    """Return seconds until names and locations of all tensors and steps are known."""
    begin = time.perf_counter()
    with create_trial(url, **({"concurrency": int(concurrency[0])} if concurrency else {})) as trial:
        trial.tensor_names()
        steps = trial.steps()
        return {"open": time.perf_counter() - begin, "steps": len(steps)}


def reading(url: str, count: str) -> dict[str, float]:
    """Read so many values one by one, and then all in one call."""
    values = int(count)
    with create_trial(url) as trial:
        trial.tensor_names()
        steps = trial.steps()
        begin = time.perf_counter()
        for n in range(values):
            trial.tensor(f"t{n % TENSORS}").value(steps[n // TENSORS])
        one_by_one = time.perf_counter() - begin
    with create_trial(url) as trial:
        trial.tensor_names()
        begin = time.perf_counter()
        trial.values({f"t{n}": [steps[at] for at in range(values // TENSORS)] for n in range(TENSORS)})
        return {"read": one_by_one, "bulk": time.perf_counter() - begin}


print_result({"open": opening, "read": reading}[sys.argv[1]](*sys.argv[2:]))
