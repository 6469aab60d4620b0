"""Find the first difference of two runs, for :meth:`smdwidgets.Trial.bisect`.

Steps are compared in ascending order. In a step, tensors are compared in the order in which a wrong value spreads: the
state that the step uses, inputs and outputs of modules, the loss, gradients from the last layer to the first, and what
the optimizer computes. Values are compared where both runs have them, and statistics elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smdwidgets import _core
from smdwidgets._text import shown
from smdwidgets.exceptions import SMDebugValueError
from smdwidgets.modes import ModeKeys
from smdwidgets.naming.causal_order import Place, causal_places
from smdwidgets.naming.tensors import Kind, Kinds
from smdwidgets.trials.divergence import Divergence, FirstDifference
from smdwidgets.trials.reader import RunReader
from smdwidgets.trials.run import Row
from smdwidgets.trials.widening import widened

__all__ = ["Tolerance", "bisect"]

Tolerance = float | Literal["auto"]
Array = NDArray[Any]

#: Bytes of values that are read at once from each run, and steps whose statistics are.
_BLOCK_BYTES: Final = 32 << 20
_BLOCK_VALUES: Final = 2048
_BLOCK_STEPS: Final = 64
#: Errors of rounding that a sum of n elements in another order has at most, in units of the last place times sqrt(n).
_ULPS: Final = 8.0
#: How much the relative difference may grow from one tensor to a later one, if rounding errors came before. Gradients
#: and losses are small differences of large numbers, which magnifies relative errors.
_GROWTH: Final = 64.0
_MAGNIFIED: Final = 1024.0
_MAGNIFYING: Final = (Kind.GRADIENT, Kind.LOSS, Kind.OPTIMIZER, Kind.SCALAR)
#: Statistics that are compared: counts exactly, numbers within the tolerance.
_COUNTS: Final = ("count", "nan", "neg_inf", "pos_inf")
_NUMBERS: Final = ("min", "max", "mean", "std", "l1", "l2", "abs_max")
#: Flags of rows without statistics of the values: no value, skipped step, failed, reductions without counts.
_NO_STATISTICS: Final = 1 | 2 | 8 | 32
#: Spacing of float32, which recorded single numbers have at best.
_SINGLE: Final = 2.0**-23
#: Elements of an array from which 16-bit precision is recognized.
_ENOUGH: Final = 16


class _Item(NamedTuple):
    """One comparison: a tensor of a worker at a step."""

    step: int
    name: str
    worker: str | None


@dataclass(frozen=True)
class _Found:
    """A difference of one tensor: what differs, and by how much."""

    what: str
    relative: float
    a: Any
    b: Any
    #: Relative difference that rounding explains.
    rounding: float = 0.0
    index: tuple[int, ...] = ()
    changed: int = 0
    count: int = 0


def bisect(
    a: RunReader,
    b: RunReader,
    tolerance: Tolerance = "auto",
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Divergence:
    """Implement :meth:`smdwidgets.Trial.bisect`.

    Args:
        a: one run.
        b: the other one.
        tolerance: see there.
        progress: called with the number of steps that were compared, and that of all; may raise to end the comparison.
    """
    if tolerance != "auto" and not (isinstance(tolerance, int | float) and 0 <= tolerance < math.inf):
        raise SMDebugValueError(f'invalid tolerance {shown(tolerance)}; expected "auto" or a number of at least 0')
    for reader in (a, b):
        reader.maybe_refresh()
        reader.load()
    return _Bisection(_Side(a), _Side(b), tolerance, progress).result()


class _Side:
    """One of the two runs."""

    def __init__(self, reader: RunReader) -> None:
        self.reader = reader
        self.file = reader.statistics_file()
        self.in_file = {} if self.file is None else {name: place for place, name in enumerate(self.file.names())}
        members = {name: frozenset(one.tensor_names) for name, one in reader.collection_manager.collections.items()}
        self.kinds = Kinds(lambda collection, name: name in members.get(collection, ()))
        self.buffers = members.get("buffers", frozenset())
        self.workers = reader.workers()
        self.workers_of_files = {_core.worker_file_name(worker): worker for worker in self.workers}

    def steps(self) -> set[int]:
        """Return the complete steps with values, and those with statistics."""
        deviation = set(self.reader.complete_steps())
        if self.file is not None and self.in_file:
            ends = list(self.in_file)
            deviation |= set(self.file.read([ends[0], ends[-1]])["step"].tolist())
        return deviation

    def names(self) -> set[str]:
        return {*self.reader.names(), *self.in_file}

    def statistics(self, steps: Sequence[int]) -> dict[_Item, dict[str, float]]:
        """Return the statistics that the training wrote at these steps."""
        if self.file is None or not self.in_file:
            return {}
        table = self.file.read(None, list(steps))
        usable = np.flatnonzero((table["flags"] & _NO_STATISTICS) == 0).tolist()
        columns = {name: table[name] for name in (*_COUNTS, *_NUMBERS)}
        return {
            _Item(int(table["step"][row]), str(table["name"][row]), self._worker(str(table["worker"][row]))): {
                name: column[row].item() for name, column in columns.items()
            }
            for row in usable
        }

    def _worker(self, in_file: str) -> str:
        return self.workers_of_files.get(in_file, in_file)

    def ordered(self, step: int, names: Iterable[str]) -> list[tuple[Place, str]]:
        """Return places and names in the order in which a wrong value spreads."""
        index = self.reader.index

        def recorded(name: str) -> tuple[int, int, str]:
            if name in self.in_file:
                return 0, self.in_file[name], name
            place = index.find(name, step)
            return 1, 0 if place is None else place.offset, name

        by_record = sorted(names, key=recorded)
        places = causal_places([self.kinds[name] for name in by_record])
        return sorted(zip(places, by_record, strict=True))


@dataclass
class _Bisection:
    """The comparison of two runs, in blocks that are read at once."""

    a: _Side
    b: _Side
    tolerance: Tolerance
    progress: Callable[[int, int], None]
    level: float = 0.0
    noise: FirstDifference | None = None
    first: FirstDifference | None = None
    #: Steps at which everything was compared by value until now, without a gap.
    all_by_value: bool = True
    equal_until: int | None = None
    unreadable: int = 0
    compared: set[str] = field(default_factory=set)
    steps: int = 0
    #: Whether the gradients of the step before were compared by value and are equal.
    equal_gradients: bool = False

    def result(self) -> Divergence:
        steps_a, steps_b = self.a.steps(), self.b.steps()
        common = sorted(steps_a & steps_b)
        names_a, names_b = self.a.names(), self.b.names()
        if not common:
            raise SMDebugValueError(
                f"cannot compare {shown(self.a.reader.path, 400)} with {shown(self.b.reader.path, 400)}: they have no "
                f"step in common ({_span(steps_a)}, and {_span(steps_b)})"
            )
        if not names_a & names_b:
            raise SMDebugValueError(
                f"cannot compare {shown(self.a.reader.path, 400)} with {shown(self.b.reader.path, 400)}: they have no "
                "tensor in common"
            )
        self._compare(common)
        if not self.compared and self.first is None:
            raise SMDebugValueError(
                f"cannot compare {shown(self.a.reader.path, 400)} with {shown(self.b.reader.path, 400)}: no common step "
                f"has a tensor of which both runs have a readable value or statistics ({self.unreadable:,} unreadable)"
            )
        ends = (max(steps_a), max(steps_b))
        return Divergence(
            self.a.reader.path,
            self.b.reader.path,
            self.tolerance,
            self.first,
            self.noise,
            self.level,
            self.steps,
            len(self.compared),
            tuple(sorted(names_a - names_b)),
            tuple(sorted(names_b - names_a)),
            self.unreadable,
            ends if ends[0] != ends[1] else None,
        )

    def _compare(self, steps: Sequence[int]) -> None:
        previous: int | None = None
        for start in range(0, len(steps), _BLOCK_STEPS):
            block = steps[start : start + _BLOCK_STEPS]
            statistics = self.a.statistics(block), self.b.statistics(block)
            for group in self._groups(block, statistics):
                self.progress(self.steps, len(steps))
                values = self._read(group)
                for step, items in group:
                    self.steps += 1
                    if self._step(step, previous, items, values, statistics):
                        return
                    previous = step

    # ---------------------------------------------------------------------------------------------------- reading

    def _groups(
        self, steps: Sequence[int], statistics: tuple[dict[_Item, Any], dict[_Item, Any]]
    ) -> Iterator[list[tuple[int, list[tuple[Place, _Item]]]]]:
        """Yield steps and their comparisons, in groups whose values are read at once."""
        group: list[tuple[int, list[tuple[Place, _Item]]]] = []
        size = count = 0
        in_statistics: dict[int, set[str]] = {}
        for item in statistics[0].keys() & statistics[1].keys():
            in_statistics.setdefault(item.step, set()).add(item.name)
        for step in steps:
            names = set(self.a.reader.names(step)) & set(self.b.reader.names(step)) | in_statistics.get(step, set())
            items = [
                (place, _Item(step, name, worker))
                for place, name in self.a.ordered(step, names)
                for worker in self._workers(name, step, statistics)
            ]
            size += sum(self._size(item) for _, item in items)
            count += len(items)
            group.append((step, items))
            if size >= _BLOCK_BYTES or count >= _BLOCK_VALUES:
                yield group
                group, size, count = [], 0, 0
        if group:
            yield group

    def _workers(self, name: str, step: int, statistics: tuple[dict[_Item, Any], dict[_Item, Any]]) -> list[str | None]:
        """Return the workers whose values are compared; [None]: the first, or all shards."""
        if self.a.reader.is_sharded(name, step) or self.b.reader.is_sharded(name, step):
            return [None]
        every = [
            {*side.reader.index.workers_of(name, step)}
            | {worker for worker in side.workers if _Item(step, name, worker) in table}
            for side, table in zip((self.a, self.b), statistics, strict=True)
        ]
        return [*sorted(every[0] & every[1])] or [None]

    def _size(self, item: _Item) -> int:
        place = self.a.reader.index.find(item.name, item.step, item.worker)
        return 0 if place is None else int(getattr(place, "length", 0))

    def _read(self, group: Sequence[tuple[int, list[tuple[Place, _Item]]]]) -> dict[_Item, tuple[Array, Array]]:
        """Return the values that both runs have."""
        readable = [
            item
            for _, items in group
            for _, item in items
            if all(side.reader.index.find(item.name, item.step, item.worker) is not None for side in (self.a, self.b))
        ]
        rows: list[Row] = [(item.name, item.step, item.worker) for item in readable]
        columns = []
        failed: set[int] = set()
        for side in (self.a, self.b):
            deviation, errors = side.reader.values(rows)
            failed |= {row for row, _ in errors}
            columns.append(deviation)
        self.unreadable += len(failed)
        return {
            item: (one, other)
            for row, (item, one, other) in enumerate(zip(readable, *columns, strict=True))
            if row not in failed and one is not None and other is not None
        }

    # -------------------------------------------------------------------------------------------------- comparing

    def _step(
        self,
        step: int,
        previous: int | None,
        items: Sequence[tuple[Place, _Item]],
        values: dict[_Item, tuple[Array, Array]],
        statistics: tuple[dict[_Item, dict[str, float]], dict[_Item, dict[str, float]]],
    ) -> bool:
        """Compare a step; return whether it has the first difference."""
        modes = [side.reader.mode_of(step) for side in (self.a, self.b)]
        if modes[0] is not None and modes[1] is not None and modes[0][0] != modes[1][0]:
            one, other = (ModeKeys(mode[0]).name for mode in (modes[0], modes[1]))
            self.first = FirstDifference(step, "", Kind.OTHER, "mode", math.nan, one, other, self.all_by_value)
            return True
        summands = self._summands(values, items)
        by_value = self.all_by_value
        gradients = sum(self.a.kinds[item.name] is Kind.GRADIENT for _, item in items if item in values)
        for place, item in items:
            pair = values.get(item)
            if pair is not None:
                self.compared.add(item.name)
                deviation = _difference(*pair, summands)
            else:
                by_value = False
                named = _Item(item.step, item.name, item.worker or (self.a.workers or [""])[0])
                rows = statistics[0].get(named), statistics[1].get(named)
                if rows[0] is None or rows[1] is None:
                    continue
                self.compared.add(item.name)
                deviation = _statistics_difference(rows[0], rows[1], summands)
            if deviation is None:
                continue
            difference = self._first(item, place, previous, deviation, by_value)
            if not self._is_within(difference.kind, deviation):
                self.first = difference
                return True
            self.noise = self.noise or difference
            self.level = max(self.level, deviation.relative)
        self.all_by_value = by_value
        if by_value and items:
            self.equal_until = step
        self.equal_gradients = by_value and gradients > 0 and self.noise is None
        return False

    def _first(
        self, item: _Item, place: Place, previous: int | None, deviation: _Found, by_value: bool
    ) -> FirstDifference:
        kind = self.a.kinds[item.name]
        is_state = (kind.is_parameter and place[0] == 0) or (item.name in self.a.buffers and kind is not Kind.OUTPUT)
        result = FirstDifference(
            item.step,
            item.name,
            kind,
            deviation.what,
            deviation.relative,
            deviation.a,
            deviation.b,
            by_value,
            deviation.index,
            deviation.changed,
            deviation.count,
            item.worker if len(self.a.workers) > 1 else None,
            equal_until=self.equal_until,
        )
        if is_state and previous is not None:
            result = replace(result, updated_after=previous, gradients_equal=self.equal_gradients and kind.is_parameter)
        return result

    def _is_within(self, kind: Kind, deviation: _Found) -> bool:
        """Whether a difference is within the tolerance."""
        if deviation.what in ("shape", "dtype") or not math.isfinite(deviation.relative):
            return False
        if self.tolerance != "auto":
            return deviation.relative <= float(self.tolerance)
        grown = self.level * (_MAGNIFIED if kind in _MAGNIFYING else _GROWTH)
        return deviation.relative <= max(deviation.rounding, grown)

    @staticmethod
    def _summands(values: dict[_Item, tuple[Array, Array]], items: Sequence[tuple[Place, _Item]]) -> float:
        """Estimate how many numbers are summed into one.

        These are the columns of weights, and the rows of batches.
        """
        most = 1
        for _, item in items:
            pair = values.get(item)
            if pair is not None and pair[0].ndim > 1:
                most = max(most, pair[0].size // max(1, pair[0].shape[0]), pair[0].shape[0])
        return float(most)


def _span(steps: set[int]) -> str:
    return f"steps {min(steps):,} to {max(steps):,}" if steps else "no steps"


def _difference(a: Array, b: Array, summands: float) -> _Found | None:
    """Compare two values; None if they are equal. NaN equals NaN.

    >>> _difference(np.float32([1, 2]), np.float32([1, 2]), 1.0) is None
    True
    >>> deviation = _difference(np.float32([1, 4]), np.float32([1, 2]), 1.0)
    >>> deviation.index, deviation.relative, deviation.changed
    ((1,), 0.5, 1)
    """
    if a.shape != b.shape:
        return _Found("shape", math.inf, tuple(a.shape), tuple(b.shape))
    if a.dtype != b.dtype and not (a.dtype.kind == b.dtype.kind and a.dtype.kind in "US"):
        return _Found("dtype", math.inf, str(a.dtype), str(b.dtype))
    a, b = widened(a), widened(b)
    if a.dtype.kind not in "fiubc":
        unequal = np.asarray(a != b)
        if not unequal.any():
            return None
        at = _position(int(np.argmax(unequal)), a.shape)
        return _Found("value", math.inf, str(a[at]), str(b[at]), 0.0, at, int(unequal.sum()), a.size)
    if np.array_equal(a, b):
        return None
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    with np.errstate(invalid="ignore", over="ignore"):
        one, other = a.astype(wide), b.astype(wide)
        unequal = (one != other) & ~(np.isnan(one) & np.isnan(other))
        if not unequal.any():
            return None
        distance = np.where(unequal, np.abs(one - other), 0.0)
    distance[np.isnan(distance)] = np.inf
    at = _position(int(np.argmax(distance)), a.shape)
    finite = np.isfinite(one) & np.isfinite(other)
    scale = max(float(np.abs(values[finite]).max(initial=0.0)) for values in (one, other))
    largest = float(distance[at])
    relative = largest / scale if scale else math.inf
    rounding = _ULPS * _spacing(a, b) * (math.sqrt(summands) if a.size > 1 else 1.0)
    return _Found("value", relative, a[at].item(), b[at].item(), rounding, at, int(unequal.sum()), a.size)


def _position(flat: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(one) for one in np.unravel_index(flat, shape)) if shape else ()


def _spacing(a: Array, b: Array) -> float:
    """Return the relative spacing of the numbers in two arrays.

    It is that of the precision in which they were computed. Trainers convert numbers of lower precision to float32, and
    single numbers to float64. The unused bits are zero.
    """
    if a.dtype.kind not in "fc":
        return 0.0
    own = float(np.finfo(a.dtype).eps)
    if a.dtype == np.float64:
        return max(own, _SINGLE) if a.size == 1 else own
    if a.dtype != np.float32 or a.size < _ENOUGH:
        return own
    used = np.bitwise_or.reduce(a.view(np.uint32), axis=None) | np.bitwise_or.reduce(b.view(np.uint32), axis=None)
    has_fractions = bool(np.any(a != np.rint(a)))
    for bits, spacing in ((21, 2.0**-2), (20, 2.0**-3), (16, 2.0**-7), (13, 2.0**-10)):
        if has_fractions and not int(used) & ((1 << bits) - 1):
            return spacing
    return own


def _statistics_difference(a: dict[str, float], b: dict[str, float], summands: float) -> _Found | None:
    """Compare the statistics of a tensor; None if they are equal.

    >>> equal = dict.fromkeys((*_COUNTS, *_NUMBERS), 1.0)
    >>> _statistics_difference(equal, equal, 1.0) is None
    True
    >>> _statistics_difference(equal, equal | {"max": 2.0, "abs_max": 2.0}, 1.0).what
    'max'
    """
    for name in _COUNTS:
        if a[name] != b[name]:
            return _Found(name, math.inf, a[name], b[name])
    worst: _Found | None = None
    scale = max(abs(a["abs_max"]), abs(b["abs_max"]))
    for name in _NUMBERS:
        one, other = a[name], b[name]
        if one == other or (math.isnan(one) and math.isnan(other)):
            continue
        largest = max(abs(one), abs(other)) if name in ("l1", "l2") else scale
        relative = abs(one - other) / largest if largest and math.isfinite(largest) else math.inf
        if worst is None or relative > worst.relative:
            worst = _Found(name, relative, one, other, _ULPS * _SINGLE * math.sqrt(summands))
    return worst
