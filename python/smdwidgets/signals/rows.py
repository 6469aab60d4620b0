"""The rows that signals give the Run Map: a head, an expert, a block.

A row is named like its signal with its own name at the end, such as ``"attention_max/blocks.1.attention/head 2"``.
Signals of single tensors have no rows, because these tensors have some already.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from smdwidgets.signals.kinds import SIGNAL_KINDS, SignalKind
from smdwidgets.signals.record import Signal

__all__ = ["MOST_ROWS", "SignalRow", "row_of", "signal_rows", "table_of"]

MOST_ROWS: Final = 4096
"""Rows of a kind at most. In a larger model each layer is one row, with the extreme value of its heads."""

_SHOWN: Final = ("head", "expert", "block", "")
#: Columns of `Trial.statistics` that are 0 in values of signals.
_NOTHING: Final = ("nan", "neg_inf", "pos_inf", "std", "flags")


@dataclass(frozen=True, eq=False, slots=True)
class SignalRow:
    """One row of a signal over steps, as one worker recorded it.

    Attributes:
        name: name of the row.
        kind: kind of the signal.
        worker: worker that recorded it.
        steps: steps with a value, ascending.
        values: the value at each step; infinities are possible, NaN is not.
    """

    name: str
    kind: SignalKind
    worker: str
    steps: NDArray[np.int64]
    values: NDArray[np.float32]

    def crossings(self) -> NDArray[np.bool_]:
        """Return where the values exceed a limit of the kind for the first time."""
        first = np.zeros(len(self.values), bool)
        for limit in self.kind.limits:
            above = self.values > limit
            if above.any():
                first[int(np.argmax(above))] = True
        return first


def signal_rows(signals: Iterable[Signal]) -> dict[str, tuple[SignalRow, ...]]:
    """Return the rows of signals by name, one for each worker.

    >>> steps, values = np.array([0, 8]), np.array([[1, 2], [3, np.nan]], np.float32)
    >>> signal = Signal("attention_max/a", "attention_max", "a", "head", (), 0, "worker_0", None, steps, values)
    >>> {name: row.values.tolist() for name, [row] in signal_rows([signal]).items()}
    {'attention_max/a/head 0': [1.0, 3.0], 'attention_max/a/head 1': [2.0]}
    """
    shown = [one for one in signals if one.rows in _SHOWN]
    widths: dict[str, int] = {}
    for one in shown:
        widths[one.kind] = widths.get(one.kind, 0) + one.values.shape[1]
    by_name: dict[str, list[SignalRow]] = {}
    for one in shown:
        kind = SIGNAL_KINDS[one.kind]
        if not one.rows or widths[one.kind] <= MOST_ROWS:
            columns = {row_of(one, row): one.values[:, row] for row in range(one.values.shape[1])}
        else:
            extreme = np.fmin if kind.is_low_bad else np.fmax
            columns = {one.name: extreme.reduce(one.values, axis=1)}
        for name, values in columns.items():
            present = ~np.isnan(values)
            if present.any():
                row = SignalRow(name, kind, one.worker, one.steps[present], values[present])
                by_name.setdefault(name, []).append(row)
    return {name: tuple(rows) for name, rows in by_name.items()}


def row_of(signal: Signal, row: int) -> str:
    """Return the name of a row of the map."""
    return f"{signal.name}/{signal.row_name(row)}" if signal.rows else signal.name


def table_of(rows: Iterable[SignalRow]) -> dict[str, NDArray[Any]]:
    """Return the columns of `Trial.statistics`: a value is a tensor with one element.

    Infinities are not counted, since logits are large before they are a fault.
    """
    every = list(rows)
    lengths = [len(row.steps) for row in every]
    values = np.concatenate([row.values for row in every] or [np.empty(0, np.float32)]).astype(np.float64)
    table: dict[str, NDArray[Any]] = {
        "name": np.repeat(np.array([row.name for row in every], object), lengths),
        "worker": np.repeat(np.array([row.worker for row in every], object), lengths),
        "step": np.concatenate([row.steps for row in every] or [np.empty(0, np.int64)]),
        "mode": np.full(len(values), "GLOBAL", object),
        "count": np.ones(len(values), np.int64),
        "zeros": (values == 0).astype(np.int64),
        "update": np.full(len(values), np.nan),
        **dict.fromkeys(("mean", "min", "max"), values),
        "l2": np.abs(values),
    }
    return table | {name: np.zeros(len(values), np.int64) for name in _NOTHING}
