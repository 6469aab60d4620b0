"""Read values and reductions of many tensors at many steps in one pass."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smdwidgets._text import shown
from smdwidgets.exceptions import InvalidWorker, SMDebugError, SMDebugValueError, StepDeleted, TensorUnavailable
from smdwidgets.modes import ModeKeys, as_names, as_steps
from smdwidgets.trials import sweeps
from smdwidgets.trials.columns import Columns, Failure
from smdwidgets.trials.reader import RunReader
from smdwidgets.trials.run import SWEEP, Reductions, Row, Selection, SweepOptions, is_text, possible
from smdwidgets.trials.shards import ASSEMBLED
from smdwidgets.trials.tables import key_columns

#: Worker name that selects every worker.
EVERY_WORKER = "*"
#: Mode names by mode number.
MODE_NAMES = np.array(["", *(mode.name for mode in ModeKeys)], dtype=object)


def values(
    reader: RunReader,
    wanted: Mapping[str, Iterable[int] | None] | Iterable[str] | str | None,
    mode: ModeKeys,
    worker: str | None,
    options: SweepOptions,
) -> Columns:
    """Implement :meth:`smdwidgets.Trial.values`."""
    if worker is not None and not is_text(worker):
        raise InvalidWorker(worker)
    reader.maybe_refresh()
    rows: list[Row] = []
    named: list[tuple[str, int]] = []
    for name, steps in _steps_by_name(reader, wanted).items():
        at = _global_steps(reader, name, steps, mode)
        named += [] if steps is None else [(name, step) for step in at]
        for step in at:
            rows += _rows(reader, name, step, worker)
    given, failed = reader.run.values(rows, options)
    errors = [Failure(*rows[row], error) for row, error in failed]
    # A missing value (only a reduction or shape was saved) is not an error.
    kept = [row for row, value in enumerate(given) if value is not None]
    errors = _with_deleted(reader, errors, named, ((rows[row][0], rows[row][1]) for row in kept), worker)
    column = given if isinstance(given, np.ndarray) else _column([given[row] for row in kept])
    named_workers = [(*rows[row][:2], rows[row][2] or worker_with_value(reader, *rows[row][:2])) for row in kept]
    columns = key_columns(named_workers, reader.index.mode_of)
    return Columns({**columns, "mode": MODE_NAMES[columns["mode"]], "value": column}, errors)


def scalars(reader: RunReader, names: Iterable[str] | str | None, mode: ModeKeys) -> Columns:
    """Implement :meth:`smdwidgets.Trial.scalars` for runs of hooks."""
    reader.maybe_refresh()
    chosen = [name for name in reader.names() if has_one_number(reader, name)] if names is None else as_names(names)
    table = reductions(reader, chosen, None, mode, EVERY_WORKER, ["mean"], True, False, SWEEP)
    sizes = dict(zip(table["name"][large := table["size"] > 1].tolist(), table["size"][large].tolist(), strict=True))
    if names is not None and sizes:
        name, size = next(iter(sizes.items()))
        raise SMDebugValueError(f"tensor {shown(name)} has {size} elements and is no scalar; see trial.values()")
    values = np.real(table["mean"]).astype(np.float64)
    # A size of -1 means that the value was not saved; its mean may have been.
    there = ((table["size"] >= 0) | np.isfinite(values)) & ~np.isin(table["name"].astype(str), list(sizes))
    columns = {name: table[name][there] for name in ("name", "step", "mode", "mode_step", "worker")}
    times = np.full(int(there.sum()), np.nan)
    return Columns({**columns, "wall_time": times, "value": values[there]}, table.errors, table.last_step)


def has_one_number(reader: RunReader, name: str) -> bool:
    """Return whether a tensor has one element, which is a number, at its first step."""
    index = reader.index
    for step in index.steps_of(name)[:1]:
        shape = index.shape_of(name, step)
        try:
            if shape is None and (place := index.find(name, step)) is not None:
                dtype, shape = reader.head(place)
                if dtype.startswith(("str", "U", "S", "bool")):
                    return False
        except (SMDebugError, OSError):
            return False
        return shape is not None and int(np.prod(shape, dtype=np.int64)) == 1
    return False


def reductions(
    reader: RunReader,
    names: Iterable[str] | str | None,
    steps: Iterable[int] | int | None,
    mode: ModeKeys,
    worker: str | None,
    kinds: Iterable[str] | str | None,
    counts: bool,
    coverage: bool,
    options: SweepOptions,
) -> Columns:
    """Implement :meth:`smdwidgets.Trial.reductions`."""
    if worker is not None and not is_text(worker):
        raise InvalidWorker(worker)
    reader.maybe_refresh()
    chosen = list(_steps_by_name(reader, names))
    at = None if steps is None else as_steps(steps)
    if at is not None and mode != ModeKeys.GLOBAL:
        at = [step for step in (reader.global_step(mode, one) for one in at) if step is not None]
    elif at is None and mode != ModeKeys.GLOBAL:
        reader.load()
        at = reader.index.steps(mode.value)
    workers = None if worker is None else [] if worker == EVERY_WORKER else [worker]
    kinds = None if kinds is None else [kinds] if isinstance(kinds, str) else list(kinds)
    last_step = reader.index.last_step()
    swept = sweeps.reductions(reader, Selection(chosen, at, workers), Reductions(kinds, counts, coverage), options)
    failed = dict(swept.pop("error"))
    errors = [
        Failure(str(swept["name"][row]), int(swept["step"][row]), swept["worker"][row], failed[row]) for row in failed
    ]
    keep = np.ones(len(swept["name"]), dtype=bool)
    keep[list(failed)] = False
    named = [] if steps is None or at is None else [(name, step) for name in chosen for step in at]
    if errors or named:
        found = zip(swept["name"][keep].tolist(), swept["step"][keep].tolist(), strict=True)
        errors = _with_deleted(reader, errors, named, found, worker)
    columns = swept if not failed else {name: column[keep] for name, column in swept.items()}
    order = ["name", "step", "mode", "mode_step", "worker"]
    columns = {**{name: columns[name] for name in order}, **columns, "mode": MODE_NAMES[columns["mode"]]}
    return Columns(columns, errors, last_step)


def _with_deleted(
    reader: RunReader,
    errors: list[Failure],
    named: Iterable[tuple[str, int]],
    found: Iterable[tuple[str, int]],
    worker: str | None,
) -> list[Failure]:
    """Return the errors of a table, with those of steps whose values were deleted.

    Such an error replaces another of the same step. It is added for a named tensor and step that the table does not
    contain.
    """
    spacing: dict[int, int | None] = {}

    def deleted(name: str, step: int) -> StepDeleted | None:
        if step not in spacing:
            spacing[step] = reader.run.deleted(step)
        every = spacing[step]
        return None if every is None else StepDeleted(name, step, every=every)

    errors = [one._replace(error=deleted(one.name, one.step) or one.error) for one in errors]
    known = {*found, *((one.name, one.step) for one in errors)} if named else set()
    for name, step in named:
        if (name, step) not in known and (error := deleted(name, step)) is not None:
            errors.append(Failure(name, step, worker, error))
    return errors


def _steps_by_name(
    reader: RunReader, wanted: Mapping[str, Iterable[int] | None] | Iterable[str] | str | None
) -> dict[str, Iterable[int] | None]:
    """Return the requested steps by name; raise for unknown names and aliases."""
    if wanted is None:
        return dict.fromkeys(reader.names())
    by_name: dict[str, Iterable[int] | None] = {}
    for given in as_names(wanted):
        name = reader.saved_name(given)
        if name is None:
            raise TensorUnavailable(given, [*reader.names(), *reader.aliases()])
        by_name[name] = wanted[given] if isinstance(wanted, Mapping) else None
    return by_name


def _global_steps(reader: RunReader, name: str, steps: Iterable[int] | int | None, mode: ModeKeys) -> Sequence[int]:
    if steps is None:
        reader.load()
        return reader.index.steps_of(name, mode.value)
    globally = (reader.global_step(mode, step) for step in as_steps(steps))
    return [step for step in globally if step is not None and possible(step)]


def _rows(reader: RunReader, name: str, step: int, worker: str | None) -> list[Row]:
    if worker == EVERY_WORKER:
        if reader.run.partly_read:
            reader.load([step])
        return [(name, step, one) for one in reader.index.workers_of(name, step)]
    return [(name, step, worker)]


def worker_with_value(reader: RunReader, name: str, step: int) -> str:
    """Return the first worker that saved the value, or ``"all"`` for shards.

    Others may have saved a reduction or the shape only.
    """
    index = reader.index
    if reader.run.is_sharded(name, step):
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
