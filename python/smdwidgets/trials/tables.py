"""Dictionaries of columns, which sweeps and statistics files return."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from smdwidgets.modes import ModeKeys

#: Counts of all elements.
COUNTS = ("count", "nan", "neg_inf", "pos_inf", "zeros")
#: Counts of elements at the ends of the range of a type of 8 or 4 bits; 0 for other types.
LIMITS = ("saturated", "subnormal")
#: Numbers of the finite elements.
NUMBERS = ("min", "max", "mean", "std", "l1", "l2", "abs_max", "update")
#: The columns that identify a row.
KEYS = ("name", "step", "mode", "mode_step", "worker")

#: Flags of rows that were not computed from the elements: estimated, or from saved reductions, without counts.
APPROXIMATE = 16
REDUCTIONS_ONLY = 32

Table = dict[str, Any]


def key_columns(rows: Sequence[tuple[str, int, str | None]], mode_of: Callable[[int], tuple[int, int] | None]) -> Table:
    """Return the columns that identify rows of name, global step and worker.

    ``mode_of`` returns the number of the mode, and the mode step; None for global steps without a mode.

    >>> key_columns([("loss", 7, "worker_0")], lambda step: (1, step - 5))["mode_step"]
    array([2])
    """
    modes = [mode_of(step) or (ModeKeys.GLOBAL.value, step) for _, step, _ in rows]
    return {
        "name": np.array([name for name, _, _ in rows], object),
        "step": np.array([step for _, step, _ in rows], np.int64),
        "mode": np.array([mode for mode, _ in modes], np.int64),
        "mode_step": np.array([mode_step for _, mode_step in modes], np.int64),
        "worker": np.array([worker for _, _, worker in rows], object),
    }


def selected(table: Table, rows: Any) -> Table:
    """Return some rows of a table: their numbers, or a mask.

    >>> selected({"step": np.arange(4), "error": []}, [2, 3])["step"]
    array([2, 3])
    """
    if isinstance(rows, np.ndarray) and rows.dtype == bool and rows.all():
        return dict(table)  # the usual case, in which nothing is copied
    return {name: column if name == "error" else column[rows] for name, column in table.items()}


def joined(tables: Iterable[Table]) -> Table:
    """Return one table with the rows of several tables with equal columns.

    >>> joined([{"step": np.array([1]), "error": []}, {"step": np.array([2]), "error": []}])["step"]
    array([1, 2])
    """
    tables = list(tables)
    if len(tables) == 1:
        return tables[0]
    return {
        name: [error for table in tables for error in table[name]]
        if name == "error"
        else np.concatenate([table[name] for table in tables])
        for name in tables[0]
    }
