"""Copy tensors of a training script into arrays that can be written later.

A hook writes a tensor while the training continues and may change it, so the hook needs its own copy.
:func:`copy_tensor` copies into memory that an earlier step has used, because allocating new memory costs more than
copying. The element type is never converted.

>>> import numpy as np
>>> weights = np.ones(3, "float32")
>>> held = copy_tensor("weights", weights)
>>> weights += 1
>>> held.array
array([1., 1., 1.], dtype=float32)
"""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smdwidgets import _core
from smdwidgets._text import shown
from smdwidgets.exceptions import SMDebugTypeError

__all__ = [
    "DTYPES",
    "EXTENDED",
    "SLAB",
    "Slab",
    "Staging",
    "TensorCopy",
    "as_array",
    "as_held",
    "copy_tensor",
    "numbers_of",
]

#: Element types that NumPy lacks, and those in which copies hold their bytes.
EXTENDED: dict[str, np.dtype[Any]] = {
    "bfloat16": np.dtype(np.uint16),
    **dict.fromkeys(
        (
            "float8_e5m2",
            "float8_e4m3fn",
            "float8_e4m3fnuz",
            "float8_e4m3b11fnuz",
            "float8_e5m2fnuz",
            "float8_e8m0fnu",
            "float4_e2m1fn",
        ),
        np.dtype(np.uint8),
    ),
}
#: Names of the element types that the format supports.
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
        "float32",
        "float64",
        "complex64",
        "complex128",
        "str",
        *EXTENDED,
    ]
)
_ITEM_SIZES = {name: (EXTENDED.get(name) or np.dtype(name)).itemsize for name in DTYPES - {"str"}}
#: Slab size in bytes: large enough for the operating system to use huge pages, which copy faster.
SLAB = 8 << 20
#: Tensors larger than half a slab get a separate slab, whose size is a multiple of this.
_OWN = 1 << 20
#: Arrays of this size in bytes are copied past the processor's caches.
_LARGE = 64 << 10
#: Alignment of tensors in a slab, in bytes.
_ALIGN = 64


@dataclass(slots=True)
class TensorCopy:
    """A copy of a tensor that the hook owns.

    ``dtype`` is the element type's name in the format. It equals the array's dtype, except for those that NumPy lacks
    (:data:`EXTENDED`). ``shard`` is the position in the whole tensor, as JSON, if the tensor is one worker's shard.
    ``pending`` fills the array: its values are there when :meth:`complete` has returned. ``reductions`` are names, and
    whether each is of the magnitudes: the array has these numbers in place of the elements.

    ``statistics`` returns those that were computed where the tensor lies, once the copy is complete; ``is_whole`` is
    whether the array has the elements too. If it does not, ``sample`` may have at most 4,096 of them, and ``part``, of
    a parameter, those whose change is measured. ``device_seconds`` is how long the device was busy with the copy.
    ``norm`` is the l2 norm, once the writer has measured it because ``wants_norm``.
    """

    array: NDArray[Any]
    dtype: str
    shape: tuple[int, ...]
    slab: Slab | None = None
    shard: str | None = None
    pending: Callable[[], None] | None = None
    reductions: tuple[tuple[str, bool], ...] = ()
    statistics: Callable[[], Mapping[str, float]] | None = None
    is_whole: bool = True
    device_seconds: float = 0.0
    sample: NDArray[Any] | None = None
    part: NDArray[Any] | None = None
    wants_norm: bool = False
    norm: float | None = None

    def complete(self) -> None:
        """Wait for the values, or compute them.

        The writer's thread calls this before it reads a copy.
        """
        pending, self.pending = self.pending, None
        if pending is not None:
            pending()

    @property
    def nbytes(self) -> int:
        """Size in memory."""
        return int(self.array.nbytes)

    @property
    def whole_nbytes(self) -> int:
        """Size of the elements, which may not have been copied."""
        return self.nbytes if self.is_whole else prod(self.shape) * _ITEM_SIZES.get(self.dtype, 4)


#: Allocates a number of bytes.
Memory = Callable[[int], NDArray[np.uint8]]


def _memory(size: int) -> NDArray[np.uint8]:
    """Return memory that goes back to the system as soon as it is freed.

    The memory of the process that other libraries free would keep parts of it.
    """
    if os.name == "nt":
        return np.empty(size, np.uint8)
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # the system has none
            pages.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(pages, np.uint8)


class Slab:
    """A block of memory for the copies of several tensors."""

    __slots__ = ("memory", "source", "tensors", "used")

    def __init__(self, size: int, source: Memory) -> None:
        self.memory = source(size)
        self.source = source
        self.used = 0
        #: Number of tensors in the slab that are still needed.
        self.tensors = 0


