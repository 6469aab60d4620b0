"""The size of tensors relative to their start.

The map colours it unless another statistic is chosen. The start of a tensor is its first size that is finite and not 0.
Sizes are logarithms, so that the start is subtracted from bins of sizes, whose extremes and means stay exact.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from smdwidgets.survey.bins import Bins

#: Ends of the colour scale, as factors. That of a run is the first one far enough above most of its values.
FACTORS: Final = (1.1, 1.2, 1.5, 2.0, 4.0, 10.0, 100.0, 1000.0, 1e4, 1e6)
#: Share of the values that have a place on the scale. Those of a single tensor that explodes do not stretch it.
SHARE: Final = 0.9
#: Part of the scale that these values take at most, so that a healthy run looks calm.
ROOM: Final = 0.6
#: Places among the tensors that are shown, and the row of the table of each.
Layer = tuple[NDArray[np.int64], NDArray[np.int64]]
#: The size, and what a run has that stored norms only.
_SIZES: Final = ("size", "l2")
_NEVER: Final = np.iinfo(np.int64).max
#: Logarithm that stands for 0 in bins.
_ZERO: Final = -30.0


class Starts:
    """The first size of each row, as a logarithm, and its step.

    >>> starts = Starts()
    >>> size = np.float32([-np.inf, 0.5, 1.5])
    >>> places = {"row": np.int32([0, 0, 0]), "step": np.array([0, 5, 9]), "elements": np.float32([4, 4, 4])}
    >>> starts.add(places | {"size": size, "l2": size})
    >>> starts.growths(np.int32([0, 0]), np.float32([1.5, 0.5])).tolist()
    [1.0, 0.0]
    """

    def __init__(self) -> None:
        self._steps = {name: np.empty(0, np.int64) for name in _SIZES}
        self._values = {name: np.empty(0, np.float32) for name in _SIZES}
        #: Rows of tensors, which have several elements.
        self._tensors = np.empty(0, np.bool_)

    def add(self, records: Mapping[str, NDArray[Any]]) -> None:
        """Note the first sizes of records, which are sorted by row and step."""
        several = records["row"][records["elements"] != 1]
        if len(several):
            grown = int(several[-1]) + 1 - len(self._tensors)
            self._tensors = np.append(self._tensors, np.zeros(max(0, grown), np.bool_))
            self._tensors[several] = True
        for name in _SIZES:
            finite = np.flatnonzero(np.isfinite(records[name]))
            rows, begins = np.unique(records["row"][finite], return_index=True)
            if not len(rows):
                continue
            new = int(rows[-1]) + 1 - len(self._steps[name])
            if new > 0:
                self._steps[name] = np.append(self._steps[name], np.full(new, _NEVER))
                self._values[name] = np.append(self._values[name], np.zeros(new, np.float32))
            first = finite[begins]
            earlier = records["step"][first] <= self._steps[name][rows]
            self._steps[name][rows[earlier]] = records["step"][first][earlier]
            self._values[name][rows[earlier]] = records[name][first][earlier]

    def put(self, rows: NDArray[np.int32], starts: Mapping[str, NDArray[Any]]) -> None:
        """Take over the starts of new rows.

        Args:
            rows: the rows.
            starts: of each row, whether it has several elements, and its first size and norm with their steps.
        """
        size = int(rows.max(initial=-1)) + 1
        self._tensors = np.append(self._tensors, np.zeros(max(0, size - len(self._tensors)), np.bool_))
        self._tensors[rows] = starts["several"] > 0
        for name in _SIZES:
            new = max(0, size - len(self._steps[name]))
            self._steps[name] = np.append(self._steps[name], np.full(new, _NEVER))
            self._values[name] = np.append(self._values[name], np.zeros(new, np.float32))
            self._steps[name][rows] = starts[f"{name}.step"]
            self._values[name][rows] = starts[name]

    def _of(self, name: str, rows: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return steps and sizes; a row without one has a step that never comes."""
        has_row = rows < len(self._steps[name])
        steps, values = np.full(len(rows), _NEVER), np.zeros(len(rows), np.float32)
        steps[has_row], values[has_row] = self._steps[name][rows[has_row]], self._values[name][rows[has_row]]
        return steps, values

    def of(self, row: int) -> tuple[str, np.float32]:
        """Return the name of a row's size, and its start; NaN if it has none."""
        for name in _SIZES:
            [step], [value] = self._of(name, np.array([row]))
            if step < _NEVER:
                return name, value
        return _SIZES[0], np.float32(np.nan)

    @property
    def has_tensors(self) -> bool:
        """Whether some rows have several elements."""
        return bool(self._tensors.any())

    def growths(self, rows: NDArray[Any], sizes: NDArray[Any]) -> NDArray[Any]:
        """Return the growth of sizes, as logarithms.

        Scalars are left out if there are tensors.
        """
        if self.has_tensors:
            chosen = rows < len(self._tensors)
            chosen[chosen] = self._tensors[rows[chosen]]
            rows, sizes = rows[chosen], sizes[chosen]
        return sizes - self._of("size", rows)[1]

    def bins(self, layer: Layer, level: int, first: int, sizes: Callable[[str, Layer], Bins]) -> Bins:
        """Return bins of growth.

        Before its first size, a tensor has no growth; one that is 0 at all steps thus never has.

        Args:
            layer: the rows; at most one per tensor.
            level: level of the bins.
            first: number of the first bin.
            sizes: returns the bins of "size" or "l2" of some rows.
        """
        owners, rows = layer
        by_norm = (self._of("size", rows)[0] == _NEVER) & (self._of("l2", rows)[0] < _NEVER)
        merged: Bins | None = None
        for name, chosen in (("size", ~by_norm), ("l2", by_norm)):
            if merged is not None and not chosen.any():
                continue
            part = sizes(name, (owners[chosen], rows[chosen]))
            steps, values = self._of(name, rows[chosen])
            start = np.zeros((len(part.lo), 1), np.float32)
            start[owners[chosen], 0] = values
            begin = np.full((len(part.lo), 1), -_NEVER)
            begin[owners[chosen], 0] = np.where(steps < _NEVER, steps >> level, _NEVER)
            place = first + np.arange(part.lo.shape[1])[None, :]
            # Zeros before the start, as biases and other parameters have at first, are no decline.
            early = (place <= begin) & (part.lo <= _ZERO)
            part.lo[early] = part.mid[early] = part.hi[early]
            for values_ in (part.lo, part.mid, part.hi):
                values_[place < begin] = np.nan
                values_ -= start
            if merged is None:
                merged = part
            else:
                merged.merge(part)
        assert merged is not None
        return merged


def limit_of(growths: NDArray[Any]) -> float:
    """Return the end of the colour scale, as a logarithm.

    >>> round(10 ** limit_of(np.log10([1.0, 1.2, 1.9, 0.6])))
    4
    """
    amounts = np.abs(growths[np.isfinite(growths)])
    usual = float(np.quantile(amounts, SHARE)) if len(amounts) else 0.0
    decades = [float(np.log10(factor)) for factor in FACTORS]
    return next((each for each in decades if usual <= ROOM * each), decades[-1])
