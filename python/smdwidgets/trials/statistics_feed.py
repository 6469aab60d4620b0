"""Read all statistics of a run in portions.

Stored statistics come first. The others are computed from values, which are read in blocks of steps. The order of the blocks
is bit-reversed, so that early portions are spread over the whole run.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from smdwidgets import _core
from smdwidgets.executors import current
from smdwidgets.modes import ModeKeys
from smdwidgets.trials import sweeps
from smdwidgets.trials.plans import MOST_BYTES
from smdwidgets.trials.statistics import _combined, _missing, _only, _sharded, _with_run_names
from smdwidgets.trials.statistics_file import Table, selected
from smdwidgets.trials.trial import Trial

#: Bytes of values that a block has, and the number of blocks of a whole run at least.
_BLOCK_BYTES, _BLOCKS = 8 << 20, 16
#: Steps after the last known one that are looked up in the statistics file.
_AHEAD = 1 << 16


@dataclass
class Block:
    """Tensors with the same steps, and the part of the steps to read."""

    names: list[str]
    steps: list[int]
    #: The saved step before, from which the change of the first step is computed.
    before: int | None
    #: Estimated size of the values.
    size: float
    #: Steps that were read alone, without the change since the step before. They are read again with the others.
    sampled: set[int] = field(default_factory=set)
    #: Whether this is such a step, whose statistics are not cached because the change is missing.
    alone: bool = False

    @property
    def unread(self) -> list[int]:
        """The steps that were not read at all."""
        return [step for step in self.steps if step not in self.sampled] if self.sampled else self.steps

    @property
    def records(self) -> int:
        """Number of unread values of one worker."""
        return len(self.names) * (len(self.steps) - len(self.sampled))


@dataclass
class _Schedule:
    """Tensors that were saved at the same steps."""

    names: list[str]
    steps: list[int]
    bytes_a_step: float = field(default=0.0)


class StatisticsFeed:
    """The statistics of all tensors of a run, each read once.

    The run may grow.

    Not thread-safe.
    """

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        #: The last step read from the statistics file, by worker.
        self._in_file: dict[str, int] = {}
        #: The last step of tensors that are not in the file that was planned to be read.
        self._planned = -1
        self._cache_read = False

    def stored_records(self) -> int:
        """Return the number of records in the statistics file and the cache."""
        run = self._trial._run
        file, kept = run.statistics_file(), run.statistics_cache("every")
        return (0 if file is None else file.size()[1]) + (0 if kept is None else kept.records())

    def stored(self) -> list[Table]:
        """Return what is new in the statistics file of the run."""
        run = self._trial._run
        file = run.statistics_file()
        if file is None:
            return []
        tables = []
        for worker in file.workers():
            last = self._in_file.get(worker)
            steps = None if last is None else range(last + 1, last + _AHEAD)
            table = file.read(None, steps, [worker])
            if len(table["step"]):
                self._in_file[worker] = int(table["step"].max())
                table["error"] = [("", -1, None, error) for error in table["error"]]
                tables.append(_with_run_names(run, table))
        return tables

    def plan(self, spread: bool = True) -> tuple[list[Table], list[Block]]:
        """Return cached statistics, and the blocks of new steps to read, in order."""
        trial, run = self._trial, self._trial._run
        run.load()
        until = trial._complete.until
        file = run.statistics_file()
        stored = set() if file is None else set(file.names())
        wanted = {name: steps for name, steps in self._new(until).items() if name not in stored}
        if not wanted:
            return [], []
        tables = self._cached(wanted)
        for table in tables:
            wanted = _missing(table, wanted)
        # What a live run has added needs no parts.
        parts = _BLOCKS if self._planned < 0 else 1
        self._planned = until
        blocks: list[Block] = []
        for schedule in self._schedules(wanted):
            blocks += self._blocks(schedule, parts)
        return tables, [blocks[at] for at in bit_reversed(len(blocks))] if spread else blocks

    def _new(self, until: int) -> dict[str, list[int]]:
        """Return the complete steps of each tensor that were not planned yet."""
        index = self._trial._run.index
        found: dict[str, list[int]] = {}
        if self._planned < 0:
            for name in self._trial._names(None, ModeKeys.GLOBAL):
                steps = index.steps_of(name)
                if steps := steps[: bisect_right(steps, until)]:
                    found[name] = steps
            return found
        steps = index.steps()
        for step in steps[bisect_right(steps, self._planned) : bisect_right(steps, until)]:
            for name in index.names_at(step):
                found.setdefault(name, []).append(step)
        return found

    def _cached(self, wanted: dict[str, list[int]]) -> list[Table]:
        """Return what an earlier process computed."""
        kept = None if self._cache_read else self._trial._run.statistics_cache("every")
        self._cache_read = True
        table = None if kept is None else kept.read(list(wanted))
        return [] if table is None else [_only(table, wanted)]

    def _schedules(self, wanted: dict[str, list[int]]) -> list[_Schedule]:
        found: dict[tuple[int, ...], _Schedule] = {}
        for name, steps in wanted.items():
            schedule = found.setdefault(tuple(steps), _Schedule([], steps))
            schedule.names.append(name)
            schedule.bytes_a_step += self._size(name, steps[len(steps) // 2])
        return list(found.values())

    def _size(self, name: str, step: int) -> float:
        """Return the approximate size of a tensor at a step, of all workers."""
        index = self._trial._run.index
        place = index.find(name, step)
        return float(getattr(place, "length", 0) or 0) * len(index.workers_of(name, step))

    def _blocks(self, schedule: _Schedule, parts: int) -> list[Block]:
        steps = schedule.steps
        executor = current()
        most = _BLOCK_BYTES if executor is None else MOST_BYTES * executor.slots
        parts = parts if executor is None else 1
        count = min(len(steps), max(parts, int(len(steps) * schedule.bytes_a_step // most)))
        every = self._trial._run.index.steps_of(schedule.names[0])
        blocks = []
        for part in np.array_split(steps, count):
            place = int(np.searchsorted(every, part[0]))
            before = every[place - 1] if place else None
            size = schedule.bytes_a_step * len(part)
            blocks.append(Block(schedule.names, part.tolist(), before, size))
        return blocks

    def read(self, block: Block, threads: int | None, cancel: _core.Cancel | None = None) -> Table:
        """Compute the statistics of a block, and cache them."""
        run = self._trial._run
        before = [] if block.before is None else [block.before]
        steps = [*before, *block.steps]
        table = sweeps.statistics(self._trial, block.names, steps, [], threads=threads, cancel=cancel)
        errors = [error for error in table["error"] if error[1] in set(block.steps)]
        table = {**selected(table, np.isin(table["step"], block.steps)), "error": errors}
        if not block.alone and (kept := run.statistics_cache("every")):
            kept.add(table, self._trial._complete.until)
        return table

    def assembled(self, table: Table) -> Table | None:
        """Return the statistics of sharded tensors, combined from those of their shards."""
        run = self._trial._run
        if not getattr(run.index, "has_shards", False):
            return None
        sharded = {name: _sharded(run, name) for name in dict.fromkeys(table["name"].tolist())}
        shards: dict[tuple[str, int], list[int]] = {}
        for row, pair in enumerate(zip(table["name"].tolist(), table["step"].tolist(), strict=True)):
            if sharded[pair[0]] is not None:
                shards.setdefault(pair, []).append(row)
        return _combined({**table, "error": []}, shards, sharded) if shards else None


def sampled(blocks: Sequence[Block], size: float) -> list[Block]:
    """Return evenly spread single steps of blocks with at most so many bytes.

    >>> [block.steps for block in sampled([Block(["w"], list(range(8)), None, 8e6)], 2e6)]
    [[0], [4]]
    """
    total = sum(block.size for block in blocks)
    share = min(1.0, size / max(1.0, total))
    chosen, taken, due = [], 0, 0.0
    for block in blocks:
        for step in block.steps:
            if taken <= due:
                chosen.append(Block(block.names, [step], None, block.size / len(block.steps), alone=True))
                taken += 1
            due += share
    return chosen


def bit_reversed(count: int) -> list[int]:
    """Return the numbers below ``count`` in bit-reversed order.

    >>> bit_reversed(6)
    [0, 4, 2, 1, 5, 3]
    """
    bits = max(0, count - 1).bit_length()
    order = (int(f"{at:0{bits}b}"[::-1], 2) if bits else at for at in range(1 << bits))
    return [at for at in order if at < count]
