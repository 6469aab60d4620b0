"""Sweeps of a run: in this process, or in parts by the current executor.

Results of parts are columns with numbers instead of names. They are joined in the order of a local sweep, so the result
is equal to that of a local sweep bit for bit, whatever the order in which the parts end.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smdwidgets import _core
from smdwidgets.executors import Executor, Task, current
from smdwidgets.storage import LocalStorage
from smdwidgets.trials.columns import Failure
from smdwidgets.trials.plans import LOCAL, REMOTE, Part, Rates, cut
from smdwidgets.trials.reader import RunReader
from smdwidgets.trials.run import SWEEP, Reductions, Run, Selection, SweepOptions
from smdwidgets.trials.shipping import Shipment, pack
from smdwidgets.trials.tables import KEYS, REDUCTIONS_ONLY, Table, selected

#: Threads of a part that compute. A worker runs several tasks if it has several threads.
_THREADS: Final = 1


class Verified(NamedTuple):
    """Result of verifying the records of a run.

    Attributes:
        records: number of records.
        bytes: their size.
        unverifiable: number of records without a checksum.
        errors: records that are damaged.
        last_step: last global step of the run when it was read.
    """

    records: int
    bytes: int
    unverifiable: int
    errors: list[Failure]
    last_step: int | None


def statistics(
    reader: RunReader, names: Sequence[str], steps: Sequence[int], workers: Sequence[str] | None, options: SweepOptions
) -> Table:
    """Return statistics as :meth:`smdwidgets.trials.run.Run.statistics` does."""
    executor, run = current(), reader.run
    if executor is None or run.catalog is None:
        return run.statistics(Selection(names, steps, workers), options)
    parts = _parts(run, names, steps, executor, with_change=True)
    tables: dict[int, Table] = {}
    errors: list[tuple[str, int, str | None, BaseException]] = []
    for number, (table, failed) in _run(reader, executor, _statistics_part, parts, names, (workers,), options):
        tables[number] = table
        errors += failed
    if not tables:
        return run.statistics(Selection(names, steps, workers))
    table = _in_order(tables, names, steps)
    # Saved reductions of a tensor that has values at other steps are no statistics.
    stored = (table["flags"] & REDUCTIONS_ONLY) > 0
    if stored.any():
        with_values = set(table["name"][~stored].tolist())
        table = selected(table, ~stored | np.array([name not in with_values for name in table["name"].tolist()]))
    places = {name: place for place, name in enumerate(names)}
    table["error"] = sorted(errors, key=lambda error: (places[error[0]], error[1], error[2] or ""))
    return _with_changes(run, table, parts, names)


class Piece(NamedTuple):
    """Tensors and steps of one task.

    Attributes:
        names: tensors.
        steps: ascending global steps.
        before: the saved step before, from which the change of the first step is computed.
    """

    names: Sequence[str]
    steps: list[int]
    before: int | None


def statistics_parts(
    reader: RunReader, pieces: Sequence[Piece], executor: Executor, cancelled: Callable[[], bool] | None = None
) -> Iterator[tuple[int, Table]]:
    """Yield the number and the statistics of each piece, as pieces finish.

    The statistics are those of all workers. An executor computes them; the run must be one that a hook saved. Nothing
    is joined: the memory is that of the pieces in flight.
    """

    def tasks() -> Iterator[Task]:
        for number, piece in enumerate(pieces):
            places = range(len(piece.names))
            before = [] if piece.before is None else [(piece.before, list(places))]
            part = Part(number, np.array(places, np.uint32), piece.steps, before, 0)
            with reader.refreshing(False):  # all parts are of one snapshot
                shipment = pack(reader, piece.names, [*(step for step, _ in before), *piece.steps])
            yield Task(number, (shipment, part, list(piece.names), []))

    results = executor.run(_statistics_part, tasks(), cancelled)
    with contextlib.closing(results):  # type: ignore[type-var]
        for number, (table, failed) in results:
            workers = np.array(table.pop("workers"), object)
            table["name"] = np.array(pieces[number].names, object)[table["name"]]
            table["worker"] = workers[table["worker"]]
            table["error"] = failed
            yield number, table


def reductions(reader: RunReader, selection: Selection, wanted: Reductions, options: SweepOptions) -> Table:
    """Return reductions as :meth:`smdwidgets.trials.run.Run.reductions` does."""
    executor, run = current(), reader.run
    if executor is None or run.catalog is None:
        return run.reductions(selection, wanted, options)
    names, steps, workers = selection
    run.load(steps)
    every = run.index.steps() if steps is None else sorted(set(steps))
    parts = _parts(run, names, every, executor)
    tables: dict[int, Table] = {}
    errors: dict[tuple[int, int], BaseException] = {}
    for number, (table, failed) in _run(reader, executor, _reductions_part, parts, names, (workers, wanted), options):
        tables[number] = table
        errors |= {(number, row): error for row, error in failed}
    if not tables:
        return run.reductions(selection, wanted, options)
    rows = {number: np.arange(len(table["step"])) for number, table in tables.items()}
    tables = {
        number: table | {"part": np.full(len(rows[number]), number), "row": rows[number]}
        for number, table in tables.items()
    }
    swept = _in_order(tables, names, every if steps is None else steps)
    places = zip(swept.pop("part").tolist(), swept.pop("row").tolist(), strict=True)
    swept["error"] = [(at, errors[place]) for at, place in enumerate(places) if place in errors] if errors else []
    return swept


def verify(reader: RunReader, options: SweepOptions = SWEEP) -> dict[str, Any]:
    """Verify every record as :func:`smdwidgets._core.verify` does."""
    executor, run = current(), reader.run
    run.load()
    if executor is None or run.catalog is None:
        return run.verify(None, options)
    names = run.index.names()
    parts = _parts(run, names, run.index.steps(), executor)
    found: dict[int, dict[str, Any]] = dict(_run(reader, executor, _verify_part, parts, names, (), options))
    if not found:
        return run.verify(None, options)
    # Sums of integers do not depend on their order; errors are listed by name and step, as a local sweep does.
    total: dict[str, Any] = {key: sum(part[key] for part in found.values()) for key in found[0] if key != "errors"}
    errors = [error for number in sorted(found) for error in found[number]["errors"]]
    total["errors"] = sorted(errors, key=lambda error: (error[0], error[1], error[2] or ""))
    return total


# ------------------------------------------------------------------------------------------------------------ running


def _parts(
    run: Run, names: Sequence[str], steps: Sequence[int], executor: Executor, *, with_change: bool = False
) -> list[Part]:
    return cut(run, names, steps, rates_of(run), executor.slots, with_change=with_change)


def rates_of(run: Run) -> Rates:
    """Return what a worker is estimated to read of a run's storage."""
    return LOCAL if isinstance(run.storage, LocalStorage) else REMOTE


