"""Read values and reductions of many tensors at many steps in one pass."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smdwidgets.exceptions import InvalidWorker, StepDeleted, TensorUnavailable
from smdwidgets.modes import ModeKeys
from smdwidgets.trials import sweeps
from smdwidgets.trials.columns import Columns, Failure
from smdwidgets.trials.queries import RunQueries
from smdwidgets.trials.run import Progress, Row, is_text, possible
from smdwidgets.trials.sharded_run import ASSEMBLED

#: Worker name that selects every worker.
EVERY_WORKER = "*"
#: Mode names by mode number.
MODE_NAMES = np.array(["", *(mode.name for mode in ModeKeys)], dtype=object)


def values(
    trial: RunQueries,
    wanted: Mapping[str, Iterable[int] | None] | Iterable[str] | str | None,
    mode: ModeKeys,
    worker: str | None,
    progress: Progress | None,
    threads: int | None,
) -> Columns:
    """Implement :meth:`smdwidgets.Trial.values`."""
    if worker is not None and not is_text(worker):
        raise InvalidWorker(worker)
    trial.maybe_refresh()
    rows: list[Row] = []
    named: list[tuple[str, int]] = []
    for name, steps in _steps_by_name(trial, wanted).items():
        at = _global_steps(trial, name, steps, mode)
        named += [] if steps is None else [(name, step) for step in at]
        for step in at:
            rows += _rows(trial, name, step, worker)
    index = trial._run.index
    given, failed = trial._run.values(rows, threads=threads, progress=progress)
    errors = [Failure(*rows[row], error) for row, error in failed]
    # A missing value (only a reduction or shape was saved) is not an error.
    kept = [row for row, value in enumerate(given) if value is not None]
    errors = _with_deleted(trial, errors, named, ((rows[row][0], rows[row][1]) for row in kept), worker)
    column = given if isinstance(given, np.ndarray) else _column([given[row] for row in kept])
    modes = [index.mode_of(rows[row][1]) or (ModeKeys.GLOBAL.value, rows[row][1]) for row in kept]
    workers = [rows[row][2] or worker_with_value(trial, rows[row][0], rows[row][1]) for row in kept]
    return Columns(
        {
            "name": np.array([rows[row][0] for row in kept], dtype=object),
            "step": np.array([rows[row][1] for row in kept], dtype=np.int64),
            "mode": MODE_NAMES[np.array([number for number, _ in modes], dtype=np.intp)],
            "mode_step": np.array([mode_step for _, mode_step in modes], dtype=np.int64),
            "worker": np.array(workers, dtype=object),
            "value": column,
        },
        errors,
    )


def reductions(
    trial: RunQueries,
    names: Iterable[str] | str | None,
    steps: Iterable[int] | int | None,
    mode: ModeKeys,
    worker: str | None,
    kinds: Iterable[str] | str | None,
    counts: bool,
    coverage: bool,
    progress: Progress | None,
    threads: int | None,
) -> Columns:
    """Implement :meth:`smdwidgets.Trial.reductions`."""
    if worker is not None and not is_text(worker):
        raise InvalidWorker(worker)
    trial.maybe_refresh()
    chosen = list(_steps_by_name(trial, names))
    at = None if steps is None else [steps] if isinstance(steps, int) else list(steps)
    if at is not None and mode != ModeKeys.GLOBAL:
        at = [step for step in (trial._global_step(mode, one) for one in at) if step is not None]
    elif at is None and mode != ModeKeys.GLOBAL:
        trial._run.load()
        at = trial._run.index.steps(mode.value)
    workers = None if worker is None else [] if worker == EVERY_WORKER else [worker]
    kinds = None if kinds is None else [kinds] if isinstance(kinds, str) else list(kinds)
    last_step = trial._run.index.last_step()
    swept = sweeps.reductions(
        trial, chosen, at, workers, kinds, counts=counts, coverage=coverage, threads=threads, progress=progress
    )
    failed = dict(swept.pop("error"))
    errors = [
        Failure(str(swept["name"][row]), int(swept["step"][row]), swept["worker"][row], failed[row]) for row in failed
    ]
    keep = np.ones(len(swept["name"]), dtype=bool)
    keep[list(failed)] = False
    named = [] if steps is None or at is None else [(name, step) for name in chosen for step in at]
    if errors or named:
        found = zip(swept["name"][keep].tolist(), swept["step"][keep].tolist(), strict=True)
        errors = _with_deleted(trial, errors, named, found, worker)
    columns = swept if not failed else {name: column[keep] for name, column in swept.items()}
    order = ["name", "step", "mode", "mode_step", "worker"]
    columns = {**{name: columns[name] for name in order}, **columns, "mode": MODE_NAMES[columns["mode"]]}
    return Columns(columns, errors, last_step)


def _with_deleted(
    trial: RunQueries,
    errors: list[Failure],
    named: Iterable[tuple[str, int]],
    found: Iterable[tuple[str, int]],
    worker: str | None,
) -> list[Failure]:
    """Return the errors of a table, with those of steps whose values were deleted.

    Such an error replaces another of the same step. It is added for a named tensor and step that the table does not contain.
    """
    spacing: dict[int, int | None] = {}

    def deleted(name: str, step: int) -> StepDeleted | None:
        if step not in spacing:
            spacing[step] = trial._run.deleted(step)
        every = spacing[step]
        return None if every is None else StepDeleted(name, step, every=every)

    errors = [one._replace(error=deleted(one.name, one.step) or one.error) for one in errors]
    known = {*found, *((one.name, one.step) for one in errors)} if named else set()
    for name, step in named:
        if (name, step) not in known and (error := deleted(name, step)) is not None:
            errors.append(Failure(name, step, worker, error))
    return errors


def _steps_by_name(
    trial: RunQueries, wanted: Mapping[str, Iterable[int] | None] | Iterable[str] | str | None
) -> dict[str, Iterable[int] | None]:
    """Return the requested steps by name; raise for unknown names."""
    if wanted is None:
        return dict.fromkeys(trial._names(None, ModeKeys.GLOBAL))
    if isinstance(wanted, str):
        wanted = [wanted]
    known = dict(wanted) if isinstance(wanted, Mapping) else dict.fromkeys(wanted)
    for name in known:
        if not trial._has(name):
            raise TensorUnavailable(name, trial._names(None, ModeKeys.GLOBAL))
    return known


def _global_steps(trial: RunQueries, name: str, steps: Iterable[int] | int | None, mode: ModeKeys) -> Sequence[int]:
    if steps is None:
        trial._run.load()
        return trial._run.index.steps_of(name, mode.value)
    given = [steps] if isinstance(steps, int) else list(steps)
    found = (trial._global_step(mode, step) for step in given)
    return [step for step in found if step is not None and possible(step)]


def _rows(trial: RunQueries, name: str, step: int, worker: str | None) -> list[Row]:
    if worker == EVERY_WORKER:
        if trial._run.partly_read:
            trial._run.load([step])
        return [(name, step, one) for one in trial._run.index.workers_of(name, step)]
    return [(name, step, worker)]


def worker_with_value(trial: RunQueries, name: str, step: int) -> str:
    """Return the first worker that saved the value, or ``"all"`` for shards.

    Others may have saved a reduction or the shape only.
    """
    index = trial._run.index
    if trial._run.is_sharded(name, step):
        return ASSEMBLED
    workers = index.workers_of(name, step)
    if len(workers) > 1 and (place := index.find(name, step)) is not None:
        return str(place.worker)
    return workers[0]


def _column(cells: list[NDArray[Any] | None]) -> NDArray[Any]:
    """Stack cells of one dtype and shape, else return an object array."""
    kinds = {(cell.dtype, cell.shape) for cell in cells if cell is not None}
    if len(kinds) == 1:
        return np.stack([cell for cell in cells if cell is not None])
    column = np.empty(len(cells), dtype=object)
    for row, cell in enumerate(cells):
        column[row] = cell
    return column
