"""Detect tensors of 8 or 4 bits that do not fit into the range of their type."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from smdwidgets.diagnosis.inputs import RunData, TensorColumn
from smdwidgets.diagnosis.tensor_layers import curve
from smdwidgets.finding import Evidence, Finding

__all__ = ["beyond_range"]

#: Share of the elements at the largest number. A scale maps the largest element of a tensor or block to it, and what is
#: near is rounded to it: in blocks of evenly spread values, up to 10 % of float8 and 25 % of float4.
SATURATED, SATURATED_OF_FLOAT4 = 0.15, 0.35
#: The largest number of float4.
LARGEST_OF_FLOAT4 = 6.0
#: Share of the elements between zero and the least normal number.
SUBNORMAL = 0.5
#: Fewest saves with such a share, to the end.
FEWEST_SAVES = 3


class _Beyond(NamedTuple):
    """A tensor beyond its range: since when, its share at each save, and how."""

    tensor: TensorColumn
    onset: int
    shares: np.ndarray[tuple[int], np.dtype[np.float64]]
    what: str


def beyond_range(data: RunData) -> Iterator[Finding]:
    """Find tensors of 8 or 4 bits whose type has another range.

    Many of their elements are at the largest number of the type, or below the least normal one.
    """
    columns = [one for one in data.tensors.select(having="at_limit") if one.mode in ("TRAIN", "GLOBAL")]
    beyond = [one for column in columns for one in (_saturated(column), _subnormal(column)) if one is not None]
    if not beyond:
        return
    worst = min(beyond, key=lambda one: (one.onset, -one.shares[-1]))
    others = dict.fromkeys(one.tensor.name for one in beyond if one.tensor.name != worst.tensor.name)
    share, tensor = float(worst.shares[-1]), worst.tensor
    yield Finding.of(
        "beyond_range",
        "warning",
        "high",
        worst.onset,
        int(tensor.steps[-1]),
        (tensor.name, *others),
        {"tensor": tensor.name, "share": share, "what": worst.what, "others": _and(len(others))},
        (
            Evidence(
                f"{share:.0%} of the values are {worst.what}",
                tensor.name,
                curve=curve(tensor, tensor.steps, worst.shares, worst.onset),
            ),
        ),
    )


def _saturated(tensor: TensorColumn) -> _Beyond | None:
    elements = tensor["count"] - tensor["nan"] - tensor["neg_inf"] - tensor["pos_inf"]
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = tensor["at_limit"] / elements
    largest = np.fmax(np.abs(tensor["min"]), np.abs(tensor["max"]))
    limits = largest[(tensor["at_limit"] > 0) & np.isfinite(largest)]
    limit = float(limits[-1]) if len(limits) else np.nan
    least = SATURATED_OF_FLOAT4 if limit == LARGEST_OF_FLOAT4 else SATURATED
    # A scale maps elements that all have one magnitude to the largest number.
    onset = _onset(tensor, (shares >= least) & (shares < 1))
    what = "at the largest number of their type" + ("" if np.isnan(limit) else f", ±{limit:g}")
    return None if onset is None else _Beyond(tensor, onset, shares, what)


def _subnormal(tensor: TensorColumn) -> _Beyond | None:
    elements = tensor["count"] - tensor["nan"] - tensor["neg_inf"] - tensor["pos_inf"]
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = tensor["subnormal"] / elements
    onset = _onset(tensor, shares >= SUBNORMAL)
    return None if onset is None else _Beyond(tensor, onset, shares, "below the least normal number of their type")


def _onset(tensor: TensorColumn, high: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> int | None:
    """Return the step since which a condition holds at enough saves, or None."""
    last = int(np.argmin(high[::-1])) if not high.all() else len(high)
    return int(tensor.steps[len(high) - last]) if last >= FEWEST_SAVES else None


def _and(count: int) -> str:
    """Return how many tensors there are besides.

    >>> _and(0), _and(1), _and(3)
    ('', ', and of 1 other tensor', ', and of 3 other tensors')
    """
    return f", and of {count} other tensor{'s' if count > 1 else ''}" if count else ""
