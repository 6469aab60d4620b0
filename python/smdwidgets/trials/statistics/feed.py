"""Read all statistics of a run in portions.

Stored statistics come first. The others are computed from values, which are read in blocks of steps: by this process,
or each by a worker of an executor. Blocks are read in several places of the run at once, so that early portions are
spread over it.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from smdwidgets import _core
from smdwidgets.executors import Executor
from smdwidgets.trials import plans, sweeps
from smdwidgets.trials.reader import RunReader
from smdwidgets.trials.run import RecordedStatistics, Selection, SweepOptions
from smdwidgets.trials.statistics.kept_pyramids import FEWEST_ROWS
from smdwidgets.trials.statistics.table import _combined, _missing, _only, _sharded, _with_run_names
from smdwidgets.trials.tables import Table, selected

#: Bytes of values that a block has, and the number of blocks of a whole run at least.
_BLOCK_BYTES, _BLOCKS = 8 << 20, 16
#: Steps of a block that a worker reads, at least, because it reads the step before them, too.
_FEWEST_STEPS = 16
#: Places of a run at which blocks are read at once.
_PLACES = 16
#: Steps after the last known one that are looked up in the statistics file.
_AHEAD = 1 << 16
#: Rows of the statistics file that are read at once.
_ROWS = 500_000


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

    #: Identifies the tensors among those of the run.
    group: str = ""

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
    #: Bytes of each tensor at a step, of all workers.
    sizes: list[float] = field(default_factory=list)

    @property
    def bytes_a_step(self) -> float:
        """Bytes of all tensors at a step."""
        return sum(self.sizes)


class StatisticsFeed:
    """The statistics of all tensors of a run, each read once.

    The run may grow.

    Not thread-safe.
    """

    def __init__(self, reader: RunReader) -> None:
        self._reader = reader
        #: The last step read from the statistics file, by worker.
        self._in_file: dict[str, int] = {}
        #: The last step of tensors that are not in the file that was planned to be read.
        self._planned = -1
        self._cache_read = False

    def stored_records(self) -> int:
        """Return the number of records in the statistics file and the cache."""
        run = self._reader.run
        file, kept = run.statistics_file(), run.statistics_cache("every")
        rows = 0 if file is None else file.size()[1] - sum(pyramid.rows[0] for _, pyramid in self._pyramids(file))
        return rows + (0 if kept is None else kept.records())

    def _pyramids(
        self, file: RecordedStatistics, build: Callable[[int, int], object] | None = None
    ) -> Iterator[tuple[str, _core.Pyramid]]:
        """Yield workers with their pyramids.

        With `build`, missing ones are built; it is called as the `progress` of `pyramids` is.
        """
        run = self._reader.run
        # The statistics of whole tensors are combined from those of shards, which needs rows.
        if getattr(run.index, "has_shards", False):
            return
        kept = run.kept_pyramids()
        # The hook of a run that grows writes its pyramid; another one would have to be built again and again.
        builds = build is not None and self._reader.loaded_all_steps and file.size()[1] >= FEWEST_ROWS
        for worker in file.workers():
            pyramid = file.pyramid(worker)
            if pyramid is None and kept is not None:
                pyramid = kept.make(file, worker, build) if build and builds else kept.get(file, worker)
            if pyramid is not None:
                yield worker, pyramid

    def pyramids(self, progress: Callable[[int, int], object]) -> Iterator[tuple[str, _core.Pyramid]]:
        """Yield the workers whose statistics have a pyramid, unless they were read before.

        Large statistics of a run that has ended get one. `stored` then yields what follows.

        Args:
            progress: called with the number of rows done and their total; what it raises ends the work.
        """
        run = self._reader.run
        run.load()
        file = run.statistics_file()
        if file is None:
            return
        for worker, pyramid in self._pyramids(file, progress):
            if worker not in self._in_file:
                self._in_file[worker] = pyramid.ends[1]
                yield worker, pyramid

    def stored(self) -> Iterator[tuple[Table, int | None]]:
        """Yield what is new in the statistics file of the run.

        It comes by worker, in portions of limited size.

        The number is the last step of the portion before.
        """
        run = self._reader.run
        file = run.statistics_file()
        if file is None:
            return
        for worker in file.workers():
            for steps in self._portions(file, self._in_file.get(worker)):
                table = file.read(None, steps, [worker])
                if len(table["step"]):
                    before = self._in_file.get(worker)
                    self._in_file[worker] = int(table["step"].max())
                    table["error"] = [("", -1, None, error) for error in table["error"]]
                    yield _with_run_names(run, table), before

    def _portions(self, file: RecordedStatistics, last: int | None) -> Iterable[range | None]:
        """Return the steps after the last known one, in portions; None: all."""
        rows, until = file.size()[1], self._reader.index.last_step()
        begin = 0 if last is None else last + 1
        steps = 0 if until is None else until + 1
        # If a run has many rows, some of them follow its pyramid.
        if rows * (steps - begin) <= _ROWS * steps:
            return [None] if last is None else [range(begin, max(begin, steps) + _AHEAD)]
        width = max(1, steps * _ROWS // rows)
        begins = range(begin, steps, width)
        return [*(range(first, min(first + width, steps)) for first in begins), range(steps, steps + _AHEAD)]

    def plan(self, spread: bool = True, executor: Executor | None = None) -> tuple[list[Table], list[Block]]:
        """Return cached statistics, and the blocks of new steps to read, in order.

        Args:
            spread: whether the first blocks are spread over the run.
            executor: the executor whose workers will read them, each about one second; None: this process will.
        """
        reader, run = self._reader, self._reader.run
        # First: without its cluster, the plan is made again.
        slots = None if executor is None or not self.can_be_sent else executor.slots
        run.load()
        until = reader.complete_until
        file = run.statistics_file()
        stored = set() if file is None else set(file.names())
        wanted = self._new(until, stored)
        if not wanted:
            return [], []
        tables = self._cached(wanted)
        for table in tables:
            wanted = _missing(table, wanted)
        # What a live run has added needs no parts.
        least = _BLOCKS if self._planned < 0 else 1
        self._planned = until
        blocks: list[Block] = []
        for schedule in self._schedules(wanted):
            if slots is None:
                count = int(len(schedule.steps) * schedule.bytes_a_step // _BLOCK_BYTES)
                blocks += self._cut(schedule, max(least, count))
            else:
                for share, count in self._shares(schedule, slots):
                    blocks += self._cut(share, count)
        return tables, [blocks[at] for at in spread_out(len(blocks))] if spread else blocks

    def _new(self, until: int, stored: Container[str]) -> dict[str, list[int]]:
        """Return the complete steps that were not planned yet.

        These are those of each tensor that has no stored statistics.

        Tensors with the same steps share one list: of a long run, the lists of all tensors would be as large as its
        index.
        """
        index = self._reader.index
        found: dict[str, list[int]] = {}
        if self._planned < 0:
            shared: dict[bytes, list[int]] = {}
            for name in self._reader.names():
                if name in stored:
                    continue
                steps = index.steps_of(name)
                if steps := steps[: bisect_right(steps, until)]:
                    found[name] = shared.setdefault(np.array(steps, np.int64).tobytes(), steps)
            return found
        steps = index.steps()
        for step in steps[bisect_right(steps, self._planned) : bisect_right(steps, until)]:
            for name in index.names_at(step):
                if name not in stored:
                    found.setdefault(name, []).append(step)
        return found

    def _cached(self, wanted: dict[str, list[int]]) -> list[Table]:
        """Return what an earlier process computed."""
        kept = None if self._cache_read else self._reader.run.statistics_cache("every")
        self._cache_read = True
        table = None if kept is None else kept.read(list(wanted))
        return [] if table is None else [_only(table, wanted)]

    def _schedules(self, wanted: dict[str, list[int]]) -> list[_Schedule]:
        found: dict[bytes, _Schedule] = {}
        keys: dict[int, bytes] = {}  # of lists, most of which are shared
        for name, steps in wanted.items():
            key = keys.get(id(steps))
            if key is None:
                key = keys[id(steps)] = np.array(steps, np.int64).tobytes()
            schedule = found.setdefault(key, _Schedule([], steps))
            schedule.names.append(name)
            schedule.sizes.append(self._size(name, steps[len(steps) // 2]))
        return list(found.values())

    def _size(self, name: str, step: int) -> float:
        """Return the approximate size of a tensor at a step, of all workers."""
        index = self._reader.index
        place = index.find(name, step)
        return float(getattr(place, "length", 0) or 0) * len(index.workers_of(name, step))

    @property
    def can_be_sent(self) -> bool:
        """Whether workers can read the run."""
        return self._reader.run.catalog is not None

    def _shares(self, schedule: _Schedule, slots: int) -> Iterator[tuple[_Schedule, int]]:
        """Yield groups of tensors with their number of blocks.

        A block takes a worker about one second.
        """
        run = self._reader.run
        steps, rates = schedule.steps, sweeps.rates_of(run)
        workers = max(1, len(run.index.workers_at(steps[len(steps) // 2])))
        seconds = float(rates.seconds(schedule.bytes_a_step, workers, workers * len(schedule.names)))
        aim = min(plans.AIM, max(plans.LEAST, seconds * len(steps) / slots))
        groups = min(len(schedule.names), max(1, round(seconds * _FEWEST_STEPS / aim)))
        until = np.cumsum(schedule.sizes)
        which = np.minimum((until / max(1.0, until[-1]) * groups - 1e-9).astype(int), groups - 1)
        for group in np.unique(which).tolist():
            chosen = np.flatnonzero(which == group).tolist()
            names, sizes = [schedule.names[at] for at in chosen], [schedule.sizes[at] for at in chosen]
            share = _Schedule(names, steps, sizes)
            records = workers * len(names)
            costs = [
                float(rates.seconds(share.bytes_a_step, workers, records)) / aim,
                share.bytes_a_step / plans.MOST_BYTES,
                workers / plans.MOST_FILES,
                records / plans.MOST_RECORDS,
            ]
            yield share, int(np.ceil(len(steps) * max(costs)))

    def _cut(self, schedule: _Schedule, count: int) -> list[Block]:
        """Cut the steps of a schedule into so many blocks."""
        steps = schedule.steps
        every = self._reader.index.steps_of(schedule.names[0])
        group = hashlib.sha256("\n".join(schedule.names).encode()).hexdigest()
        blocks = []
        for part in np.array_split(steps, min(len(steps), max(1, count))):
            place = int(np.searchsorted(every, part[0]))
            before = every[place - 1] if place else None
            size = schedule.bytes_a_step * len(part)
            blocks.append(Block(schedule.names, part.tolist(), before, size, group=group))
        return blocks

    def read_all(
        self, blocks: Sequence[Block], executor: Executor, cancelled: Callable[[], bool]
    ) -> Iterator[tuple[Block, Table]]:
        """Yield blocks as the workers of an executor finish them, with their statistics.

        These are not cached.

        Args:
            blocks: the blocks.
            executor: an executor.
            cancelled: polled while waiting; True cancels the rest and raises KeyboardInterrupt.
        """
        pieces = [sweeps.Piece(block.names, block.steps, block.before) for block in blocks]
        for number, table in sweeps.statistics_parts(self._reader, pieces, executor, cancelled):
            yield blocks[number], table

    def read(self, block: Block, threads: int | None, cancel: _core.Cancel | None = None) -> Table:
        """Compute the statistics of a block in this process, and cache them."""
        run = self._reader.run
        before = [] if block.before is None else [block.before]
        steps = [*before, *block.steps]
        table = run.statistics(Selection(block.names, steps, []), SweepOptions(threads, cancel=cancel))
        errors = [error for error in table["error"] if error[1] in set(block.steps)]
        table = {**selected(table, np.isin(table["step"], block.steps)), "error": errors}
        if not block.alone and (kept := run.statistics_cache("every")):
            kept.add(table, self._reader.complete_until)
        return table

    def assembled(self, table: Table) -> Table | None:
        """Return the statistics of sharded tensors, combined from those of their shards."""
        run = self._reader.run
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


def spread_out(count: int) -> list[int]:
    """Order the numbers below ``count``: evenly spread ones first, then on from there.

    >>> spread_out(6)
    [0, 4, 2, 1, 5, 3]
    >>> spread_out(64)[:3], spread_out(64)[16:19]
    ([0, 32, 16], [1, 33, 17])
    """
    places = np.array_split(np.arange(count), min(count, _PLACES) or 1)
    ordered = [places[at].tolist() for at in bit_reversed(len(places))]
    return [each[at] for at in range(len(places[0])) for each in ordered if at < len(each)]


def bit_reversed(count: int) -> list[int]:
    """Return the numbers below ``count`` in bit-reversed order.

    >>> bit_reversed(6)
    [0, 4, 2, 1, 5, 3]
    """
    bits = max(0, count - 1).bit_length()
    order = (int(f"{at:0{bits}b}"[::-1], 2) if bits else at for at in range(1 << bits))
    return [at for at in order if at < count]
