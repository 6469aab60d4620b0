"""Ways to modify an array in place, and a check that later results are unaffected."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def _assign(array: Array) -> None:
    array[...] = np.zeros((), array.dtype)


def _assign_after_setting_the_flag(array: Array) -> None:
    array.flags.writeable = True
    _assign(array)


def _stride_tricks(array: Array) -> None:
    _assign(np.lib.stride_tricks.as_strided(array, (array.size,), (array.itemsize,)))


def _ctypes(array: Array) -> None:
    """Modify memory by address and ignore the read-only flag, as some frameworks do."""
    if array.dtype == object:
        _assign(array)
    else:
        ctypes.memset(array.ctypes.data, 0, array.nbytes)


WRITES: Mapping[str, Callable[[Array], None]] = {
    "assignment": _assign,
    "writeable flag": _assign_after_setting_the_flag,
    "stride tricks": _stride_tricks,
    "ctypes": _ctypes,
}


def arrays_in(answer: Any) -> list[Array]:
    """Return all arrays in a result, also those in mappings, lists and object arrays."""
    if isinstance(answer, np.ndarray):
        cells = [cell for cell in answer.flat if isinstance(cell, np.ndarray)] if answer.dtype == object else []
        return cells or [answer]
    if isinstance(answer, Mapping):
        return [array for value in answer.values() for array in arrays_in(value)]
    if isinstance(answer, list | tuple):
        return [array for value in answer for array in arrays_in(value)]
    return []


def check_writes_do_not_reach(ask: Callable[[], Any], writes: Iterable[str] = WRITES) -> None:
    """Overwrite what `ask` returns; check that later results are equal and separate."""
    first = arrays_in(ask())
    assert first
    expected = [array.copy() for array in first]
    handed_out = [first]
    for name in writes:
        now = arrays_in(ask())
        for array, value in zip(now, expected, strict=True):
            assert array.flags.writeable
            assert (array.dtype, array.shape) == (value.dtype, value.shape)
            np.testing.assert_array_equal(array, value)
        for array, earlier in product(now, [array for arrays in handed_out for array in arrays]):
            assert not np.shares_memory(array, earlier)
        for array in now:
            WRITES[name](array)
        handed_out.append(now)
    for array, value in zip(arrays_in(ask()), expected, strict=True):
        np.testing.assert_array_equal(array, value)
