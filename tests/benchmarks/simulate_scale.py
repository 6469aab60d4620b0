"""Simulate sweeps of runs in a bucket by many workers, event by event.

Usage: `python tests/benchmarks/simulate_scale.py [--write]`.

The scheduler submits parts of about one second, some ahead for each worker, and spends some milliseconds on each. A
worker requests the objects of a part with so many connections; each response has a latency and shares the worker's
bandwidth; records take CPU time. The bucket answers so many requests a second of the whole run: the next request waits
for a token. Small objects of one step are one event, so that 10 TB take seconds to simulate.

The constants are those of `smdwidgets.trials.plans`, and the prices are list prices of one provider; machine time is
not priced.
"""

from __future__ import annotations

import argparse
import heapq
import sys
from dataclasses import dataclass

import report

from smdwidgets.executors.dask_sweep import AHEAD
from smdwidgets.trials.plans import MOST_BYTES, MOST_FILES, MOST_RECORDS, REMOTE, Rates

#: Requests a second that a bucket answers for one run, and index objects a second that one process reads.
GETS_A_SECOND, INDEX_A_SECOND = 5500.0, 2000.0
#: Dollars a request.
DOLLARS_GET, DOLLARS_LIST = 0.0004 / 1000, 0.005 / 1000
#: Seconds that the scheduler spends on a part.
SCHEDULING = 0.004
#: Bytes of one ranged read, and keys of one listing.
PIECE, PAGE = 8 << 20, 1000


@dataclass(frozen=True)
class Load:
    """A run in a bucket."""

    name: str
    bytes: float
    steps: int
    tensors: int

    @property
    def gets_a_step(self) -> int:
        """Ranged reads of the values of a step."""
        return max(1, round(self.bytes / self.steps / PIECE + 0.5))

    @property
    def requests(self) -> tuple[int, int]:
        """Number of GET requests, with those of the index, and of LIST requests."""
        return self.steps * (1 + self.gets_a_step), -(-self.steps // PAGE)

    @property
    def dollars(self) -> float:
        """Price of the requests."""
        gets, lists = self.requests
        return gets * DOLLARS_GET + lists * DOLLARS_LIST

    @property
    def opening(self) -> float:
        """Seconds to read the index without a manifest, by one process."""
        return self.requests[1] * 0.02 * 2 + self.steps / INDEX_A_SECOND

    def parts(self, rates: Rates, workers: int) -> list[int]:
        """Return the numbers of steps of the parts."""
        size = self.bytes / self.steps
        seconds = rates.seconds(size, self.gets_a_step, self.tensors)
        aim = min(1.0, max(0.2, seconds * self.steps / workers))
        most = min(aim / seconds, MOST_BYTES / size, MOST_FILES, MOST_RECORDS / self.tensors)
        steps = max(1, int(most))
        whole, rest = divmod(self.steps, steps)
        return [steps] * whole + [rest] * bool(rest)


class Bucket:
    """Answers so many requests a second."""

    def __init__(self, rate: float) -> None:
        self._interval = 1 / rate
        self._free = 0.0

    def ask(self, now: float, requests: int) -> float:
        """Return when the bucket has answered requests that are sent now."""
        self._free = max(now, self._free) + requests * self._interval
        return self._free


def simulate(
    load: Load,
    workers: int,
    rates: Rates = REMOTE,
    gets_a_second: float = GETS_A_SECOND,
    scheduling: float = SCHEDULING,
) -> float:
    """Return the seconds of a sweep."""
    bucket = Bucket(gets_a_second)
    waiting = load.parts(rates, workers)[::-1]
    size = load.bytes / load.steps
    scheduler, end = 0.0, 0.0
    queues: list[int] = [0] * workers
    #: Events: time, number, worker, steps left of the part or -1 for the arrival of a part.
    events: list[tuple[float, int, int, int]] = []
    arrived: list[list[int]] = [[] for _ in range(workers)]
    busy = [False] * workers
    number = 0

    def push(time: float, worker: int, steps: int) -> None:
        nonlocal number
        number += 1
        heapq.heappush(events, (time, number, worker, steps))

    def submit(now: float, worker: int) -> None:
        nonlocal scheduler
        if waiting:
            scheduler = max(now, scheduler) + scheduling
            queues[worker] += 1
            arrived[worker].append(waiting.pop())
            push(scheduler, worker, -1)

    for _ in range(AHEAD):
        for worker in range(workers):
            submit(0.0, worker)
    while events:
        now, _, worker, steps = heapq.heappop(events)
        if steps == 0:
            end = now
            busy[worker] = False
            queues[worker] -= 1
            submit(now, worker)
        if steps <= 0:
            if not busy[worker] and arrived[worker]:
                busy[worker] = True
                push(now + rates.latency, worker, arrived[worker].pop(0))
            continue
        # Some steps at once: as many as have their requests in flight.
        some = min(steps, max(1, rates.concurrency // load.gets_a_step))
        answered = bucket.ask(now, some * load.gets_a_step)
        taken = rates.seconds(some * size, some * load.gets_a_step, some * load.tensors)
        push(max(answered, now + taken), worker, steps - some)
    return end


LOADS = (
    Load("1 GB, 1,000 steps", 1e9, 1_000, 20),
    Load("100 GB, 10,000 steps", 100e9, 10_000, 100),
    Load("10 TB, 100,000 steps", 10e12, 100_000, 300),
)


def shown(seconds: float) -> str:
    """Return a duration with a suitable unit."""
    return (
        f"{seconds:.2g} s"
        if seconds < 120
        else f"{seconds / 60:.0f} min"
        if seconds < 7200
        else f"{seconds / 3600:.1f} h"
    )


def table() -> str:
    """Return the table of the cost model."""
    rows = []
    for load in LOADS:
        gets, lists = load.requests
        seconds = [shown(simulate(load, workers)) for workers in (1, 8, 128)]
        rows.append([load.name, f"{gets:,} + {lists:,}", f"${load.dollars:.4g}", shown(load.opening), *seconds])
    head = ["run", "GET + LIST", "requests", "opening", "1 worker", "8 workers", "128 workers"]
    return report.table(head, rows)


def main() -> int:
    """Print the table, or write it to RESULTS.md."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--write", action="store_true")
    text = table()
    print(text)
    if options.parse_args().write:
        body = (
            "`python tests/benchmarks/simulate_scale.py --write`. Simulated, with the constants of the program: 200 MB/s and "
            "200,000 records/s a worker, 20 ms, 64 connections, 5,500 GET/s for the run, 4 ms a part. `bench_scale.py` "
            "compares the simulation with measured points.\n\n"
        )
        report.write_section("Simulated sweeps by many workers", body + text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
