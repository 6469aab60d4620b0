"""Statistics of tensors that are read one by one, such as those of checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smdwidgets import _core
from smdwidgets.exceptions import DataError, RunIOError
from smdwidgets.trials.run import Row
from smdwidgets.trials.tables import COUNTS, LIMITS, NUMBERS, Table, key_columns


def stored_statistics(
    rows: Sequence[Row],
    read: Callable[[Row], NDArray[Any]],
    mode_of: Callable[[int], tuple[int, int] | None],
    cancelled: Callable[[], bool],
) -> Table:
    """Return the statistics of tensors, read one after the other.

    Rows of one name follow each other, by ascending step. At most two values are in memory: the one before is needed
    for the change.
    """
    kept: list[Row] = []
    found: list[dict[str, int | float]] = []
    errors: list[tuple[str, int, str | None, BaseException]] = []
    last: tuple[str, NDArray[Any]] | None = None
    for row in rows:
        if cancelled():
            raise KeyboardInterrupt
        name, step, worker = row
        try:
            value = np.ascontiguousarray(read(row))
        except (DataError, RunIOError) as error:
            errors.append((name, step, worker, error))
            continue
        if value.dtype.kind not in "biufcV":
            continue
        is_next = last is not None and last[0] == name
        before = last[1] if last is not None and is_next else None
        comparable = before is not None and (before.shape, before.dtype) == (value.shape, value.dtype)
        found.append(_core.tensor_statistics(value, before if comparable else None))
        kept.append(row)
        last = name, value
    table = key_columns(kept, mode_of) | {"flags": np.zeros(len(kept), np.uint16), "error": errors}
    for column in (*COUNTS, *LIMITS):
        table[column] = np.array([one[column] for one in found], np.int64)
    for column in NUMBERS:
        table[column] = np.array([one[column] for one in found], np.float64)
    return table
