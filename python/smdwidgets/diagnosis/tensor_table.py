"""The statistics of one tensor, which grow with its steps.

A run may have 100,000 tensors, so a table is few objects: one array of steps, which tensors share, and one of numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smdwidgets.diagnosis.arrays import Floats, Steps

__all__ = ["TensorTable"]


class TensorTable:
    """Rows of statistics by step.

    A column whose values are all equal, such as the number of elements, takes no memory.

    >>> table = TensorTable()
    >>> table.append(np.array([[0, 10], [0, 1]]), {"l2": np.array([1.0, 2.0]), "nan": np.zeros(2)})
    >>> table.put({"dead": np.array([0.5])}, 1)
    >>> {name: column.tolist() for name, column in table.columns().items()}
    {'nan': [0.0, 0.0], 'l2': [1.0, 2.0], 'dead': [nan, 0.5]}
    """

    __slots__ = ("_constants", "_keys", "_length", "_names", "_values")

    def __init__(self) -> None:
        #: Global steps, and steps of the mode.
        self._keys: NDArray[np.int64] = np.empty((2, 0), np.int64)
        #: Columns with one value.
        self._constants: Mapping[str, float] = {}
        #: The other columns.
        self._names: tuple[str, ...] = ()
        self._values: Floats = np.empty((0, 0))
        self._length = 0

    def __len__(self) -> int:
        return self._length

    @property
    def steps(self) -> Steps:
        """Global steps of the rows."""
        return self._keys[0, : self._length]

    @property
    def mode_steps(self) -> Steps:
        """Steps of the mode."""
        return self._keys[1, : self._length]

    def append(self, keys: NDArray[np.int64], columns: Mapping[str, Floats]) -> None:
        """Append rows; what is not given is NaN.

        Args:
            keys: global steps and steps of the mode. Tensors may share the array, which is never changed.
            columns: statistics by name.
        """
        begin, count = self._length, keys.shape[1]
        if not begin:
            self._constants = _shared({name: float(one[0]) for name, one in columns.items() if _are(one, one[0])})
            self._names = tuple(name for name in columns if name not in self._constants)
            self._keys, self._values = keys, np.empty((len(self._names), count))
        else:
            new = [name for name in columns if name not in self._constants and name not in self._names]
            changed = [name for name, value in self._constants.items() if not _are(columns.get(name, _NAN), value)]
            self._vary([*changed, *new])
            self._keys = _with_space(self._keys, begin, begin + count)
            self._values = _with_space(self._values, begin, begin + count)
            self._keys[:, begin : begin + count] = keys
        self._length += count
        for name, row in zip(self._names, self._values, strict=True):
            row[begin : self._length] = columns.get(name, np.nan)

    def put(self, columns: Mapping[str, Floats], rows: int) -> None:
        """Set columns of the last rows; new ones are NaN in the rows before."""
        self._vary([name for name in columns if name not in self._names])
        for name, column in columns.items():
            self._values[self._names.index(name), self._length - rows : self._length] = column

    def columns(self, rows: int | None = None) -> Mapping[str, Floats]:
        """Return the columns of all or of the last rows.

        They are views that stay valid, and are not to be changed.
        """
        begin = 0 if rows is None else self._length - rows
        return _Columns(self._constants, self._names, self._values[:, begin : self._length])

    def _vary(self, names: Sequence[str]) -> None:
        """Hold columns whose values differ; new ones are NaN so far."""
        if names:
            before = np.array([self._constants.get(name, np.nan) for name in names])
            more = np.repeat(before[:, None], self._values.shape[1], axis=1)
            self._values = np.concatenate([self._values, more])
            self._names += tuple(names)
            self._constants = _shared({name: one for name, one in self._constants.items() if name not in names})


class _Columns(Mapping[str, NDArray[Any]]):
    """Columns by name."""

    __slots__ = ("_constants", "_names", "_values")

    def __init__(self, constants: Mapping[str, float], names: tuple[str, ...], values: Floats) -> None:
        self._constants = constants
        self._names = names
        self._values = values

    def __getitem__(self, name: str) -> Floats:
        if name in self._names:
            column: Floats = self._values[self._names.index(name)]
            return column
        return np.broadcast_to(self._constants[name], self._values.shape[1])

    def __contains__(self, name: object) -> bool:
        return name in self._names or name in self._constants

    def __iter__(self) -> Iterator[str]:
        yield from self._constants
        yield from self._names

    def __len__(self) -> int:
        return len(self._constants) + len(self._names)


#: A missing column.
_NAN = np.array([np.nan])


def _are(column: Floats, value: float) -> bool:
    """Whether all values of a column are the same one, which may be NaN."""
    return bool((column == value).all()) or bool(value != value and np.isnan(column).all())


def _shared(constants: dict[str, float]) -> Mapping[str, float]:
    """Return equal constants as one object: most tensors have the same."""
    return _kept(tuple((name, value if value == value else math.nan) for name, value in constants.items()))


@lru_cache(4096)
def _kept(constants: tuple[tuple[str, float], ...]) -> Mapping[str, float]:
    return dict(constants)


def _with_space(space: NDArray[Any], length: int, end: int) -> NDArray[Any]:
    """Return an array with at least so many columns.

    In the long run, that takes constant time per column.
    """
    if end <= space.shape[1]:
        return space
    larger = np.empty((space.shape[0], max(16, end + end // 4)), space.dtype)
    larger[:, :length] = space[:, :length]
    return larger
