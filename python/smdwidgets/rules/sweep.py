"""Read columns of many tensors over many steps in bulk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from smdwidgets.exceptions import SMDebugError, TensorUnavailable, TensorUnavailableForStep, UnsupportedDataError
from smdwidgets.trials.widening import widened

if TYPE_CHECKING:
    from smdwidgets.trials import Trial

__all__ = ["COUNTS", "Cancelled", "Swept", "sweep_trial"]

#: Columns that count elements; NaN if only reductions were saved.
COUNTS = ("size", "nan", "pos_inf", "neg_inf", "zero")


#: Up to this number, reading tensors one by one is faster than a bulk read with all threads.
FEW = 4


class Cancelled(Exception):
    """Raised when a sweep is cancelled."""


@dataclass(frozen=True, eq=False)
class Swept:
    """Result of a sweep: one row per tensor, step and worker.

    `name` and `worker` are indices into the lists of names and workers.
    """

    name: NDArray[np.intp]
    step: NDArray[np.int64]
    worker: NDArray[np.intp]
    workers: tuple[str | None, ...]
    columns: dict[str, NDArray[np.float64]]
    #: Rows in which a column is not available (its value is NaN); only columns with such rows.
    missing: dict[str, NDArray[np.bool_]]
    #: Tensors that could not be read, by step: (name, message).
    errors: dict[int, list[tuple[str, str]]]


def sweep_trial(
    trial: Trial,
    names: Sequence[str],
    steps: Sequence[int],
    columns: Sequence[str],
    cancelled: Callable[[], bool] | None = None,
) -> Swept:
    """Read columns of tensors at steps, for every worker.

    Missing tensors and string tensors produce no rows.
    """
    if not hasattr(trial, "reductions"):
        return _one_by_one(trial, names, steps, columns, cancelled)

    def progress(done: int, total: int) -> None:
        if cancelled is not None and cancelled():
            raise Cancelled

    kinds = [column for column in columns if column not in COUNTS]
    found = trial.reductions(names, steps, worker="*", reductions=kinds, counts=True, progress=progress)
    code_of = {name: code for code, name in enumerate(names)}
    # Rows are sorted by name, so a name is looked up only where it changes.
    of_name = found["name"]
    begins = np.flatnonzero(np.append(True, of_name[1:] != of_name[:-1])) if len(of_name) else np.empty(0, np.intp)
    lengths = np.diff(np.append(begins, len(of_name)))
    name = np.repeat(np.array([code_of[of_name[at]] for at in begins], dtype=np.intp), lengths)
    workers, worker = _workers(trial, found["worker"])
    whole = found["size"] >= 0
    values: dict[str, NDArray[np.float64]] = {}
    missing: dict[str, NDArray[np.bool_]] = {}
    for column in columns:
        numbers = _real(found[column])
        if column in COUNTS:
            numbers = np.where(whole, numbers, np.nan)
            gaps = ~whole
        else:
            gaps = np.zeros(len(numbers), dtype=np.bool_)
            # If only reductions were saved, NaN is either a saved NaN or a reduction that was not saved.
            for at in np.flatnonzero(~whole & np.isnan(numbers)):
                value = read_column(trial, of_name[at], int(found["step"][at]), found["worker"][at], column)
                gaps[at] = value is None
        values[column] = numbers
        if gaps.any():
            missing[column] = gaps
    errors: dict[int, list[tuple[str, str]]] = {}
    for failure in found.errors:
        if not isinstance(
            failure.error, UnsupportedDataError
        ):  # string tensors have no reductions; this is not an error
            errors.setdefault(failure.step, []).append((failure.name, str(failure.error)))
    return Swept(name, found["step"], worker, workers, values, missing, errors)


def _real(column: NDArray[Any]) -> NDArray[np.float64]:
    """Convert a column to float64; complex numbers become magnitudes."""
    return (np.abs(column) if column.dtype.kind == "c" else column).astype(np.float64)


def _workers(trial: Trial, names: NDArray[Any]) -> tuple[tuple[str | None, ...], NDArray[np.intp]]:
    """Encode workers as indices; a run with one worker needs no names."""
    if len(trial.workers()) <= 1:
        return (None,), np.zeros(len(names), dtype=np.intp)
    codes: dict[str | None, int] = {}
    numbers = [codes.setdefault(name, len(codes)) for name in names.tolist()]
    return tuple(codes), np.array(numbers, dtype=np.intp)


def _one_by_one(
    trial: Trial,
    names: Sequence[str],
    steps: Sequence[int],
    columns: Sequence[str],
    cancelled: Callable[[], bool] | None,
) -> Swept:
    """Read tensors with their public methods, for trials without `reductions`."""
    single = len(trial.workers()) <= 1
    workers: dict[str | None, int] = {}
    rows: list[tuple[int, int, int]] = []
    found: list[list[float | None]] = []
    errors: dict[int, list[tuple[str, str]]] = {}
    for code, name in enumerate(names):
        if cancelled is not None and cancelled():
            raise Cancelled
        tensor = trial.tensor(name)
        for step in steps:
            try:
                for worker in [None] if single else tensor.workers(step):
                    numbers = [read_column(trial, name, step, worker, column) for column in columns]
                    if columns and all(each is None for each in numbers) and not tensor_is_there(trial, name, step):
                        continue
                    rows.append((code, step, workers.setdefault(worker, len(workers))))
                    found.append(numbers)
            except (TensorUnavailable, TensorUnavailableForStep):
                continue
            except SMDebugError as error:
                errors.setdefault(step, []).append((name, str(error)))
    ids = np.array(rows, dtype=np.int64).reshape(-1, 3)
    read = {column: [numbers[at] for numbers in found] for at, column in enumerate(columns)}
    return Swept(
        ids[:, 0].astype(np.intp),
        ids[:, 1],
        ids[:, 2].astype(np.intp),
        tuple(workers),
        {name: np.array([np.nan if x is None else x for x in each], dtype=np.float64) for name, each in read.items()},
        {name: np.array([x is None for x in each], dtype=np.bool_) for name, each in read.items() if None in each},
        errors,
    )


def read_values(
    trial: Trial, rows: Sequence[tuple[str, str | None]], step: int
) -> NDArray[Any] | list[NDArray[Any] | None]:
    """Read the values of tensors at a step in bulk.

    Returns one array (rows, ...) if all values have the same shape and dtype, else a list with None for missing values.
    Those of types that NumPy lacks are float32.
    """
    if len(rows) > FEW and hasattr(trial, "values"):
        wanted = dict.fromkeys((name for name, _ in rows), (step,))
        found = trial.values(wanted, worker="*" if any(worker is not None for _, worker in rows) else None)
        workers = found["worker"].tolist() if rows and rows[0][1] is not None else [None] * found.num_rows
        at = {row: number for number, row in enumerate(zip(found["name"].tolist(), workers, strict=True))}
        numbers = [at.get(row) for row in rows]
        column = found["value"]
        if column.dtype != object and None not in numbers:
            in_order = numbers == list(range(len(column)))
            return widened(column if in_order else column[np.array(numbers, dtype=np.intp)])
        return [None if number is None else widened(np.asarray(column[number])) for number in numbers]
    found_one_by_one: list[NDArray[Any] | None] = []
    for name, worker in rows:
        try:
            found_one_by_one.append(widened(np.asarray(trial.tensor(name).value(step, worker=worker))))
        except SMDebugError:
            found_one_by_one.append(None)
    return found_one_by_one


def tensor_is_there(trial: Trial, name: str, step: int) -> bool:
    """Return whether a tensor, or reductions of it, were saved at a step."""
    return name in trial.tensor_names(step=step)


def read_column(trial: Trial, name: str, step: int, worker: str | None, column: str) -> float | None:
    """Return one number of one tensor, or None if it is not available."""
    try:
        if column in COUNTS:
            return _count(widened(np.asarray(trial.tensor(name).value(step, worker=worker))), column)
        absolute = column.startswith("abs_")
        found = trial.tensor(name).reduction_value(step, column.removeprefix("abs_"), worker=worker, abs=absolute)
        number = np.asarray(found).reshape(-1)
        return float(np.abs(number[0]) if number.dtype.kind == "c" else number[0]) if number.size == 1 else None
    except (TensorUnavailable, TensorUnavailableForStep):
        return None


def _count(value: NDArray[Any], column: str) -> float:
    kind = value.dtype.kind
    if column == "size":
        return float(value.size)
    if kind in "SUO":
        return 0.0
    if column == "zero":
        return float(value.size - np.count_nonzero(value))
    if kind in "iub":
        return 0.0
    if column == "nan":
        return float(np.isnan(value).sum())
    return float((value == (np.inf if column == "pos_inf" else -np.inf)).sum())