def _run(
    reader: RunReader,
    executor: Executor,
    function: Callable[..., Any],
    parts: Sequence[Part],
    names: Sequence[str],
    arguments: tuple[Any, ...],
    options: SweepOptions,
) -> Iterator[tuple[int, Any]]:
    """Yield the results of parts, and report the bytes of finished parts."""

    def tasks() -> Iterator[Task]:
        for part in parts:
            chosen = [names[name] for name in part.names.tolist()]
            read = [*(step for step, _ in part.before), *part.steps]
            with reader.refreshing(False):  # all parts are of one snapshot
                shipment = pack(reader, chosen, read)
            yield Task(part.number, (shipment, part, chosen, *arguments))

    total, done = sum(part.size for part in parts), 0
    results = executor.run(function, tasks(), options.is_cancelled)
    with contextlib.closing(results):  # type: ignore[type-var]
        for number, result in results:
            yield number, result
            done += parts[number].size
            if options.progress is not None:
                options.progress(done, total)


def _numbered(table: Table, part: Part, chosen: Sequence[str]) -> Table:
    """Replace names by numbers.

    Those of tensors are places in the names of the sweep, those of workers in a list of the part.
    """
    numbers = dict(zip(chosen, part.names.tolist(), strict=True))
    table["name"] = np.array([numbers[name] for name in table["name"].tolist()], np.uint32)
    workers: dict[str, int] = {}
    ids = [workers.setdefault(worker, len(workers)) for worker in table["worker"].tolist()]
    return {
        **table,
        "worker": np.array(ids, np.uint32),
        "workers": list(workers),
        "mode": table["mode"].astype(np.int8),
    }


