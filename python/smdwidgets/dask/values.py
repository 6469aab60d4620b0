"""The values of one tensor over steps, as an array that reads what is indexed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from smdwidgets._text import shown
from smdwidgets.exceptions import SMDebugValueError
from smdwidgets.modes import ModeKeys
from smdwidgets.storage.protocol import Range
from smdwidgets.trials.shipping import Shipment
from smdwidgets.trials.trial import Tensor

#: The global step of a row that the tensor does not have, which is filled with NaN.
MISSING: Final = -1
#: Values up to this size are read whole although only some of their rows are wanted.
_WHOLE_UP_TO: Final = 8 << 20
#: Records of which parts are read at a time.
_PARTS_AT_ONCE: Final = 8
#: Distinct record lengths whose headers are read to compare shapes.
_HEADS: Final = 16
#: The beginning of a record up to its time: record header, tag of the field, seconds.
_TIME_FIELD, _TIME_END = 12, 21
_TIME_TAG = 0x09


@dataclass(frozen=True)
class Values:
    """Values of a tensor, as an array (step, *shape) of which an index reads a part.

    It can be pickled, and opens the run in the process that reads.
    """

    shipment: Shipment
    name: str
    #: Global steps; MISSING where the tensor has none.
    steps: NDArray[np.int64]
    worker: str | None
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    verify: str

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        steps = self.steps.tobytes()
        return "smdwidgets.Values", self.shipment.identity, self.name, steps, self.worker, self.verify

    def __getitem__(self, index: Any) -> NDArray[Any]:
        first, *rest = index if isinstance(index, tuple) else (index,)
        chosen = self.steps[first]
        steps = np.atleast_1d(chosen).tolist()
        rows = slice(None)
        if rest and isinstance(rest[0], slice):
            start, stop, stride = rest[0].indices(self.shape[1])
            if stride == 1:
                rows, rest[0] = slice(start, max(start, stop)), slice(None)
        read = self._read(steps, rows)
        inner = (slice(None), *rest)
        selected = read[inner] if any(one != slice(None) for one in map(_as_key, rest)) else read
        return selected if np.ndim(chosen) else selected[0]

    def _read(self, steps: list[int], rows: slice) -> NDArray[Any]:
        """Return the rows of each step."""
        inner = self.shape[1:] if rows == slice(None) else (rows.stop - rows.start, *self.shape[2:])
        present = [(at, step) for at, step in enumerate(steps) if step != MISSING]
        part = rows != slice(None) and inner != self.shape[1:]
        size = math.prod(self.shape[1:]) * self.dtype.itemsize
        found: Sequence[NDArray[Any]] | NDArray[Any] = []
        if not present:
            return np.full((len(steps), *inner), np.nan if steps else 0, self.dtype)
        tensor = self.shipment.open().tensor(self.name).passing()
        if part and (self.verify == "none" or size > _WHOLE_UP_TO):
            found = self._parts(tensor, [step for _, step in present], rows)
        else:
            found = self._wholes(tensor, [step for _, step in present], rows)
            if isinstance(found, np.ndarray) and len(present) == len(steps):
                return found
        out = np.empty((len(steps), *inner), self.dtype)
        if len(present) < len(steps):
            out[...] = np.nan
        for (at, _), value in zip(present, found, strict=True):
            out[at] = value
        return out

    def _wholes(self, tensor: Tensor, steps: list[int], rows: slice) -> Sequence[NDArray[Any]] | NDArray[Any]:
        """Read values in one pass."""
        wanted = [(self.name, step, self.worker) for step in steps]
        values, failed = tensor.trial.reader.values(wanted)
        if isinstance(values, np.ndarray) and not failed and values.dtype == self.dtype:
            if values.shape[1:] != self.shape[1:]:
                self._check(values[0], steps[0])
            return values if rows == slice(None) else values[:, rows]
        found = []
        for step, value in zip(steps, values, strict=True):
            # Reading it alone repairs what can be repaired, or raises with the reason.
            one = tensor.value(step, worker=self.worker) if value is None else np.asarray(value)
            self._check(one, step)
            found.append(one if rows == slice(None) else one[rows])
        return found

    def _parts(self, tensor: Tensor, steps: list[int], rows: slice) -> list[NDArray[Any]]:
        """Read rows of values, each as one byte range."""

        def read(step: int) -> NDArray[Any]:
            part = tensor.rows(step, rows.start, rows.stop, worker=self.worker, verify=self.verify)
            self._check(part, step, (rows.stop - rows.start, *self.shape[2:]))
            return part

        if len(steps) < 2:
            return [read(step) for step in steps]
        with ThreadPoolExecutor(min(_PARTS_AT_ONCE, len(steps))) as pool:
            return list(pool.map(read, steps))

    def _check(self, value: NDArray[Any], step: int, shape: tuple[int, ...] | None = None) -> None:
        expected = self.shape[1:] if shape is None else shape
        if (value.dtype, value.shape) != (self.dtype, expected):
            raise differs(self.name, step, value.dtype, value.shape, self.dtype, expected)


def _as_key(one: Any) -> Any:
    """Return an index that can be compared with a slice."""
    return one if isinstance(one, slice) else repr(one)


def differs(
    name: str,
    step: int,
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    expected_dtype: np.dtype[Any],
    expected: tuple[int, ...],
    at: str = "the first step",
) -> SMDebugValueError:
    """Return the error for a value whose dtype or shape is not that of the others."""
    return SMDebugValueError(
        f"tensor {shown(name)} has dtype {dtype.name} and shape {shape} at step {step}, but {expected_dtype.name} and "
        f"{expected} at {at}; one array needs equal shapes: select steps, or use trial.values()"
    )


def kept_steps(tensor: Tensor, steps: Sequence[int] | None, mode: ModeKeys, worker: str | None) -> list[int]:
    """Return the global steps of values.

    These are the given steps of a mode, or all complete steps that have a value.
    """
    if steps is not None:
        return [tensor.global_step(step, mode, worker) for step in steps]
    reader = tensor.trial.reader
    found = [reader.global_step(mode, step) for step in reader.complete_steps_of(tensor.name, mode)]
    return [step for step in found if step is not None and _has_value(tensor, step, worker)]


def _has_value(tensor: Tensor, step: int, worker: str | None) -> bool:
    return tensor.trial.reader.index.find(tensor.name, step, worker) is not None


def signature(tensor: Tensor, steps: Sequence[int], worker: str | None) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """Return dtype and shape of the values at some global steps.

    Reads the header of one record of each length, since records of equal shape have nearly equal lengths, and raises if
    two differ. What headers of other records say is compared when they are read.
    """
    if not steps:
        raise SMDebugValueError(f"tensor {shown(tensor.name)} has no value at any of the selected complete steps")
    by_length: dict[int, int] = {}
    for step in steps:
        place = tensor.trial.reader.index.find(tensor.name, step, worker)
        if place is None:
            tensor.value(step, worker=worker)  # raises with the reason
        by_length.setdefault(getattr(place, "length", 0), step)
    known = tensor.signature(steps[0], worker)
    for step in dict.fromkeys([*list(by_length.values())[:_HEADS], steps[-1]]):
        found = tensor.signature(step, worker)
        if found != known:
            raise differs(tensor.name, step, *found, *known, f"step {steps[0]}")
    return known


@dataclass(frozen=True)
class Times:
    """Times at which records were written, in Unix seconds.

    An array of which an index reads a part.
    """

    shipment: Shipment
    #: Name, global step and worker of a record of each step.
    records: tuple[tuple[str, int, str | None], ...]
    dtype: np.dtype[Any] = np.dtype(np.float64)  # noqa: RUF009  (immutable)

    @property
    def shape(self) -> tuple[int]:
        """The number of steps."""
        return (len(self.records),)

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return 1

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        return "smdwidgets.Times", self.shipment.identity, self.records

    def __getitem__(self, index: Any) -> NDArray[np.float64]:
        chosen = np.arange(len(self.records))[index]
        run = self.shipment.open().reader
        times = np.full(np.size(chosen), np.nan)
        ranges = []
        for at, record in enumerate(np.atleast_1d(chosen).tolist()):
            place = run.index.find(*self.records[record])
            if (time := getattr(place, "wall_time", None)) is not None:
                times[at] = time
            elif place is not None:
                ranges.append((at, Range(place.event_key, place.offset, min(_TIME_END, place.length))))
        if ranges:
            parts = run.storage.read_ranges([one for _, one in ranges])
            for (at, _), part in zip(ranges, parts, strict=True):
                times[at] = _time(bytes(part))
        return times.reshape(np.shape(chosen))


def _time(beginning: bytes) -> float:
    """Return the time of a record, which writers put first; NaN without one."""
    if len(beginning) < _TIME_END or beginning[_TIME_FIELD] != _TIME_TAG:
        return float("nan")
    return float(np.frombuffer(beginning, "<f8", 1, _TIME_FIELD + 1)[0])