class Staging:
    """A pool of memory for tensor copies.

    Memory is allocated for a copy and returned to the pool after the copy has been written. The pool keeps free memory
    so far as it has at most ``limit`` bytes in all.

    >>> staging = Staging(limit=1 << 30)
    >>> array, slab = staging.allocate(np.dtype("float32"), (10, 10))
    >>> staging.release(slab)
    >>> again, _ = staging.allocate(np.dtype("int8"), (400,))
    >>> np.shares_memory(array, again)
    True
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        #: By where the memory is from, and size.
        self._free: dict[tuple[Memory, int], list[Slab]] = {}
        #: Bytes of these, and of the slabs in use.
        self._kept = self._used = 0
        #: The slabs with room for small tensors, by where their memory is from.
        self._open: dict[Memory, Slab] = {}
        self._lock = threading.Lock()

    def allocate(
        self, dtype: np.dtype[Any], shape: tuple[int, ...], source: Memory = _memory
    ) -> tuple[NDArray[Any], Slab]:
        """Return an array to copy into, and the slab to give back after use.

        ``source`` allocates memory of another kind, such as page-locked memory.
        """
        size = dtype.itemsize * prod(shape)
        with self._lock:
            slab = self._open.get(source)
            if slab is None or slab.used + size > SLAB:
                slab = self._next(size, source)
            at = slab.used
            slab.used = at + size + -size % _ALIGN
            slab.tensors += 1
        return np.ndarray(shape, dtype, slab.memory, at), slab

    def retain(self, slab: Slab) -> None:
        """Keep a tensor of a slab for one more :meth:`release`."""
        with self._lock:
            slab.tensors += 1

    def copy(self, array: NDArray[Any]) -> tuple[NDArray[Any], Slab]:
        """Return a copy of an array, and the slab to give back after use."""
        room, slab = self.allocate(array.dtype, array.shape)
        if array.nbytes >= _LARGE and array.flags.c_contiguous:
            _core.copy(array, room)
        else:
            np.copyto(room, array, casting="no")
        return room, slab

    def release(self, slab: Slab) -> None:
        """Release one tensor of a slab; after the last one, the slab is reused."""
        with self._lock:
            slab.tensors -= 1
            if not slab.tensors:
                slab.used = 0
                if slab is not self._open.get(slab.source):
                    self._keep(slab)

    def clear(self) -> None:
        """Free all kept memory, and keep none from now on."""
        with self._lock:
            self._free.clear()
            self._open.clear()
            self._limit = 0

    def _next(self, size: int, source: Memory) -> Slab:
        own = size > SLAB // 2
        wanted = -(-size // _OWN) * _OWN if own else SLAB
        # Accept slabs up to twice the size, so that tensors whose sizes vary between steps can reuse them.
        fitting = min(
            (found for kind, found in self._free if kind == source and wanted <= found <= 2 * wanted), default=None
        )
        if fitting is None:
            slab = Slab(wanted, source)
        else:
            slab = self._free[source, fitting].pop()
            self._kept -= fitting
            if not self._free[source, fitting]:
                del self._free[source, fitting]
        self._used += slab.memory.nbytes
        if not own:
            full = self._open.get(source)
            self._open[source] = slab
            if full is not None and not full.tensors:
                self._keep(full)
        return slab

    def _keep(self, slab: Slab) -> None:
        size = slab.memory.nbytes
        self._used -= size
        if self._used + self._kept + size <= self._limit:
            self._free.setdefault((slab.source, size), []).append(slab)
            self._kept += size


def as_array(name: str, value: object) -> NDArray[Any]:
    """Convert ``value`` to an array with an element type that the format supports.

    Numbers become an array of one element, as in smdebug. Lists and tuples of numbers or strings are accepted too.

    Raises:
        SMDebugTypeError: the value is not a tensor, or its element type is not supported.
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
            raise SMDebugTypeError(
                f"cannot convert tensor {shown(name)} of type {type(value).__name__} to an array: {error}"
            ) from error
    else:
        raise SMDebugTypeError(
            f"tensor {shown(name)} must be an array, a number or a list of numbers, got {type(value).__name__}"
        )
    if array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8", "replace")
    if array.dtype.kind == "U":
        return array
    if array.dtype.name not in DTYPES:
        if array.dtype.kind == "O" and array.size and all(isinstance(item, str) for item in array.flat):
            return array.astype(np.str_)
        raise SMDebugTypeError(
            f"unsupported dtype {array.dtype.name} of tensor {shown(name)}; convert it to one of {', '.join(sorted(DTYPES))}"
        )
    if array.dtype.byteorder == ">":
        return array.astype(array.dtype.newbyteorder("<"))
    return array


def as_held(name: str, value: object) -> tuple[NDArray[Any], str]:
    """Return ``value`` as copies hold it, and the name of its element type."""
    array = as_array(name, value)
    if array.dtype.kind == "U":
        return array, "str"
    name_of_type = array.dtype.name
    held = EXTENDED.get(name_of_type)
    return array if held is None else array.view(held), name_of_type


def copy_tensor(name: str, value: object, staging: Staging | None = None) -> TensorCopy:
    """Return a copy of ``value`` that later training steps do not change."""
    array, name_of_type = as_held(name, value)
    if name_of_type == "str":
        return TensorCopy(array.copy(), name_of_type, array.shape)
    if staging is None:
        return TensorCopy(np.array(array, order="C", copy=True, subok=False), name_of_type, array.shape)
    room, slab = staging.copy(array)
    return TensorCopy(room, name_of_type, array.shape, slab)


def numbers_of(copy: TensorCopy) -> NDArray[Any]:
    """Return the elements of a copy; those of types that NumPy lacks as float32.

    >>> numbers_of(TensorCopy(np.array([0x38, 0x7E], np.uint8), "float8_e4m3fn", (2,)))
    array([  1., 448.], dtype=float32)
    """
    return _core.widen(copy.array, copy.dtype) if copy.dtype in EXTENDED else copy.array
