"""What low-precision formats would make of a saved tensor."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, overload

import numpy as np
from numpy.typing import NDArray

from smdwidgets import _core

__all__ = ["FORMATS", "FormatLoss", "Precision", "precision_of"]

FORMATS: Final = ("E4M3", "E5M2", "MXFP8", "NVFP4")
"""Formats: 8 bits with a scale per tensor, 8 bits in blocks of 32, and 4 bits in blocks of 16."""


@dataclass(frozen=True)
class FormatLoss:
    """What one format makes of the values.

    Attributes:
        format: name of the format.
        flushed: share of the values other than zero that become zero.
        saturated: share of them that are above the largest number of the format.
        error: root mean square of the error, relative to that of the values.
    """

    format: str
    flushed: float
    saturated: float
    error: float


class Precision(Sequence[FormatLoss]):
    """What the formats make of a tensor, one row per format.

    Attributes:
        zeros: number of zeros, which every format keeps.
        not_finite: number of values that are NaN or infinite, which are not judged.
    """

    def __init__(self, rows: Sequence[FormatLoss], zeros: int, not_finite: int) -> None:
        self._rows = tuple(rows)
        self.zeros, self.not_finite = zeros, not_finite

    @overload
    def __getitem__(self, index: int) -> FormatLoss: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[FormatLoss, ...]: ...
    def __getitem__(self, index: int | slice) -> FormatLoss | tuple[FormatLoss, ...]:
        return self._rows[index]

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[FormatLoss]:
        return iter(self._rows)

    def __repr__(self) -> str:
        lines = [f"{'format':8}{'flushed':>10}{'saturated':>11}{'error':>8}"]
        lines += [f"{one.format:8}{one.flushed:>10.2%}{one.saturated:>11.2%}{one.error:>8.3f}" for one in self._rows]
        return "\n".join(lines)


def precision_of(values: NDArray[np.generic], *, scaled: bool = True) -> Precision:
    """Return what the formats make of an array.

    >>> precision_of(np.array([1.0, 1e-9, 0.0], np.float32), scaled=False)
    format     flushed  saturated   error
    E4M3        50.00%      0.00%   0.000
    E5M2        50.00%      0.00%   0.000
    MXFP8       50.00%      0.00%   0.000
    NVFP4       50.00%      0.00%   0.000
    """
    with np.errstate(all="ignore"):
        floats = np.ascontiguousarray(values, dtype=np.float32)
    rows, zeros, not_finite = [], 0, 0
    for name in FORMATS:
        loss = _core.precision_loss(floats, name.lower(), scaled)
        count = loss["nonzero"]
        zeros, not_finite = int(loss["zeros"]), int(loss["not_finite"])
        error = math.sqrt(loss["error"] / loss["power"]) if loss["power"] else 0.0
        rows.append(
            FormatLoss(
                name, loss["flushed"] / count if count else 0.0, loss["saturated"] / count if count else 0.0, error
            )
        )
    return Precision(rows, zeros, not_finite)
