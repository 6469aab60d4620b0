"""From whatever a training script holds to an array that can be written later.

A hook writes after the training has gone on, so it must own the bytes: :func:`owned` copies, into a buffer that an
earlier step has used (fresh memory costs more than the copying). What is copied is never converted.

>>> import numpy as np
>>> weights = np.ones(3, "float32")
>>> held = owned("weights", weights)
>>> weights += 1
>>> held.array
array([1., 1., 1.], dtype=float32)
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smdwidgets._text import shown
from smdwidgets.exceptions import SMDebugTypeError

__all__ = ["DTYPES", "Held", "Staging", "as_array", "owned"]

#: The names of the element types that the format has.
DTYPES = frozenset(
    [
        "bool",
        "int8",
        "uint8",
        "int16",
        "uint16",
        "int32",
        "uint32",
        "int64",
        "uint64",
        "float16",
        "bfloat16",
        "float32",
        "float64",
        "complex64",
        "complex128",
        "str",
    ]
)
#: Below this size a fresh array is as quick as one from the pool.
_SMALL = 1 << 15


@dataclass(slots=True)
class Held:
    """A tensor that the hook owns: its bytes as an array, and what they are.

    ``dtype`` is the format's name. It is the array's own but for bfloat16, whose bytes numpy holds as uint16.
    """

    array: NDArray[Any]
    dtype: str
    shape: tuple[int, ...]
    buffer: NDArray[np.uint8] | None = None

    @property
    def nbytes(self) -> int:
        """Its size in memory."""
        return int(self.array.nbytes)


class Staging:
    """Buffers that go round: taken for a tensor's copy, given back when it has been written. Holds at most ``limit`` bytes.

    >>> staging = Staging(limit=1 << 20)
    >>> first = staging.take(100_000)
    >>> staging.give_back(first)
    >>> staging.take(100_000) is first
    True
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._free: dict[int, list[NDArray[np.uint8]]] = {}
        self._held = 0
        self._lock = threading.Lock()

    def take(self, size: int) -> NDArray[np.uint8]:
        """A buffer of exactly this size."""
        with self._lock:
            free = self._free.get(size)
            if free:
                self._held -= size
                return free.pop()
        return np.empty(size, np.uint8)

    def give_back(self, buffer: NDArray[np.uint8]) -> None:
        """Take a buffer back, to be handed out again if there is room to keep it."""
        size = buffer.nbytes
        with self._lock:
            if self._held + size <= self._limit:
                self._free.setdefault(size, []).append(buffer)
                self._held += size

    def clear(self) -> None:
        """Keep none."""
        with self._lock:
            self._free.clear()
            self._held = 0

    def room(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> tuple[NDArray[Any], NDArray[np.uint8] | None]:
        """An array to copy into, and the buffer to give back when it is done with (None where it is not worth it)."""
        array = np.empty(shape, dtype) if (size := dtype.itemsize * _count(shape)) < _SMALL else None
        if array is not None:
            return array, None
        buffer = self.take(size)
        return buffer.view(dtype).reshape(shape), buffer


def _count(shape: tuple[int, ...]) -> int:
    count = 1
    for extent in shape:
        count *= extent
    return count


def as_array(name: str, value: object) -> NDArray[Any]:
    """The array that ``value`` is or stands for; TypeError naming the tensor where it is none.

    Numbers become an array of one element, as in smdebug; lists and tuples of numbers or of text are taken too.
    """
    if isinstance(value, np.ndarray):
        array: NDArray[Any] = value
    elif isinstance(value, np.generic):
        array = np.asarray(value).reshape(1)
    elif isinstance(value, bool | int | float | complex | str | bytes):
        array = np.array([value])
    elif isinstance(value, list | tuple) or hasattr(value, "__array__") or hasattr(value, "__array_interface__"):
        try:
            array = np.asarray(value)
        except Exception as error:
            raise SMDebugTypeError(f"{shown(name)}: a {type(value).__name__} that makes no array: {error}") from error
    else:
        raise SMDebugTypeError(
            f"{shown(name)} is no tensor: give an array, a number or a list of numbers, not {type(value).__name__}."
        )
    if array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8", "replace")
    if array.dtype.kind == "U":
        return array
    if array.dtype.name not in DTYPES:
        if array.dtype.kind == "O" and array.size and all(isinstance(item, str) for item in array.flat):
            return array.astype(np.str_)
        what = "an object of no fixed size" if array.dtype.kind == "O" else f"of dtype {array.dtype.name}"
        raise SMDebugTypeError(
            f"{shown(name)} is {what}, which a run can't hold. It can hold {', '.join(sorted(DTYPES))}: convert it first."
        )
    if array.dtype.byteorder == ">":
        return array.astype(array.dtype.newbyteorder("<"))
    return array


def owned(name: str, value: object, staging: Staging | None = None) -> Held:
    """A copy of ``value`` that later training steps do not change."""
    array = as_array(name, value)
    if array.dtype.kind == "U":
        return Held(array.copy(), "str", array.shape)
    name_of_type = array.dtype.name
    if name_of_type == "bfloat16":
        array = array.view(np.uint16)
    if staging is None:
        return Held(np.array(array, order="C", copy=True, subok=False), name_of_type, array.shape)
    room, buffer = staging.room(array.dtype, array.shape)
    np.copyto(room, array, casting="no")
    return Held(room, name_of_type, array.shape, buffer)