def _statistics_part(
    shipment: Shipment,
    part: Part,
    chosen: Sequence[str],
    workers: Sequence[str] | None,
    *,
    cancel: _core.Cancel,
) -> tuple[Table, list[Any]]:
    """Compute the statistics of a part, on a worker."""
    run = shipment.open().reader.run.reading_once()
    # Records of other tensors at the steps before are read in vain, but each file is read once.
    steps = sorted({*(step for step, _ in part.before), *part.steps})
    table = run.statistics(Selection(chosen, steps, workers), SweepOptions(_THREADS, cancel=cancel))
    wanted = set(part.steps)
    errors = [error for error in table.pop("error") if error[1] in wanted]
    table = {name: column[np.isin(table["step"], part.steps)] for name, column in table.items()}
    return _numbered(table, part, chosen), errors


def _reductions_part(
    shipment: Shipment,
    part: Part,
    chosen: Sequence[str],
    workers: Sequence[str] | None,
    wanted: Reductions,
    *,
    cancel: _core.Cancel,
) -> tuple[Table, list[tuple[int, BaseException]]]:
    """Compute the reductions of a part, on a worker."""
    run = shipment.open().reader.run.reading_once()
    table = run.reductions(Selection(chosen, part.steps, workers), wanted, SweepOptions(_THREADS, cancel=cancel))
    errors = table.pop("error")
    for name in table.keys() - set(KEYS):
        table[name] = _without_gaps(run, table, table[name], dict(errors))
    return _numbered(table, part, chosen), errors


def _without_gaps(run: Run, table: Table, column: NDArray[Any], failed: dict[int, Any]) -> NDArray[Any]:
    """Return a column, of object type if none of its cells was computed.

    The core makes such a column a float64 one, which must not change the type of the joined column.
    """
    if column.dtype != np.float64 or not np.isnan(column).all():
        return column
    rows = zip(table["name"].tolist(), table["step"].tolist(), table["worker"].tolist(), strict=True)
    is_gap = all(row in failed or run.index.find(*place) is None for row, place in enumerate(rows))
    return column.astype(object) if is_gap else column


def _verify_part(shipment: Shipment, part: Part, chosen: Sequence[str], *, cancel: _core.Cancel) -> dict[str, Any]:
    """Verify the records of a part, on a worker."""
    options = SweepOptions(_THREADS, cancel=cancel)
    verified: dict[str, Any] = shipment.open().reader.run.reading_once().verify(part.steps, options)
    return verified


# ------------------------------------------------------------------------------------------------------------ joining


def _in_order(tables: dict[int, Table], names: Sequence[str], steps: Sequence[int]) -> Table:
    """Join the tables of parts in the order of a local sweep.

    The order is by name, step as given, worker. The tables are moved into arrays of their total length, and freed one
    by one.
    """
    workers = sorted({worker for table in tables.values() for worker in table["workers"]})
    ranks = {worker: rank for rank, worker in enumerate(workers)}
    rows = sum(len(table["step"]) for table in tables.values())
    columns = [name for name in tables[0] if name != "workers"]
    filled = [table for table in tables.values() if len(table["step"])] or [tables[0]]
    dtypes = {name: common_dtype(table[name].dtype for table in filled) for name in columns}
    whole: Table = {name: np.empty(rows, dtype) for name, dtype in dtypes.items()}
    end = 0
    for number in sorted(tables):
        table = tables.pop(number)
        start, end = end, end + len(table["step"])
        of_part = np.array([ranks[worker] for worker in table["workers"]], np.uint32)
        table["worker"] = of_part[table["worker"]]
        for name in columns:
            whole[name][start:end] = table[name]
    order = _order(whole, steps)
    for name in columns:
        whole[name] = whole[name][order]
    whole["name"] = np.array(names, object)[whole["name"]]
    whole["worker"] = np.array(workers, object)[whole["worker"]]
    whole["mode"] = whole["mode"].astype(np.int64)
    return whole


