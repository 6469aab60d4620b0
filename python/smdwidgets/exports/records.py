"""All records of a run that somebody wants, in the order of steps, a few megabytes at a time."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smdwidgets.exceptions import InvalidWorker, SMDebugValueError
from smdwidgets.modes import ModeKeys
from smdwidgets.storage import LocalStorage
from smdwidgets.trials.columns import Failure
from smdwidgets.trials.local import LocalTrial
from smdwidgets.trials.run import Row
from smdwidgets.trials.trial import Trial

#: Values are read side by side up to so many bytes, or one value if that alone is larger.
BATCH_BYTES = 32 << 20
BATCH_ROWS = 4096
#: Where the size of a record can't be told before it is read.
_UNKNOWN = 64 << 10


class Record(NamedTuple):
    """A tensor at a step of a worker: its value, or what was saved in its place."""

    tensor: str
    step: int
    mode: str
    mode_step: int
    worker: str
    value: NDArray[Any] | None
    shape: tuple[int, ...] | None
    reductions: dict[str, float]
    time: float | None
    """When it was written, in seconds since 1970, where that is known."""


@dataclass(frozen=True)
class Wanted:
    """Which tensors at which steps. ``steps`` are in the count of ``mode``; None is all."""

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
    ) -> Wanted:
        """What the arguments of an export mean for a run."""
        names = trial.tensor_names(mode=mode, regex=tensors)
        if not names:
            raise SMDebugValueError("The run has no tensor" + (" of such a name." if tensors else " yet."))
        chosen = None if workers is None else frozenset([workers] if isinstance(workers, str) else workers)
        there = trial.workers()
        for worker in sorted(chosen or ()):
            if worker not in there:
                raise InvalidWorker(worker, there)
        at = steps if steps is None or isinstance(steps, range) else frozenset(steps)
        return cls(frozenset(names), at, mode, chosen)


def global_steps(trial: Trial, wanted: Wanted) -> list[int]:
    """The steps of the run that are wanted, in their order."""
    index = trial._run.index
    trial._run.load()
    steps = index.steps(wanted.mode.value)
    if wanted.steps is None:
        return steps
    if wanted.mode == ModeKeys.GLOBAL:
        return [step for step in steps if step in wanted.steps]
    return [step for step in steps if (index.mode_of(step) or (0, step))[1] in wanted.steps]


def records(trial: Trial, steps: Iterable[int], wanted: Wanted, failed: list[Failure]) -> Iterator[list[Record]]:
    """Batches of records; what can't be read is put into ``failed``."""
    index = trial._run.index
    times = _Times(trial)
    batch: list[Row] = []
    size = 0
    for step in steps:
        for name in index.names_at(step):
            if name not in wanted.names:
                continue
            for worker in index.workers_of(name, step):
                if wanted.workers is not None and worker not in wanted.workers:
                    continue
                place = index.find(name, step, worker)
                length = 0 if place is None else int(getattr(place, "length", _UNKNOWN))
                if batch and (size + length > BATCH_BYTES or len(batch) >= BATCH_ROWS):
                    yield _read(trial, batch, failed, times)
                    batch, size = [], 0
                batch.append((name, step, worker))
                size += length
    if batch:
        yield _read(trial, batch, failed, times)


def _read(trial: Trial, rows: list[Row], failed: list[Failure], times: _Times) -> list[Record]:
    index = trial._run.index
    values, errors = trial._run.values(rows)
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
        where = (name, step, ModeKeys(number).name, mode_step, str(worker))
        found.append(Record(*where, array, shape, saved, times.of(place)))
    return found


class _Times:
    """When records were written: a log says it itself, elsewhere the file on disk does."""

    def __init__(self, trial: Trial) -> None:
        # In a bucket each would be a request.
        self._storage = LocalStorage(trial.path) if isinstance(trial, LocalTrial) else None
        self._last: tuple[str, float | None] = ("", None)

    def of(self, place: Any) -> float | None:
        """Seconds since 1970; None where that can't be told cheaply."""
        if place is None or self._storage is None:
            return getattr(place, "wall_time", None)
        if self._last[0] != place.event_key:
            age = self._storage.age(place.event_key)
            self._last = (place.event_key, None if age is None else time.time() - age)
        return self._last[1]


def _saved(trial: Trial, name: str, step: int, worker: str | None) -> dict[str, float]:
    """Reductions that were saved in place of a value, by the names under which :meth:`Trial.reductions` has them."""
    tensor = trial.tensor(name)
    stored = trial._run.index.stored_reductions(name, step, worker)
    return {
        f"abs_{op}" if absolute else op: float(tensor.reduction_value(step, op, worker=worker, abs=absolute))
        for op, absolute, _ in stored
    }
