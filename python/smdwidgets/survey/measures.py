"""Statistics that the Run Map shows, from those that a run has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

#: Significant digits of a logarithm of 24 bits.
_DIGITS: Final = 6


def measures(table: Mapping[str, Any]) -> dict[str, NDArray[np.float64]]:
    """Return sizes, L2 norms, changes, and shares of zeros and of NaN and infinity.

    NaN is an unknown value.

    Args:
        table: columns of `Trial.statistics`. A count of -1 is unknown.

    >>> table = {"count": [4.0], "nan": [0], "neg_inf": [0], "pos_inf": [0], "zeros": [1]}
    >>> found = measures(table | {"mean": [0.5], "std": [0.5], "l2": [3.0], "update": [1.5]})
    >>> {name: column.tolist() for name, column in found.items()}
    {'size': [1.5], 'l2': [3.0], 'update': [0.5], 'zeros': [0.25], 'not_finite': [0.0]}
    """
    count, zeros, mean, std, l2, update = (
        np.asarray(table[name], np.float64) for name in ("count", "zeros", "mean", "std", "l2", "update")
    )
    nan, negative, positive = (np.asarray(table[name], np.float64) for name in ("nan", "neg_inf", "pos_inf"))
    counted = count >= 0
    lost = np.where(counted, nan + negative + positive, 0)
    finite = count - lost
    nothing = counted & (finite <= 0)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        size = np.where(counted, l2 / np.sqrt(finite), np.hypot(mean, std))
        return {
            "size": np.where(nothing, np.nan, size),
            "l2": np.where(nothing, np.nan, l2),
            "update": np.where(nothing, np.nan, update / l2),
            "zeros": np.where(count > 0, zeros / count, np.nan),
            "not_finite": np.where(count > 0, lost / count, np.nan),
        }


def powers(logarithms: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return powers of ten, rounded to the digits that are known.

    >>> powers(np.array([np.log10(np.float32(8)), -np.inf, np.nan])).tolist()
    [8.0, 0.0, nan]
    """
    scale = 10.0 ** (_DIGITS - 1 - np.nan_to_num(np.floor(logarithms), posinf=0, neginf=0))
    with np.errstate(over="ignore"):
        raised = 10.0**logarithms
    with np.errstate(invalid="ignore"):
        rounded = np.round(raised * scale) / scale
    return np.where(np.isfinite(rounded), rounded, raised)
