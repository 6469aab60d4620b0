"""Assemble sharded tensors from the shards of all workers.

A position says where a worker's shard belongs; reductions are combined, too.

A worker of a sharded training saves its own shard and records the position in its index file (docs/format.md).
Positions come from files, so they are checked before anything is allocated: a whole tensor takes as much memory as the
shards that were read.

>>> layouts = [json.dumps({"global_shape": [2], "offsets": [offset], "sizes": [1]}) for offset in (0, 1)]
>>> halves = [Part(f"worker_{rank}", "", layout) for rank, layout in enumerate(layouts)]
>>> sharded = Sharded("w", 0, halves)
>>> sharded.shape
(2,)
>>> sharded.assemble({"worker_0": np.array([1.0]), "worker_1": np.array([2.0])}.get)
array([1., 2.])
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smdwidgets._text import shown
from smdwidgets.exceptions import CorruptDataError, IncompleteShardsError, UnsupportedDataError

__all__ = ["Part", "Shard", "Sharded", "combined"]

#: Worker of rows that were assembled from the shards of several workers.
ASSEMBLED = "all"

#: The largest number of elements and of dimensions that a position may state.
_LARGEST = 1 << 62
_MOST_DIMENSIONS = 64
#: Ranges that an error lists, and shards up to which the missing ranges are computed.
_SHOWN_RANGES = 4
_MOST_SUBTRACTED = 4096

_Box = tuple[tuple[int, int], ...]


def _root_of_squares(one: NDArray[Any], other: NDArray[Any]) -> NDArray[Any]:
    """Combine two norms, without overflow; NaN if one of them is NaN."""
    return np.where(np.isnan(one) | np.isnan(other), np.nan, np.hypot(one, other))


_COMBINE: Mapping[str, Any] = {
    "sum": np.add,
    "avg": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "product": np.multiply,
    "l2": _root_of_squares,
}


class Part(NamedTuple):
    """What the index file of one worker states about its shard: the position as JSON."""

    worker: str
    index_key: str
    position: str


@dataclass(frozen=True)
class Shard:
    """The position of one worker's shard in the whole tensor.

    Attributes:
        box: start and end (exclusive) in each dimension of ``shape``. For a flat range of elements in C order,
            ``shape`` is the number of elements.
        local_shape: shape of the shard as saved.
        replica: 0 for the first copy.
        partial: operation, number of this part and number of parts, if the parts have to be combined.
        covers: number of elements that a part was computed from, and of all parts; None if every part covers all
            elements.
    """

    global_shape: tuple[int, ...]
    shape: tuple[int, ...]
    box: _Box
    replica: int = 0
    partial: tuple[str, int, int] | None = None
    covers: tuple[int, int] | None = None

    @property
    def local_shape(self) -> tuple[int, ...]:
        """Shape of the shard as saved."""
        return tuple(end - start for start, end in self.box)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.local_shape)

    @property
    def part(self) -> int:
        """Number of the part that the shard belongs to; 0 if there is one part."""
        return 0 if self.partial is None else self.partial[1]

    def __str__(self) -> str:
        return _range_text(self.box)


def _range_text(box: _Box) -> str:
    return f"[{', '.join(f'{start}:{end}' for start, end in box)}]"


@functools.lru_cache(maxsize=1 << 14)
def parse(position: str) -> Shard:
    """Parse and check a position.

    Raises ValueError with the reason.
    """
    try:
        record = json.loads(position)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(record, dict):
        raise ValueError("must be a JSON object")
    global_shape = _numbers(record, "global_shape")
    total = math.prod(global_shape)
    if total > _LARGEST:
        raise ValueError(f"global_shape {_short(global_shape)} has too many elements")
    if record.get("flat") is not None:
        flat = _numbers(record, "flat")
        if len(flat) != 2 or not flat[0] <= flat[1] <= total:
            raise ValueError(f"flat range {_short(flat)} is outside of {total} elements")
        shape: tuple[int, ...] = (total,)
        box: _Box = ((flat[0], flat[1]),)
    else:
        offsets, sizes = _numbers(record, "offsets"), _numbers(record, "sizes")
        if not len(offsets) == len(sizes) == len(global_shape):
            raise ValueError("offsets, sizes and global_shape differ in length")
        shape = global_shape
        box = tuple((start, start + size) for start, size in zip(offsets, sizes, strict=True))
        if any(end > length for (_, end), length in zip(box, shape, strict=True)):
            raise ValueError(f"range {_short(_range_text(box))} is outside of global_shape {_short(global_shape)}")
    replica = _number(record.get("replica", 0), "replica")
    return Shard(global_shape, shape, box, replica, _partial(record), _covers(record))


def _partial(record: dict[str, Any]) -> tuple[str, int, int] | None:
    partial = record.get("partial")
    if partial is None:
        return None
    if not isinstance(partial, dict) or not isinstance(partial.get("op"), str):
        raise ValueError("partial must be an object with op, part and parts")
    part, parts = _number(partial.get("part"), "part"), _number(partial.get("parts"), "parts")
    if part >= parts:
        raise ValueError(f"part {part} of {parts} parts")
    return partial["op"], part, parts


def _covers(record: dict[str, Any]) -> tuple[int, int] | None:
    """Return how many elements a part of a norm covers, and all parts."""
    partial = record.get("partial")
    if partial is None or "elements" not in partial:
        return None
    elements, of = _number(partial["elements"], "elements"), _number(partial.get("of"), "of")
    if elements > of:
        raise ValueError(f"a part of {elements} of {of} elements")
    return elements, of


def _number(value: object, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _LARGEST:
        raise ValueError(f"{what} must be an integer from 0 to 2^62, got {_short(value)}")
    return value


def _numbers(record: dict[str, Any], key: str) -> tuple[int, ...]:
    given = record.get(key)
    if not isinstance(given, list) or len(given) > _MOST_DIMENSIONS:
        raise ValueError(f"{key} must be a list of at most {_MOST_DIMENSIONS} integers, got {_short(given)}")
    return tuple(_number(value, key) for value in given)


def _short(value: object) -> str:
    return shown(value, 100) if isinstance(value, str) else str(value)[:100]


def _parts_of(shard: Shard) -> tuple[object, ...]:
    """Return what the positions of all parts of a tensor have in common."""
    return (*(shard.partial or ())[::2], None if shard.covers is None else shard.covers[1])


class Sharded:
    """A sharded tensor at one step.

    Args:
        name: name of the tensor.
        step: global step.
        parts: what the index files of the workers state.
        workers: all workers of the run, to name those that have no shard.

    Raises:
        CorruptDataError: a position is invalid, or positions contradict each other.
    """

    def __init__(self, name: str, step: int, parts: Iterable[Part], workers: Iterable[str] = ()) -> None:
        self.name = name
        self.step = step
        self._parts = list(parts)
        self._workers = list(workers)
        #: The position of each worker's shard.
        self.shards: dict[str, Shard] = {}
        for part in self._parts:
            try:
                self.shards[part.worker] = parse(part.position)
            except ValueError as error:
                raise self._corrupt(part.worker, str(error)) from None
        first, *others = self.shards.items()
        for worker, shard in others:
            if (shard.global_shape, shard.shape) != (first[1].global_shape, first[1].shape):
                raise self._corrupt(
                    worker,
                    f"the whole tensor has shape {first[1].global_shape} at {first[0]}, here {shard.global_shape}",
                )
            if _parts_of(shard) != _parts_of(first[1]):
                raise self._corrupt(worker, f"the parts of {first[0]} are others")
        #: Shape of the whole tensor.
        self.shape = first[1].global_shape
        self._shape = first[1].shape
        self._partial = first[1].partial
        self._count = 1 if self._partial is None else self._partial[2]
        #: Number of elements that all parts of a norm were computed from; None for everything else.
        self._covers = None if first[1].covers is None else first[1].covers[1]

    def _corrupt(self, worker: str, why: str) -> CorruptDataError:
        file = next((part.index_key for part in self._parts if part.worker == worker), worker)
        return CorruptDataError(f"{file}: invalid position of the shard of tensor {shown(self.name)}: {why}")

    # ---------------------------------------------------------------------------------------------------- selection

    def select(self, has: Callable[[str], bool]) -> dict[str, Shard]:
        """Return the shards that cover the tensor exactly once for each part, by worker.

        Of replicas, the first one that has data is used. Shards without elements are not included.

        Args:
            has: whether a worker has data for its shard.

        Raises:
            IncompleteShardsError: shards are missing.
            CorruptDataError: shards overlap.
        """
        chosen = self._available(has)
        if self._covers is not None:
            if self.coverage(has) < 1:
                raise self._incomplete(None, has)
        elif self._count > len(self.shards):
            raise self._incomplete([], has)
        else:
            total = math.prod(self._shape)
            for part in range(self._count):
                group = chosen.get(part, {}).values()
                if sum(shard.size for shard in group) < total:
                    raise self._incomplete([shard.box for shard in group], has)
        return {worker: shard for group in chosen.values() for worker, shard in group.items()}

    def _available(self, has: Callable[[str], bool]) -> dict[int, dict[str, Shard]]:
        """Return the distinct shards that have data, by part and worker."""
        first: dict[tuple[int, _Box], tuple[str, Shard]] = {}
        for worker, shard in self.shards.items():
            if shard.size and has(worker):
                key = (shard.part, shard.box)
                if key not in first or shard.replica < first[key][1].replica:
                    first[key] = (worker, shard)
        chosen: dict[int, dict[str, Shard]] = {}
        for worker, shard in first.values():
            chosen.setdefault(shard.part, {})[worker] = shard
        for group in chosen.values():
            self._check_disjoint(list(group.items()))
        return chosen

    def coverage(self, has: Callable[[str], bool]) -> float:
        """Return the share of the tensor's elements that were saved, from 0 to 1.

        That of a norm is the share of the elements from which it was computed.

        Args:
            has: whether a worker has data for its shard.
        """
        shards = [shard for group in self._available(has).values() for shard in group.values()]
        if self._covers is not None:
            saved, of = sum(shard.covers[0] for shard in shards if shard.covers is not None), self._covers
        else:
            saved, of = sum(shard.size for shard in shards), math.prod(self._shape) * self._count
        return min(1.0, saved / of) if of else 1.0

    def _check_disjoint(self, group: Sequence[tuple[str, Shard]]) -> None:
        if len(group) < 2 or not self._shape:
            return
        ordered = sorted(group, key=lambda one: one[1].box)
        starts = np.array([[start for start, _ in shard.box] for _, shard in ordered])
        ends = np.array([[end for _, end in shard.box] for _, shard in ordered])
        for at in range(len(ordered) - 1):
            # Sorted by start, so only shards that start before this one ends in the first dimension can overlap it.
            until = int(np.searchsorted(starts[:, 0], ends[at, 0]))
            rest = slice(at + 1, max(at + 1, until))
            overlap = ((starts[rest] < ends[at]) & (starts[at] < ends[rest])).all(axis=1)
            if overlap.any():
                (one, first), (other, second) = ordered[at], ordered[at + 1 + int(overlap.argmax())]
                raise self._corrupt(other, f"range {second} overlaps {first} of {one}")

    def _incomplete(self, boxes: Sequence[_Box] | None, has: Callable[[str], bool]) -> IncompleteShardsError:
        missing = []
        if boxes is not None and len(boxes) <= _MOST_SUBTRACTED:
            missing = [_range_text(box) for box in _without(tuple((0, length) for length in self._shape), boxes)]
        empty = [worker for worker, shard in self.shards.items() if shard.size and not has(worker)]
        absent = [worker for worker in self._workers if worker not in self.shards]
        return IncompleteShardsError(self.name, self.step, [*absent, *empty], missing, self.coverage(has))

    def replicas(self) -> Iterator[tuple[str, str]]:
        """Yield pairs of workers that hold copies of the same shard.

        The first of each pair holds the first copy.
        """
        first: dict[tuple[int, _Box], str] = {}
        for worker, shard in sorted(self.shards.items(), key=lambda one: one[1].replica):
            if shard.size:
                original = first.setdefault((shard.part, shard.box), worker)
                if original != worker:
                    yield original, worker

    # ----------------------------------------------------------------------------------------------------- assembly

    def assemble(
        self, read: Callable[[str], NDArray[Any]], has: Callable[[str], bool] = lambda worker: True
    ) -> NDArray[Any]:
        """Return the whole tensor.

        Args:
            read: returns the value of a worker's shard.
            has: whether a worker has a value.
        """
        chosen = self.select(has)
        # The values are read before the whole tensor is allocated, which proves its size.
        values = self._values(chosen, read)
        if not values:  # a tensor without elements: every shard is empty
            return np.empty(
                self.shape, next((read(worker).dtype for worker in self.shards if has(worker)), np.dtype("f4"))
            )
        whole = [
            self._fill({worker: values[worker] for worker, shard in chosen.items() if shard.part == part})
            for part in sorted({shard.part for shard in chosen.values()})
        ]
        return self._combine(whole).reshape(self.shape)

    def elements(
        self, read: Callable[[str], NDArray[Any]], has: Callable[[str], bool] = lambda worker: True
    ) -> NDArray[Any]:
        """Return the elements that were saved, in one dimension.

        A norm is that of these elements. Parts of other kinds have no result without the missing ones.

        Raises:
            IncompleteShardsError: nothing was saved, or parts other than those of a norm are missing.
        """
        chosen = self._available(has)
        if not chosen or (self._partial is not None and self._partial[0] != "l2"):
            self.select(has)  # raises
        values = self._values({worker: shard for group in chosen.values() for worker, shard in group.items()}, read)
        flat = [value.reshape(-1) for value in values.values()]
        return np.concatenate(flat) if self._partial is None else self._combine(flat)

    def _values(self, chosen: Mapping[str, Shard], read: Callable[[str], NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Read the values of shards, and check their shapes and dtypes."""
        values = {worker: read(worker) for worker in chosen}
        for worker, shard in chosen.items():
            if values[worker].shape != shard.local_shape:
                raise self._corrupt(worker, f"range {shard}, but the saved shard has shape {values[worker].shape}")
        dtypes = {value.dtype for value in values.values()}
        if len(dtypes) > 1:
            raise self._corrupt(next(iter(chosen)), f"shards have dtypes {', '.join(sorted(map(str, dtypes)))}")
        return values

    def _fill(self, values: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
        if len(values) == 1 and next(iter(values.values())).shape == self._shape:
            return next(iter(values.values()))
        whole = np.empty(self._shape, next(iter(values.values())).dtype)
        for worker, value in values.items():
            whole[tuple(slice(start, end) for start, end in self.shards[worker].box)] = value
        return whole

    def _combine(self, parts: list[NDArray[Any]]) -> NDArray[Any]:
        if self._partial is None:
            return parts[0]
        op, _, count = self._partial
        if op not in _COMBINE:
            raise UnsupportedDataError(
                f"tensor {shown(self.name)} at step {self.step} consists of {count} parts with the unknown operation "
                f"{shown(op)}; pass worker= to read one of them"
            )
        if op == "l2":
            wide = (part.astype("f8", copy=False) for part in parts)
            return np.asarray(functools.reduce(_COMBINE[op], wide), dtype=parts[0].dtype)
        whole = functools.reduce(_COMBINE[op], parts)
        return np.divide(whole, count, dtype=whole.dtype) if op == "avg" else whole

    # --------------------------------------------------------------------------------------------------- reductions

    def reduce(
        self, stored: Mapping[str, Mapping[tuple[str, bool], Any]], op: str, absolute: bool, incomplete: bool = False
    ) -> Any:
        """Combine the saved reductions of all shards; None if they cannot be combined.

        Args:
            stored: saved reductions by worker, each by name and whether it is of absolute values.
            op: name of the reduction.
            absolute: whether it is of absolute values.
            incomplete: whether to combine those that were saved if some are missing.
        """
        if self._partial is not None:
            return None
        for needed in _NEEDED[op]:
            have = {worker: of for worker, of in stored.items() if all((one, absolute) in of for one in needed)}
            if incomplete:
                chosen = self._available(have.__contains__).get(0, {})
            else:
                try:
                    chosen = self.select(have.__contains__)
                except IncompleteShardsError:
                    continue
            if chosen:
                shards = [
                    (shard.size, {one: have[worker][one, absolute] for one in needed})
                    for worker, shard in chosen.items()
                ]
                return combined(op, shards)
        return None


#: For each reduction, alternatives of what has to be known of each shard.
_NEEDED: Mapping[str, tuple[tuple[str, ...], ...]] = {
    **{op: ((op,),) for op in ("min", "max", "mean", "prod", "sum", "l1", "l2")},
    "std": (("std", "mean"), ("variance", "mean")),
    "variance": (("variance", "mean"), ("std", "mean")),
}


def combined(op: str, shards: Sequence[tuple[int, Mapping[str, Any]]]) -> Any:
    """Combine a reduction of distinct shards.

    The minimum and the maximum are exact; other results have the rounding errors of the shards' numbers and of one sum.

    Args:
        op: name of the reduction.
        shards: number of elements, and the reductions of each shard: ``op``; for std and variance also ``mean``.

    >>> combined("mean", [(3, {"mean": np.float32(1)}), (1, {"mean": np.float32(5)})])
    np.float32(2.0)
    """
    sizes = [size for size, _ in shards]
    first = np.asarray(next(iter(shards[0][1].values())))
    if op in ("min", "max"):
        return (np.minimum if op == "min" else np.maximum).reduce([np.asarray(of[op]).reshape(()) for _, of in shards])[
            ()
        ]
    numbers = {name: [_wide(of[name]) for _, of in shards] for name in shards[0][1]}
    with np.errstate(all="ignore"):
        result: Any
        if op in ("sum", "l1"):
            result = _sum(numbers[op])
        elif op == "prod":
            result = functools.reduce(lambda a, b: a * b, numbers[op])
        elif op == "l2":
            largest = max(abs(number) for number in numbers[op])
            if any(math.isnan(abs(number)) for number in numbers[op]):
                result = math.nan
            elif largest in (0, math.inf):
                result = largest
            else:
                result = largest * math.sqrt(math.fsum((abs(number) / largest) ** 2 for number in numbers[op]))
        else:
            mean = _sum([size * number for size, number in zip(sizes, numbers["mean"], strict=True)]) / sum(sizes)
            result = mean if op == "mean" else _variance(op, sizes, numbers, mean)
        return first.dtype.type(result) if first.dtype.kind in "fciu" else first.dtype.type(float(result))


def _variance(op: str, sizes: Sequence[int], numbers: Mapping[str, Sequence[Any]], mean: Any) -> Any:
    within = numbers["variance"] if "variance" in numbers else [number**2 for number in numbers["std"]]
    squares = [
        size * (inside + abs(of - mean) ** 2) for size, inside, of in zip(sizes, within, numbers["mean"], strict=True)
    ]
    variance = _sum(squares) / sum(sizes)
    return math.sqrt(variance) if op == "std" else variance


def _wide(number: Any) -> Any:
    """Return a Python number: exact for integers, double precision for the others."""
    value = np.asarray(number).reshape(())
    return value.item() if value.dtype.kind in "iufcb" else float(value)


def _sum(numbers: Sequence[Any]) -> Any:
    if all(isinstance(number, int) for number in numbers):
        return sum(numbers)
    if any(isinstance(number, complex) for number in numbers):
        return sum(numbers)
    finite = all(math.isfinite(number) for number in numbers)
    return math.fsum(numbers) if finite else float(np.sum(np.array(numbers, dtype="f8")))


def _without(box: _Box, others: Iterable[_Box]) -> list[_Box]:
    """Return the parts of ``box`` that no other box covers, at most a few."""
    left = [box]
    for other in others:
        left = [piece for one in left for piece in _minus(one, other)]
    return sorted(left)[:_SHOWN_RANGES]


def _minus(box: _Box, other: _Box) -> list[_Box]:
    """Return ``box`` without ``other``, as boxes."""
    if any(start >= its_end or its_start >= end for (start, end), (its_start, its_end) in zip(box, other, strict=True)):
        return [box]
    pieces: list[_Box] = []
    rest = list(box)
    for axis, (its_start, its_end) in enumerate(other):
        start, end = rest[axis]
        if start < its_start:
            pieces.append((*rest[:axis], (start, its_start), *rest[axis + 1 :]))
        if its_end < end:
            pieces.append((*rest[:axis], (its_end, end), *rest[axis + 1 :]))
        rest[axis] = (max(start, its_start), min(end, its_end))
    return pieces
