"""Time statistics of a run.

Usage: `python ours_scale.py URL WORKERS CONCURRENCY`. With 0 workers, this process reads the run.

A cluster is started and the run is opened before the clock starts. Each worker, or the process without workers,
computes with one thread, and reads a bucket with so many connections.
"""

from __future__ import annotations

import hashlib
import resource
import sys
import time
from contextlib import ExitStack
from typing import Any

from clock import print_result

import smdwidgets
from smdwidgets.trials import plans, sweeps


def peak() -> int:
    """Return the peak memory of this process in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def digest(table: Any) -> int:
    """Return a number that differs if any bit of the numbers differs."""
    content = b"".join(table[name].tobytes() for name in table if table[name].dtype != object)
    return int.from_bytes(hashlib.sha256(content).digest()[:6], "big")


def main(url: str, workers: int, concurrency: int) -> None:
    """Print seconds, the digest of the result, and the peak memory of the workers."""
    remote = "://" in url
    if remote:  # the parts are cut for these connections
        plans.REMOTE = sweeps.REMOTE = plans.REMOTE._replace(concurrency=concurrency)
    with ExitStack() as stack:
        client = None
        if workers:
            from distributed import Client, LocalCluster

            cluster = LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=":0")
            client = stack.enter_context(Client(stack.enter_context(cluster)))
            client.run(__import__, "smdwidgets.trials.sweeps")
        trial = stack.enter_context(smdwidgets.create_trial(url, **({"concurrency": concurrency} if remote else {})))
        trial.tensor_names()
        parts: list[int] = []
        begin = time.perf_counter()
        table = trial.statistics(cache=False, client=client, threads=1, progress=lambda *done: parts.append(1))
        seconds = time.perf_counter() - begin
        memory = max(client.run(peak).values()) if client is not None else peak()
        print_result(
            {
                "seconds": seconds,
                "rows": table.num_rows,
                "digest": digest(table),
                "memory": memory,
                "parts": len(parts) if workers else 1,
            }
        )


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
