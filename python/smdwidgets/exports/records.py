"""Read the selected records of a run in step order, in bounded batches."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smdwidgets._text import natural, shown
from smdwidgets.exceptions import InvalidWorker, SMDebugValueError
from smdwidgets.modes import ModeKeys
from smdwidgets.storage import LocalStorage
from smdwidgets.trials.columns import Failure
from smdwidgets.trials.matching import matching_names
from smdwidgets.trials.run import Row
from smdwidgets.trials.shards import ASSEMBLED
from smdwidgets.trials.smdebug.local import LocalTrial
from smdwidgets.trials.trial import Trial

#: Maximum size of a batch; a larger value is read alone.
BATCH_BYTES = 32 << 20
BATCH_ROWS = 4096
#: Assumed size of a record whose size is unknown before it is read.
_UNKNOWN = 64 << 10


class Record(NamedTuple):
    """One tensor at one step of one worker.

    Holds its value, or the shape or reductions saved in place of the value.
    """

    tensor: str
    step: int
    mode: str
    mode_step: int
    worker: str
    value: NDArray[Any] | None
    shape: tuple[int, ...] | None
    reductions: dict[str, float]
    time: float | None
    """Write time in seconds since the epoch, if known."""


@dataclass(frozen=True)
class Selection:
    """Selection of tensors, steps and workers.

    ``steps`` are mode steps of ``mode``; None selects all.
    """

    names: frozenset[str]
    steps: range | frozenset[int] | None
    mode: ModeKeys
    workers: frozenset[str] | None

    @classmethod
    def of(
        cls,
        trial: Trial,
        tensors: str | Sequence[str] | None,
        steps: range | Iterable[int] | None,
        mode: ModeKeys,
        workers: str | Sequence[str] | None,
    ) -> Selection:
        """Resolve the arguments of an export for a run."""
        names = matching_names(trial, tensors, mode)
        if not names:
            raise SMDebugValueError(f"run {shown(trial.name)} has no tensors yet")
        chosen = chosen_workers(trial, workers)
        at = steps if steps is None or isinstance(steps, range) else frozenset(steps)
        return cls(frozenset(names), at, mode, chosen)


def chosen_workers(trial: Trial, workers: str | Sequence[str] | None) -> frozenset[str] | None:
    """Return the names of workers, which are those of the run."""
    chosen = None if workers is None else frozenset([workers] if isinstance(workers, str) else workers)
    there = trial.workers()
    for worker in sorted(chosen or ()):
        if worker not in there:
            raise InvalidWorker(worker, there)
    return chosen


def global_steps(trial: Trial, selection: Selection) -> list[int]:
    """Return the selected global steps in ascending order."""
    index = trial.reader.index
    trial.reader.load()
    steps = index.steps(selection.mode.value)
    if selection.steps is None:
        return steps
    if selection.mode == ModeKeys.GLOBAL:
        return [step for step in steps if step in selection.steps]
    return [step for step in steps if (index.mode_of(step) or (0, step))[1] in selection.steps]


def records(trial: Trial, steps: Iterable[int], selection: Selection, failed: list[Failure]) -> Iterator[list[Record]]:
    """Yield batches of records.

    Records that cannot be read are appended to ``failed``.
    """
    reader = trial.reader
    index = reader.index
    times = _Times(trial)
    batch: list[Row] = []
    size = 0
    for step in steps:
        for name in sorted(index.names_at(step), key=natural):
            if name not in selection.names:
                continue
            workers: list[str | None] = list(index.workers_of(name, step))
            places = [index.find(name, step, worker) for worker in workers]
            if selection.workers is None and reader.is_sharded(name, step):
                workers, lengths = [None], [sum(int(place.length) for place in places if place is not None)]
            else:
                lengths = [0 if place is None else int(getattr(place, "length", _UNKNOWN)) for place in places]
            for worker, length in zip(workers, lengths, strict=True):
                if selection.workers is not None and worker not in selection.workers:
                    continue
                if batch and (size + length > BATCH_BYTES or len(batch) >= BATCH_ROWS):
                    yield _read(trial, batch, failed, times)
                    batch, size = [], 0
                batch.append((name, step, worker))
                size += length
    if batch:
        yield _read(trial, batch, failed, times)


def _read(trial: Trial, rows: list[Row], failed: list[Failure], times: _Times) -> list[Record]:
    index = trial.reader.index
    values, errors = trial.reader.values(rows)
    bad = dict(errors)
    found = []
    for at, (name, step, worker) in enumerate(rows):
        if at in bad:
            failed.append(Failure(name, step, worker, bad[at]))
            continue
        value = values[at]
        number, mode_step = index.mode_of(step) or (ModeKeys.GLOBAL.value, step)
        shape = np.shape(value) if value is not None else index.shape_of(name, step, worker)
        saved = _saved(trial, name, step, worker) if value is None else {}
        if value is None and shape is None and not saved:
            continue
        array = None if value is None else np.asarray(value)
        place = index.find(name, step, worker)
        where = (name, step, ModeKeys(number).name, mode_step, worker or ASSEMBLED)
        found.append(Record(*where, array, shape, saved, times.of(place)))
    return found


class _Times:
    """Write times of records, from the log or from the file's modification time."""

    def __init__(self, trial: Trial) -> None:
        # On object storage each lookup would be one request.
        self._storage = LocalStorage(trial.path) if isinstance(trial, LocalTrial) else None
        self._last: tuple[str, float | None] = ("", None)

    def of(self, place: Any) -> float | None:
        """Return seconds since the epoch, or None if they cannot be found cheaply."""
        if place is None or self._storage is None:
            return getattr(place, "wall_time", None)
        if self._last[0] != place.event_key:
            age = self._storage.age(place.event_key)
            self._last = (place.event_key, None if age is None else time.time() - age)
        return self._last[1]


def _saved(trial: Trial, name: str, step: int, worker: str | None) -> dict[str, float]:
    """Return the reductions saved in place of a value.

    Keys are the column names of :meth:`Trial.reductions`.
    """
    tensor = trial.tensor(name)
    stored = trial.reader.index.stored_reductions(name, step, worker)
    return {
        f"abs_{op}" if absolute else op: float(tensor.reduction_value(step, op, worker=worker, abs=absolute))
        for op, absolute, _ in stored
    }
