"""Statistics of tensors of which only reductions were saved."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from smdwidgets.exceptions import UnsupportedDataError
from smdwidgets.trials.tables import COUNTS, KEYS, LIMITS, NUMBERS, REDUCTIONS_ONLY, Table, selected

#: The reductions that are statistics.
SAVED: Final = ("min", "max", "mean", "std", "l1", "l2")


def from_saved_reductions(reduced: dict[str, Any]) -> Table:
    """Return a table of statistics from saved reductions.

    Counts are -1, and missing numbers NaN.

    >>> row = dict(name=["w"], step=[0], mode=[1], mode_step=[0], worker=["worker_0"]) | dict.fromkeys(SAVED, [-2.0])
    >>> table = from_saved_reductions({key: np.array(column) for key, column in row.items()} | {"error": []})
    >>> table["l2"].item(), table["abs_max"].item(), table["count"].item()
    (-2.0, 2.0, -1)
    """
    rows = len(reduced["step"])
    table: Table = {name: reduced[name] for name in KEYS}
    table |= {name: np.full(rows, -1, np.int64) for name in (*COUNTS, *LIMITS)}
    for name in NUMBERS:
        column = np.asarray(reduced[name]) if name in reduced else np.full(rows, np.nan)
        table[name] = np.real(column).astype(float)
    table["abs_max"] = np.maximum(np.abs(table["min"]), np.abs(table["max"]))
    table["flags"] = np.full(rows, REDUCTIONS_ONLY, np.uint16)
    failed = dict(reduced["error"])
    table["error"] = [
        (str(table["name"][row]), int(table["step"][row]), table["worker"][row], error)
        for row, error in failed.items()
        if not isinstance(error, UnsupportedDataError)  # strings have no statistics
    ]
    has_any = ~np.all([np.isnan(table[name]) for name in SAVED], axis=0)
    return selected(table, has_any & ~np.isin(np.arange(rows), list(failed)))
