"""Statistics of numbers, tensors and histograms in TensorBoard logs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from smdwidgets import _core
from smdwidgets.trials.tables import APPROXIMATE, COUNTS, LIMITS, NUMBERS, Table

if TYPE_CHECKING:
    from smdwidgets.trials.run import Run, SweepOptions


def with_statistics(reduced: dict[str, Any]) -> Table:
    """Return a table of statistics from reductions with counts."""
    table: Table = {name: reduced[name] for name in ("name", "step", "mode", "mode_step", "worker")}
    for name, column in zip(COUNTS, ("size", "nan", "neg_inf", "pos_inf", "zero"), strict=True):
        table[name] = reduced[column]
    table |= {name: np.zeros(len(table["step"]), np.int64) for name in LIMITS}
    for name in NUMBERS:
        table[name] = np.asarray(reduced[name], float) if name in reduced else np.full(len(table["step"]), np.nan)
    # As of finite elements: a number that is not finite has none.
    lost = table["count"] == table["nan"] + table["neg_inf"] + table["pos_inf"]
    for name in NUMBERS:
        table[name] = np.where(lost, 0.0 if name in ("l1", "l2") else np.nan, table[name])
    table["abs_max"] = np.maximum(np.abs(table["min"]), np.abs(table["max"]))
    table["flags"] = np.zeros(len(table["step"]), np.uint16)
    table["error"] = [
        (str(table["name"][row]), int(table["step"][row]), table["worker"][row], error)
        for row, error in reduced["error"]
    ]
    failed = {row for row, _ in reduced["error"]}
    keep = table["count"] >= 0
    keep[list(failed)] = False
    return {name: column if name == "error" else column[keep] for name, column in table.items()}


def histogram_statistics(run: Run, table: Table, options: SweepOptions) -> Table:
    """Replace the statistics of histograms' buckets by estimates of those of the data."""
    kinds = {name: run.kind_of(name) for name in dict.fromkeys(table["name"].tolist())}
    rows = [row for row, name in enumerate(table["name"].tolist()) if kinds[name] == "histogram"]
    if not rows:
        return table
    places = [(str(table["name"][row]), int(table["step"][row]), str(table["worker"][row])) for row in rows]
    values, _ = run.values(places, options._replace(progress=None))
    for row, buckets in zip(rows, values, strict=True):
        if buckets is not None and buckets.ndim == 2 and buckets.shape[1] == 3:
            for name, value in estimated(buckets).items():
                table[name][row] = value
            table["flags"][row] |= APPROXIMATE
    return table


def estimated(buckets: NDArray[Any]) -> dict[str, float]:
    """Estimate statistics from buckets (left, right, count).

    Elements are assumed to be evenly spread in each bucket.

    >>> found = estimated(np.array([[0.0, 1.0, 3.0], [1.0, 2.0, 1.0]]))
    >>> found["count"], found["min"], found["max"], found["mean"]
    (4.0, 0.0, 2.0, 0.75)
    """
    filled = buckets[(buckets[:, 2] > 0) & np.isfinite(buckets).all(axis=1)]
    n = float(filled[:, 2].sum())
    if n <= 0:
        empty = _core.tensor_statistics(np.empty(0))
        return {name: float(empty[name]) for name in (*COUNTS, *NUMBERS)}
    left, right, weight = filled[:, 0], filled[:, 1], filled[:, 2] / n
    middle = 0.5 * (left + right)
    mean = float(weight @ middle)
    spread = float(weight @ ((middle - mean) ** 2 + (right - left) ** 2 / 12))
    low, high = float(left.min()), float(right.max())
    # A bucket around 0 has elements of both signs.
    straddles = (left < 0) & (right > 0)
    size = np.where(straddles, 0.5 * (left**2 + right**2) / np.where(straddles, right - left, 1), np.abs(middle))
    zeros = float(filled[(left == 0) & (right == 0), 2].sum())
    return {
        "count": n,
        "nan": 0.0,
        "neg_inf": 0.0,
        "pos_inf": 0.0,
        "zeros": zeros,
        "min": low,
        "max": high,
        "mean": mean,
        "std": spread**0.5,
        "l1": n * float(weight @ size),
        "l2": (n * (mean**2 + spread)) ** 0.5,
        "abs_max": max(abs(low), abs(high)),
        "update": float("nan"),
    }