def _order(table: Table, steps: Sequence[int]) -> NDArray[np.intp]:
    """Return the rows in order; rows of a step that was given twice twice.

    >>> keys = {"name": np.zeros(2), "step": np.array([5, 7]), "worker": np.zeros(2)}
    >>> _order(keys, [7, 5, 7]).tolist()
    [1, 0, 1]
    """
    given = np.asarray(steps, np.int64)
    place = np.argsort(given, kind="stable")
    first: Any = np.searchsorted(given[place], table["step"], "left")
    count: Any = np.searchsorted(given[place], table["step"], "right") - first
    rows: NDArray[np.intp] = np.repeat(np.arange(len(count)), count)
    repeat = np.arange(len(rows)) - np.repeat(np.cumsum(count) - count, count)
    position = place[first[rows] + repeat]
    return rows[np.lexsort((table["worker"][rows], position, table["name"][rows]))]


def common_dtype(dtypes: Iterable[np.dtype[Any]]) -> np.dtype[Any]:
    """Return the type of a joined column from those of its parts.

    The core chooses the same for a column with all cells. An object column has no cells.

    >>> common_dtype([np.dtype("float32"), np.dtype("float32")]), common_dtype([np.dtype("int32"), np.dtype("uint8")])
    (dtype('float32'), dtype('float64'))
    """
    every = set(dtypes)
    kinds = every - {np.dtype(object)}
    has_gaps = kinds != every
    if len(kinds) == 1:
        [one] = kinds
        return np.dtype(np.float64) if has_gaps and one.kind not in "fc" else one
    if not kinds or has_gaps or any(one.kind == "f" for one in kinds):
        return np.dtype(np.complex128 if any(one.kind == "c" for one in kinds) else np.float64)
    if any(one.kind == "c" for one in kinds):
        return np.dtype(np.complex128)
    if all(one.kind == "i" for one in kinds):
        return np.dtype(np.int64)
    return np.dtype(np.uint64 if all(one.kind in "ub" for one in kinds) else np.float64)


def _with_changes(run: Run, table: Table, parts: Sequence[Part], names: Sequence[str]) -> Table:
    """Compute the changes that a part could not compute.

    They are missing where the worker of a row did not save the step before the part. That is rare: each part reads the
    step before for all workers.
    """
    missing = _without_change(table, parts, names) if len(run.index.workers()) > 1 else {}
    for (name, before, step, worker), row in missing.items():
        again = run.statistics(Selection([name], [before, step], [worker]))
        found = np.flatnonzero(again["step"] == step)
        if len(found):
            table["update"][row] = again["update"][found[0]]
    return table


def _without_change(table: Table, parts: Sequence[Part], names: Sequence[str]) -> dict[tuple[str, int, int, str], int]:
    """Return the rows whose value before was not read.

    The keys are name, step before, step and worker.
    """
    found: dict[tuple[str, int, int, str], int] = {}
    begins: dict[str, list[int]] = {}
    read: dict[tuple[str, int], int] = {}
    for part in parts:
        for name in part.names.tolist():
            begins.setdefault(names[name], []).append(part.steps[0])
        for before, of in part.before:
            read |= {(names[name], part.steps[0]): before for name in of}
    bad: dict[tuple[str, str | None], list[int]] = {}
    for name, step, worker, _ in table["error"]:
        bad.setdefault((name, worker), []).append(step)
    last: dict[tuple[str, str], int] = {}
    rows = zip(table["name"].tolist(), table["step"].tolist(), table["worker"].tolist(), strict=True)
    for row, (name, step, worker) in enumerate(rows):
        earlier = last.get((name, worker))
        last[name, worker] = step
        begin = begins[name][bisect_right(begins[name], step) - 1]
        if earlier is None or earlier >= begin or read.get((name, begin)) == earlier:
            continue
        # A record that cannot be read has no change, nor has the one after it.
        if not any(earlier < one < step for one in bad.get((name, worker), ())):
            found[name, earlier, step, worker] = row
    return found
