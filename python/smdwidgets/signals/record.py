"""The files of signals in a run: ``signals/<worker>.jsonl``.

They are append-only. A line is a checksum, a space, and a JSON object: the declaration of a signal, the values of
signals at a step, or why a kind was not recorded. A reader keeps its place in each file and reads what was added.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, overload

import numpy as np
from numpy.typing import NDArray

from smdwidgets._text import did_you_mean, shown, visible
from smdwidgets.exceptions import SMDebugValueError
from smdwidgets.signals.kinds import SIGNAL_KINDS

if TYPE_CHECKING:
    import pyarrow
    import xarray

__all__ = ["LARGEST_SIGNALS", "SIGNALS_PREFIX", "Signal", "SignalLog", "Signals", "parsed_line", "written_line"]

SIGNALS_PREFIX: Final = "signals"
"""The folder of the files, in the root of the run."""
LARGEST_SIGNALS: Final = 256 << 20
"""Bytes of a file that are read at most; a writer makes fewer."""

#: Rows of a signal, signals of a worker, values of a worker, problems, and steps at most.
_MOST_ROWS, _MOST_SIGNALS, _MOST_VALUES, _MOST_PROBLEMS, _LARGEST_STEP = 1 << 16, 1 << 14, 1 << 26, 100, 2**62
_DIGITS: Final = 5

Floats = NDArray[np.float32]
Steps = NDArray[np.int64]


def written_line(content: Mapping[str, Any]) -> bytes:
    """Return the line of a JSON object.

    >>> written_line({"kind": "router_load", "off": "no router"})
    b'a13c0cf3 {"kind":"router_load","off":"no router"}\\n'
    """
    text = json.dumps(content, separators=(",", ":"), default=str, allow_nan=False).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def parsed_line(line: bytes) -> dict[str, Any]:
    """Return the JSON object of a line without its end.

    Raises:
        ValueError: the line is damaged.
    """
    stored, _, text = line.partition(b" ")
    if len(stored) != 8 or int(stored, 16) != zlib.crc32(text):
        raise ValueError("checksum mismatch")
    content = json.loads(text)
    if not isinstance(content, dict):
        raise ValueError("not a JSON object")
    return content


def plain_values(values: Iterable[float]) -> list[float | str | None]:
    """Return values as JSON has them, with five digits; NaN is None.

    >>> plain_values([1 / 3, float("inf"), float("nan")])
    [0.33333, 'inf', None]
    """
    return [
        float(f"{one:.{_DIGITS}g}")
        if math.isfinite(one)
        else None
        if math.isnan(one)
        else ("inf" if one > 0 else "-inf")
        for one in values
    ]


@dataclass(frozen=True, eq=False)
class Signal:
    """One signal of a layer, a model or an optimizer over steps.

    Attributes:
        name: kind and layer, such as ``"attention_max/GPT_blocks.0.attention"``.
        kind: identifier of its kind.
        layer: name of the module, or of the optimizer.
        rows: what its rows are, such as ``"head"``.
        names: names of the rows, if they are not numbered.
        order: place in the forward pass.
        worker: worker that recorded it.
        most: largest value that a row can have; None if there is none or it is unknown.
        steps: global steps, ascending.
        values: one row per step, one column per head, expert, block or tensor.
    """

    name: str
    kind: str
    layer: str
    rows: str
    names: tuple[str, ...]
    order: int
    worker: str
    most: float | None
    steps: Steps
    values: Floats

    def __len__(self) -> int:
        return len(self.steps)

    def __repr__(self) -> str:
        rows = f", {self.values.shape[1]} {self.rows}s" if self.rows else ""
        return f"Signal({visible(self.name, 200)!r}: {len(self)} steps{rows})"

    def at(self, step: int) -> Floats:
        """Return the values at a step, or at the last recorded step before it.

        Raises:
            SMDebugValueError: nothing was recorded up to this step.
        """
        index = int(np.searchsorted(self.steps, step, side="right")) - 1
        if index < 0:
            first = f"the first is step {int(self.steps[0])}" if len(self) else "there is no step"
            raise SMDebugValueError(f"signal {shown(self.name)} has no value up to step {step}; {first}")
        values: Floats = self.values[index]
        return values

    def where(self, selected: Sequence[bool] | NDArray[np.bool_]) -> Signal:
        """Return the signal at the selected saves."""
        chosen = np.asarray(selected, bool)
        return _with(self, self.steps[chosen], self.values[chosen])

    def row_name(self, row: int) -> str:
        """Return the name of a row, such as ``"head 3"``."""
        names = self.names or SIGNAL_KINDS[self.kind].names
        return names[row] if row < len(names) else f"{self.rows} {row}"


class Signals(Sequence[Signal]):
    """Signals of a run, in forward order.

    Attributes:
        off: why kinds were not recorded, by identifier.
        problems: unreadable lines, as (file, message).
    """

    def __init__(
        self,
        signals: Iterable[Signal] = (),
        off: Mapping[str, str] | None = None,
        problems: Iterable[tuple[str, str]] = (),
    ) -> None:
        kinds = list(SIGNAL_KINDS)
        self._signals = sorted(signals, key=lambda one: (kinds.index(one.kind), one.order, one.name, one.worker))
        self.off = dict(off or {})
        self.problems = list(problems)

    @overload
    def __getitem__(self, index: int) -> Signal: ...
    @overload
    def __getitem__(self, index: slice) -> list[Signal]: ...
    def __getitem__(self, index: int | slice) -> Signal | list[Signal]:
        return self._signals[index]

    def __len__(self) -> int:
        return len(self._signals)

    def __iter__(self) -> Iterator[Signal]:
        return iter(self._signals)

    def __repr__(self) -> str:
        lines = [repr(one) for one in self._signals[:20]]
        lines += [f"and {len(self) - 20} more"] if len(self) > 20 else []
        lines += [f"{kind} was not recorded: {visible(reason, 200)}" for kind, reason in self.off.items()]
        return "\n".join(lines) or "no signals were recorded"

    @property
    def kinds(self) -> list[str]:
        """Kinds that were recorded."""
        return list(dict.fromkeys(one.kind for one in self._signals))

    def of(self, kind: str, worker: str | None = None) -> Signals:
        """Return the signals of a kind.

        Args:
            kind: identifier of the kind.
            worker: worker that recorded them; default: all.

        Raises:
            SMDebugValueError: there is no such kind.
        """
        if kind not in SIGNAL_KINDS:
            raise SMDebugValueError(f"unknown kind of signal {shown(kind)}.{did_you_mean(str(kind), SIGNAL_KINDS)}")
        of_kind = [one for one in self._signals if one.kind == kind and worker in (None, one.worker)]
        return Signals(of_kind, {kind: self.off[kind]} if kind in self.off else {}, self.problems)

    def until(self, step: int) -> Signals:
        """Return what was recorded up to a step, inclusive."""
        cut = []
        for one in self._signals:
            count = int(np.searchsorted(one.steps, step, side="right"))
            if count:
                cut.append(_with(one, one.steps[:count], one.values[:count]))
        return Signals(cut, self.off, self.problems)

    @property
    def steps(self) -> Steps:
        """Steps at which any of them was recorded, ascending."""
        return (
            np.unique(np.concatenate([one.steps for one in self._signals])) if self._signals else np.empty(0, np.int64)
        )

    @property
    def values(self) -> Floats:
        """An array with the axes layer, row and step; NaN where nothing was recorded."""
        steps = self.steps
        rows = max((one.values.shape[1] for one in self._signals), default=0)
        table = np.full((len(self), rows, len(steps)), np.nan, np.float32)
        for index, one in enumerate(self._signals):
            table[index, : one.values.shape[1], np.searchsorted(steps, one.steps)] = one.values
        return table

    def table(self) -> dict[str, NDArray[Any]]:
        """Return the columns of a table with one value in each line.

        They are ``kind``, ``layer``, ``row``, ``name``, ``worker``, ``step`` and ``value``. ``pandas.DataFrame`` and
        ``polars.DataFrame`` accept them.

        >>> steps, values = np.array([8]), np.ones((1, 1), np.float32)
        >>> signal = Signal("log_z", "log_z", "", "", (), 0, "worker_0", None, steps, values)
        >>> {name: column.tolist() for name, column in Signals([signal]).table().items() if name in ("step", "value")}
        {'step': [8], 'value': [1.0]}
        """
        parts: dict[str, list[NDArray[Any]]] = {}
        for one in self._signals:
            saves, rows = one.values.shape
            names = [one.row_name(row) if one.rows else "" for row in range(rows)]
            columns: dict[str, NDArray[Any]] = {
                "kind": np.full(one.values.size, one.kind, object),
                "layer": np.full(one.values.size, one.layer, object),
                "row": np.tile(np.arange(rows), saves),
                "name": np.tile(np.array(names, object), saves),
                "worker": np.full(one.values.size, one.worker, object),
                "step": np.repeat(one.steps, rows),
                "value": one.values.reshape(-1),
            }
            for name, column in columns.items():
                parts.setdefault(name, []).append(column)
        empty = {"row": np.int64, "step": np.int64, "value": np.float32}
        order = ("kind", "layer", "row", "name", "worker", "step", "value")
        return {name: np.concatenate(parts[name]) if parts else np.empty(0, empty.get(name, object)) for name in order}

    def to_arrow(self) -> pyarrow.Table:
        """Return :meth:`table` as a table of Arrow, for Parquet. It needs pyarrow."""
        import pyarrow as pa

        types = {"row": pa.int64(), "step": pa.int64(), "value": pa.float32()}
        return pa.table({name: pa.array(column, types.get(name, pa.string())) for name, column in self.table().items()})

    def to_xarray(self) -> xarray.DataArray:
        """Return :attr:`values` with its coordinates. It needs xarray."""
        from xarray import DataArray

        values = self.values
        coordinates = {
            "layer": [one.layer for one in self._signals],
            "row": np.arange(values.shape[1]),
            "step": self.steps,
        }
        return DataArray(values, coordinates, ("layer", "row", "step"), self.kinds[0] if len(self.kinds) == 1 else None)


def _with(one: Signal, steps: Steps, values: Floats) -> Signal:
    return Signal(one.name, one.kind, one.layer, one.rows, one.names, one.order, one.worker, one.most, steps, values)


@dataclass(slots=True)
class _Rows:
    """A signal as it is read: its declaration, and values by step."""

    kind: str
    layer: str
    names: tuple[str, ...]
    order: int
    most: float | None
    values: dict[int, Floats] = field(default_factory=dict)
    #: Steps and values that were put into arrays before, the first ones.
    steps: Steps = field(default_factory=lambda: np.empty(0, np.int64))
    table: Floats = field(default_factory=lambda: np.empty((0, 0), np.float32))

    def forget(self, step: int) -> int:
        """Remove the values from a step on; return their number."""
        removed = [self.values.pop(later) for later in [one for one in self.values if one >= step]]
        count = int(np.searchsorted(self.steps, step))
        self.steps, self.table = self.steps[:count], self.table[:count, : self.table.shape[1] if count else 0]
        return sum(map(len, removed))

    def put(self, step: int, values: Floats) -> int:
        """Add the values of the latest step; return by how many their number grows."""
        before = self.values.get(step)
        if before is not None and len(self.steps) == len(self.values):  # once more at this step
            self.steps, self.table = self.steps[:-1], self.table[:-1]
        self.values[step] = values
        return len(values) - (0 if before is None else len(before))

    def arrays(self) -> tuple[Steps, Floats]:
        """Return all steps, which come in ascending order, and the values of each.

        The work follows what was added since the last call, apart from a copy.
        """
        added = list(islice(self.values.items(), len(self.steps), None))
        if added:
            width = max(self.table.shape[1], *(len(values) for _, values in added))
            table = np.full((len(self.values), width), np.nan, np.float32)
            table[: len(self.steps), : self.table.shape[1]] = self.table
            for row, (_, values) in zip(table[len(self.steps) :], added, strict=True):
                row[: len(values)] = values
            self.steps = np.append(self.steps, np.array([step for step, _ in added], np.int64))
            self.table = table
        return self.steps, self.table


class SignalLog:
    """Reads the file of one worker as it grows.

    Args:
        worker: name of the worker.
    """

    def __init__(self, worker: str) -> None:
        self.worker = worker
        self._start()

    def _start(self) -> None:
        #: Bytes of whole lines that were read, and the beginning of the file, which tells whether it was replaced.
        self._offset = 0
        self._head = b""
        self._line = 0
        self._names: dict[int, str] = {}
        self._signals: dict[str, _Rows] = {}
        self._last = -1
        self._count = 0
        self._is_full = False
        self.off: dict[str, str] = {}
        self.problems: list[tuple[str, str]] = []

    def update(self, read: Callable[[int, int], bytes]) -> bool:
        """Read what was added; return whether there was anything.

        An incomplete last line is read later; the training may be writing it.

        Args:
            read: returns up to so many bytes from an offset.
        """
        head = read(0, 64)
        changed = False
        if not head.startswith(self._head[: len(head)]) or len(head) < len(self._head):
            self._start()
            changed = True
        self._head = head
        while True:
            content = read(self._offset, 4 << 20)
            end = content.rfind(b"\n") + 1
            if not end:
                if len(content) >= 4 << 20:  # no line is as long
                    self._problem("a line is longer than 4 MiB")
                    self._offset += len(content)
                    continue
                return changed
            for line in content[:end].split(b"\n")[:-1]:
                self._line += 1
                self._take(line)
            self._offset += end
            changed = True

    def _problem(self, text: str) -> None:
        if len(self.problems) < _MOST_PROBLEMS:
            key = f"{SIGNALS_PREFIX}/{self.worker}.jsonl"
            self.problems.append((key, f"invalid line {self._line}: {visible(text, 200)}"))

    def _take(self, line: bytes) -> None:
        try:
            content = parsed_line(line)
            if "off" in content:
                self.off[_kind(content)] = visible(content["off"], 1000)
            elif "values" in content:
                self._add(content)
            else:
                self._declare(content)
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
            self._problem(str(error) or type(error).__name__)

    def _declare(self, content: Mapping[str, Any]) -> None:
        kind, number = _kind(content), content["id"]
        layer, names = visible(content.get("layer", ""), 1000), content.get("names", [])
        order, most = content.get("order", 0), content.get("most")
        if not isinstance(number, int) or not isinstance(order, int) or not isinstance(names, list):
            raise ValueError("id, order or names has another type")
        name = f"{kind}/{layer}" if layer else kind
        if name not in self._signals and len(self._signals) >= _MOST_SIGNALS:
            raise ValueError(f"more than {_MOST_SIGNALS} signals")
        self._names[number] = name
        texts = tuple(visible(one, 1000) for one in names[:_MOST_ROWS])
        limit = None if most is None else float(most)
        earlier = self._signals.get(name)
        self._signals[name] = (
            _Rows(kind, layer, texts, order, limit)
            if earlier is None
            else replace(earlier, names=texts, order=order, most=limit)
        )
        self.off.pop(kind, None)

    def _add(self, content: Mapping[str, Any]) -> None:
        step = content["step"]
        if not isinstance(step, int) or not 0 <= step < _LARGEST_STEP:
            raise ValueError("step is not a number")
        rows = {self._names[int(key)]: _array(values) for key, values in content["values"].items()}
        if step < self._last:  # a training that was resumed executes these steps again
            self._count -= sum(signal.forget(step) for signal in self._signals.values())
        self._last = step
        if self._count > _MOST_VALUES:
            if not self._is_full:
                self._is_full = True
                raise ValueError(f"more than {_MOST_VALUES:,} values; later ones are not read")
            return
        for name, values in rows.items():
            self._count += self._signals[name].put(step, values)

    def signals(self) -> Iterator[Signal]:
        """Yield the signals that have values."""
        for name, one in self._signals.items():
            if one.values:
                steps, table = one.arrays()
                rows = SIGNAL_KINDS[one.kind].rows
                yield Signal(name, one.kind, one.layer, rows, one.names, one.order, self.worker, one.most, steps, table)


def _kind(content: Mapping[str, Any]) -> str:
    kind = content.get("kind")
    if kind not in SIGNAL_KINDS:
        raise ValueError(f"unknown kind {shown(kind)}")
    return str(kind)


def _array(values: Any) -> Floats:
    if not isinstance(values, list) or len(values) > _MOST_ROWS:
        raise ValueError("values are not a list of numbers")
    with np.errstate(over="ignore"):
        return np.array([np.nan if one is None else float(one) for one in values], np.float32)
