"""Cut sweeps into parts of about one second, for the workers of an executor.

The time of a part is estimated as ``bytes / rate + requests x latency / concurrency + records / record rate``. Parts
are whole steps, hence whole files. If one step takes so long that a part had only few of them, the tensors are divided,
too: the change of a tensor needs the step before each part, which is read twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smdwidgets.trials.run import Run

#: Seconds that a part takes, and the least unless the sweep is shorter.
AIM, LEAST = 1.0, 0.2
#: Limits of a part.
MOST_BYTES, MOST_FILES, MOST_RECORDS = 2 << 30, 2_000, 50_000
#: Steps of a part, at least, if the step before them is read, too.
_STEPS: Final = 16


class Rates(NamedTuple):
    """What a worker reads.

    Attributes:
        bytes: bytes a second.
        latency: seconds until the response to a request.
        concurrency: requests in flight.
        records: records a second.
    """

    bytes: float
    latency: float
    concurrency: int
    records: float = 200_000.0

    def seconds(self, size: Any, requests: Any, records: Any) -> Any:
        """Return the seconds that a worker takes, for numbers or arrays.

        >>> Rates(200e6, 0.02, 64).seconds(200e6, 64, 20_000)
        1.12
        """
        return size / self.bytes + requests * self.latency / self.concurrency + records / self.records


#: One core that reads files of the page cache, and one worker that reads a bucket in the same region.
LOCAL = Rates(6e9, 0.0002, 1)
REMOTE = Rates(200e6, 0.02, 64)


@dataclass(frozen=True)
class Part:
    """Tensors and steps that one task sweeps.

    Attributes:
        number: identity of the part.
        names: places in the sweep's list of names.
        steps: global steps.
        before: earlier steps to read, with the places of the names that they are the steps before for.
        size: estimated bytes.
    """

    number: int
    names: NDArray[np.uint32]
    steps: list[int]
    before: list[tuple[int, list[int]]]
    size: int


def cut(
    run: Run, names: Sequence[str], steps: Sequence[int], rates: Rates, slots: int, *, with_change: bool = False
) -> list[Part]:
    """Cut a sweep of these tensors and steps into parts.

    Args:
        run: the run, whose index has been read.
        names: names of tensors.
        steps: ascending global steps.
        rates: what a worker reads.
        slots: number of tasks that run at the same time.
        with_change: whether a part needs the values before its first step.
    """
    load = _Load(run, names, np.asarray(steps, np.int64))
    if not load.total_records:
        return []
    seconds = rates.seconds(load.size, load.files, load.records)
    aim = min(AIM, max(LEAST, float(seconds.sum()) / max(1, slots)))
    parts: list[Part] = []
    for group in _groups(load, rates, aim) if with_change else [load.every]:
        size, records = load.of(group)
        seconds = rates.seconds(size, load.files, records)
        columns = np.stack([seconds / aim, size / MOST_BYTES, load.files / MOST_FILES, records / MOST_RECORDS])
        for start, end in _ranges(columns):
            if records[start:end].sum():
                chosen = load.steps[start:end].tolist()
                before = load.before(group, chosen[0]) if with_change and start else []
                parts.append(Part(len(parts), group, chosen, before, int(size[start:end].sum())))
    return parts


def _ranges(columns: NDArray[np.float64]) -> list[tuple[int, int]]:
    """Divide steps into ranges in which no cost exceeds 1.

    The costs of a single step may.

    >>> _ranges(np.array([[0.5, 0.5, 0.5, 2.0, 0.1]]))
    [(0, 2), (2, 3), (3, 4), (4, 5)]
    """
    until = np.concatenate([np.zeros((len(columns), 1)), np.cumsum(columns, axis=1)], axis=1)
    ranges, start = [], 0
    while start < columns.shape[1]:
        limits = until[:, start] + 1 + 1e-9
        end = min(int(np.searchsorted(row, limit, "right")) - 1 for row, limit in zip(until, limits, strict=True))
        end = max(start + 1, end)
        ranges.append((start, end))
        start = end
    return ranges


def _groups(load: _Load, rates: Rates, aim: float) -> list[NDArray[np.uint32]]:
    """Divide the tensors so that a part has enough steps.

    Tensors that lie side by side stay together.
    """
    busy = max(1, int((load.records > 0).sum()))
    a_step = rates.seconds(load.sizes, 0, load.workers).sum() * load.total_records / load.workers.sum() / busy
    groups = min(len(load.sizes), int(np.ceil(a_step * _STEPS / aim)))
    order = np.lexsort((load.offsets, load.keys))
    share = np.cumsum(load.sizes[order]) / max(1.0, load.sizes.sum())
    which = np.minimum((share * groups - 1e-9).astype(int), groups - 1)
    return [np.sort(order[which == group]).astype(np.uint32) for group in np.unique(which)]


class _Load:
    """Estimated bytes, files and records of each step."""

    def __init__(self, run: Run, names: Sequence[str], steps: NDArray[np.int64]) -> None:
        index: Any = run.index
        self.steps = steps
        self.every = np.arange(len(names), dtype=np.uint32)
        self.files = np.array([len(index.workers_at(step)) for step in steps.tolist()], float)
        #: Steps of the sweep at which each tensor was saved, as places.
        self.saved = [np.flatnonzero(np.isin(steps, index.steps_of(name))) for name in names]
        places = [
            index.find(name, int(steps[saved[len(saved) // 2]])) if len(saved) else None
            for name, saved in zip(names, self.saved, strict=True)
        ]
        self.workers = np.array(
            [
                max(1, len(index.workers_of(name, int(steps[saved[len(saved) // 2]])))) if len(saved) else 1
                for name, saved in zip(names, self.saved, strict=True)
            ],
            float,
        )
        self.sizes = np.array([0 if place is None else place.length for place in places], float) * self.workers
        self.offsets = [0 if place is None else place.offset for place in places]
        self.keys = ["" if place is None else place.event_key for place in places]
        self.size, self.records = self.of(self.every)
        self.total_records = float(self.records.sum())

    def of(self, group: NDArray[np.uint32]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return bytes and records of some tensors at each step."""
        size, records = np.zeros(len(self.steps)), np.zeros(len(self.steps))
        for name in group.tolist():
            size[self.saved[name]] += self.sizes[name]
            records[self.saved[name]] += self.workers[name]
        return size, records

    def before(self, group: NDArray[np.uint32], first: int) -> list[tuple[int, list[int]]]:
        """Return the last steps of tensors before a step."""
        place = int(np.searchsorted(self.steps, first))
        found: dict[int, list[int]] = {}
        for name in group.tolist():
            saved = self.saved[name]
            if at := int(np.searchsorted(saved, place)):
                found.setdefault(int(self.steps[saved[at - 1]]), []).append(name)
        return sorted(found.items())
