"""Read sharded tensors in bulk: assemble the rows for which no worker was chosen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smdwidgets import _core
from smdwidgets.exceptions import SMDebugError, TensorUnavailableForStep
from smdwidgets.trials.run import Row, Run, Values
from smdwidgets.trials.shards import ASSEMBLED, Sharded

#: Column of reductions: the share of a tensor's elements that were saved.
COVERAGE = "coverage"


def assembled_values(run: Run, rows: Sequence[Row], read: Callable[[Sequence[Row]], Values]) -> Values:
    """Read values with ``read``, which reads single records.

    Assemble sharded tensors without a worker.
    """
    sharded: dict[int, Sharded] = {}
    failed: list[tuple[int, BaseException]] = []
    records: list[Row] = []
    # For each record to read, the row that needs it.
    needed_by: list[int] = []
    for at, (name, step, worker) in enumerate(rows):
        try:
            found = run.sharded(name, step) if worker is None else None
            if found is None:
                workers: list[str | None] = [worker]
            else:
                sharded[at] = found
                workers = list(found.select(lambda one, name=name, step=step: has_value(run, name, step, one)))  # type: ignore[misc]
        except TensorUnavailableForStep as error:
            # Without any value, reductions or the shape were saved, which is not an error.
            if any(has_value(run, name, step, one) for one in sharded.pop(at).shards):
                failed.append((at, error))
            continue
        except SMDebugError as error:
            sharded.pop(at, None)
            failed.append((at, error))
            continue
        records += [(name, step, one) for one in workers]
        needed_by += [at] * len(workers)
    if not sharded and not failed:
        return read(rows)
    given, errors = read(records)
    result: list[NDArray[Any] | None] = [None] * len(rows)
    pieces: dict[int, dict[str, NDArray[Any]]] = {at: {} for at in sharded}
    bad = {needed_by[record] for record, _ in errors}
    failed += [(needed_by[record], error) for record, error in errors]
    for at, (_, _, worker), value in zip(needed_by, records, given, strict=True):
        if at in pieces:
            if worker is not None and value is not None:
                pieces[at][worker] = value
        else:
            result[at] = value
    for at, found in sharded.items():
        if at not in bad:
            of = pieces.pop(at)
            try:
                result[at] = found.assemble(of.__getitem__, of.__contains__)
            except SMDebugError as error:
                failed.append((at, error))
    return _stacked(result) if not failed else result, sorted(dict(reversed(failed)).items())


def _stacked(values: list[NDArray[Any] | None]) -> NDArray[Any] | list[NDArray[Any] | None]:
    kinds = {None if value is None else (value.dtype, value.shape) for value in values}
    whole = [value for value in values if value is not None]
    return np.stack(whole) if len(kinds) == 1 and whole else values


def assembled_reductions(run: Run, swept: dict[str, Any]) -> dict[str, Any]:
    """Replace the rows of shards by the reductions of the whole tensors.

    With a column ``coverage``, missing shards are no error: the reductions are then those of the saved elements.
    """
    names = [name for name in swept if name not in ("name", "step", "mode", "mode_step", "worker", "error")]
    errors: dict[int, BaseException] = dict(swept["error"])
    columns: dict[str, list[Any]] = {}
    for row, (name, step) in enumerate(zip(swept["name"], swept["step"].tolist(), strict=True)):
        try:
            sharded = run.sharded(name, step)
            if sharded is None:
                continue
            if not columns:
                columns = {column: swept[column].tolist() for column in names}
                swept["worker"] = np.array(swept["worker"], dtype=object)
            swept["worker"][row] = ASSEMBLED
            errors.pop(row, None)
            for column, value in reductions_of(run, sharded, names).items():
                columns[column][row] = value
        except (SMDebugError, OSError) as error:
            errors[row] = error
    for column, cells in columns.items():
        swept[column] = _column(cells, swept[column].dtype)
    swept["error"] = sorted(errors.items())
    return swept


#: The columns that ``counts=True`` adds, by their names in `_core.stats`.
_COUNTS = {"size": "n", "nan": "nan", "pos_inf": "pos_inf", "neg_inf": "neg_inf", "zero": "zeros"}


def reductions_of(run: Run, sharded: Sharded, names: Sequence[str]) -> dict[str, Any]:
    """Return reductions and counts of a sharded tensor.

    They are computed from the values if these were saved, else combined from saved reductions. With the name
    ``coverage`` they are those of the elements that were saved.
    """
    incomplete = COVERAGE in names
    names = [name for name in names if name != COVERAGE]

    def has(worker: str) -> bool:
        return has_value(run, sharded.name, sharded.step, worker)

    share = sharded.coverage(has)
    if not share:  # no values were saved
        stored = stored_reductions(run, sharded)
        found = {
            name: -1 if name in _COUNTS else _or_nan(sharded.reduce(stored, *_parsed(name), incomplete))
            for name in names
        }
        return found | ({COVERAGE: sharded.coverage(lambda worker: bool(stored[worker]))} if incomplete else {})
    some = incomplete and share < 1
    value = sharded.elements(_reader(run, sharded), has) if some else whole_value(run, sharded)
    computed = _core.reduce(value, None, [_parsed(name) for name in names if name not in _COUNTS])
    counts = _core.stats(value) if _COUNTS.keys() & set(names) else {}
    found = {name: counts[_COUNTS[name]] if name in _COUNTS else _or_nan(computed[_parsed(name)]) for name in names}
    return found | ({COVERAGE: share} if incomplete else {})


def whole_value(run: Run, sharded: Sharded) -> NDArray[Any]:
    """Return the value of a sharded tensor."""
    return sharded.assemble(_reader(run, sharded), lambda worker: has_value(run, sharded.name, sharded.step, worker))


def _reader(run: Run, sharded: Sharded) -> Callable[[str], NDArray[Any]]:
    """Return a function that reads the value of a worker's shard."""
    return lambda worker: run.value(run.index.find(sharded.name, sharded.step, worker))


def has_value(run: Run, name: str, step: int, worker: str) -> bool:
    """Return whether a worker saved the value of a tensor at a step."""
    return run.index.find(name, step, worker) is not None


def stored_reductions(run: Run, sharded: Sharded) -> dict[str, dict[tuple[str, bool], Any]]:
    """Return the saved reductions of each worker."""
    index = run.index
    return {
        worker: {
            (op, absolute): run.value(place)
            for op, absolute, place in index.stored_reductions(sharded.name, sharded.step, worker)
        }
        for worker in sharded.shards
    }


def _parsed(name: str) -> tuple[str, bool]:
    """Split the name of a reduction such as ``abs_l2_norm``."""
    bare = name.removeprefix("abs_").removesuffix("_norm")
    return bare, name.startswith("abs_")


def _or_nan(value: Any) -> Any:
    return np.nan if value is None else value


def _column(cells: list[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    column = np.array(cells)
    return column.astype(dtype) if np.can_cast(column.dtype, dtype, "same_kind") and column.dtype != object else column
