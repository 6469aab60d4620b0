"""What low-precision formats would make of a saved tensor."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, overload

import numpy as np
from numpy.typing import NDArray

from smdwidgets import _core
from smdwidgets._text import natural
from smdwidgets.exceptions import SMDebugError
from smdwidgets.trials.columns import Columns
from smdwidgets.trials.reader import RunReader

__all__ = [
    "FLUSHED",
    "FORMATS",
    "INACCURATE",
    "FormatLoss",
    "Precision",
    "TensorPrecision",
    "columns_of",
    "precision_of",
    "saved_until",
    "worst_first",
]

FORMATS: Final = ("E4M3", "E5M2", "MXFP8", "NVFP4")
"""Formats: 8 bits with a scale per tensor, 8 bits in blocks of 32, and 4 bits in blocks of 16."""

#: Steps before one that are looked through for a value.
_NEAR: Final = 64
_FLOATS: Final = frozenset({"float16", "bfloat16", "float32", "float64"})

FLUSHED: Final = 0.05
"""Share of flushed values that is worth a look."""
INACCURATE: Final = 0.2
"""Relative error that is worth a look."""


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

    @property
    def lost(self) -> float:
        """Share of the values that are flushed or saturated."""
        return self.flushed + self.saturated

    @property
    def is_notable(self) -> bool:
        """Whether the format is worth a look.

        More than 5 % are lost, or the error is above 0.2.
        """
        return self.lost > FLUSHED or self.error > INACCURATE


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


@dataclass(frozen=True)
class TensorPrecision:
    """What the formats make of a tensor at a step.

    Attributes:
        name: name of the tensor.
        step: global step of the value.
        formats: one row per format.
    """

    name: str
    step: int
    formats: Precision

    @property
    def lost(self) -> float:
        """Largest share of the values that a format flushes or saturates."""
        return max((one.lost for one in self.formats), default=0.0)


def worst_first(tensors: Iterable[TensorPrecision]) -> list[TensorPrecision]:
    """Return tensors in the order of what a format loses of them.

    Of equal ones, the largest error comes first.

    >>> small, even = (precision_of(np.array(one, np.float32), scaled=False) for one in ([1e-9, 1.0], [1.0, 2.0]))
    >>> [one.name for one in worst_first([TensorPrecision("even", 0, even), TensorPrecision("small", 0, small)])]
    ['small', 'even']
    """
    return sorted(tensors, key=lambda one: (-one.lost, -max(row.error for row in one.formats), natural(one.name)))


def columns_of(tensors: Iterable[TensorPrecision]) -> Columns:
    """Return a table with a row for each tensor and format."""
    rows = [(tensor, one) for tensor in tensors for one in tensor.formats]
    return Columns(
        {
            "name": np.array([tensor.name for tensor, _ in rows], object),
            "step": np.array([tensor.step for tensor, _ in rows], np.int64),
            "format": np.array([one.format for _, one in rows], object),
            "flushed": np.array([one.flushed for _, one in rows], np.float64),
            "saturated": np.array([one.saturated for _, one in rows], np.float64),
            "error": np.array([one.error for _, one in rows], np.float64),
        }
    )


def saved_until(reader: RunReader, name: str, step: int, worker: str | None = None) -> tuple[int, int] | None:
    """Return the last step with a value of several numbers, and their count.

    Steps after ``step`` do not count. The result is None if there is none near the step: statistics without values may
    have been saved since.
    """
    steps = reader.steps_of(name)
    end = bisect_right(steps, step)
    for at in reversed(steps[max(0, end - _NEAR) : end]):
        location = reader.index.find(name, at, worker)
        if location is not None:
            try:
                dtype, shape = reader.head(location)
            except SMDebugError:  # damaged at this step
                continue
            count = math.prod(shape)
            return (at, count) if dtype in _FLOATS and count > 1 else None
    return None
