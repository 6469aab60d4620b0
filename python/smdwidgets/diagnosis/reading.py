"""Read the scalars of a run as series; an update reads what is new."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike

from smdwidgets import _core
from smdwidgets._text import shown
from smdwidgets.diagnosis.arrays import Floats, Steps
from smdwidgets.diagnosis.blocks import completed
from smdwidgets.diagnosis.inputs import Kind, Series
from smdwidgets.diagnosis.kinds import judged_as
from smdwidgets.diagnosis.series import JUDGED, SeriesBuilder
from smdwidgets.diagnosis.trends import trends
from smdwidgets.exceptions import SMDebugTypeError, SMDebugValueError
from smdwidgets.modes import ModeKeys
from smdwidgets.naming import scalars
from smdwidgets.naming.scalars import Role
from smdwidgets.trials import TensorBoardTrial, Trial
from smdwidgets.trials.bulk import has_one_number
from smdwidgets.trials.run import Progress


class Key(NamedTuple):
    """Identity of a series."""

    name: str
    mode: str
    worker: str


class Rows(NamedTuple):
    """New rows of one series, in the order in which they were written.

    ``whole`` means that they replace what was read before; there may be none. ``superseded`` rows were written as well,
    but a restart from an earlier step made them void.
    """

    steps: Steps
    values: Floats
    whole: bool = False
    superseded: int = 0


class Source(Protocol):
    """Where scalars come from."""

    def is_loss(self, name: str) -> bool:
        """Return whether a series is a loss though its name does not tell."""
        ...

    def new_rows(self, progress: Progress | None) -> list[tuple[Key, Rows]]:
        """Return the rows that were added since the last call."""
        ...


#: The data of modes, for names that do not contain it.
_OF_MODE = {"TRAIN": Role.TRAINING, "EVAL": Role.VALIDATION}

#: Series in memory by name: values at the steps 0, 1, 2 and so on, or a pair of steps and values.
Arrays = Mapping[str, ArrayLike | tuple[ArrayLike, ArrayLike]]


def source_of(run: Trial | Arrays) -> Source:
    """Return the source of the scalars of a run."""
    if isinstance(run, TensorBoardTrial):
        return _LogScalars(run)
    return _SavedScalars(run) if isinstance(run, Trial) else _ArrayScalars(run)


@dataclass
class _Read:
    builder: SeriesBuilder
    kind: Kind = Kind.UNKNOWN
    role: Role = Role.NONE
    stem: tuple[str, ...] = ()
    series: Series | None = None


class ScalarReader:
    """Reads scalar series, with their kinds and trends."""

    def __init__(self, source: Source, kinds: Mapping[str, Kind], until: int | None = None) -> None:
        self._source = source
        self._kinds = kinds
        self._until = until
        self._read: dict[Key, _Read] = {}
        self._described: dict[str, scalars.Series] = {}
        self._modes: defaultdict[str, set[str]] = defaultdict(set)

    def update(self, progress: Progress | None = None) -> list[Series]:
        """Read new rows and return all series, in the order in which they first appeared."""
        changed: set[Key] = set()
        replaced = False
        names, appeared = len(self._modes), set[str]()
        for key, rows in self._source.new_rows(progress):
            steps, values = self._cut(rows)
            if rows.whole and not len(rows.steps):
                self._read.pop(key, None)
                replaced = True
                continue
            read = self._read.get(key)
            if read is None:
                self._modes[key.name].add(key.mode)
                appeared.add(key.name)
            if read is None or rows.whole:
                read = self._read[key] = _Read(SeriesBuilder(rows.superseded))
                replaced = True
            read.builder.append(steps, values)
            changed.add(key)
        # A new mode of a name changes how the series of its other modes are shown.
        changed |= {key for key in self._read if key.name in appeared}
        if len(self._modes) > names:
            # A new name may change what the others mean, such as losses of a run with rewards.
            self._described = scalars.describe_all(self._modes)
            changed = set(self._read)
        if replaced:
            for key, read in self._read.items():
                described = self._described[key.name]
                read.kind, read.stem = self._kind(key.name), described.stem
                read.role = _OF_MODE.get(key.mode, Role.NONE) if described.role is Role.NONE else described.role
        self._renew(changed)
        return [read.series for read in self._read.values() if read.series is not None]

    def _cut(self, rows: Rows) -> tuple[Steps, Floats]:
        if self._until is None:
            return rows.steps, rows.values
        kept = rows.steps <= self._until
        return rows.steps[kept], rows.values[kept]

    def _renew(self, changed: set[Key]) -> None:
        """Rebuild the series that changed, and the trends of those judged by their trend."""
        parts = {}
        for key in changed:
            read = self._read[key]
            if (found := read.builder.parts(read.kind)) is not None:
                parts[key] = found
        blocks = completed(list(parts.values()))
        oriented = [
            (one.length, -medians if JUDGED[self._read[key].kind] else medians)
            for (key, one), medians in zip(parts.items(), blocks, strict=True)
        ]
        of_key = dict(zip(parts, trends(oriented), strict=True))
        for key in changed:
            read = self._read[key]
            read.series = read.builder.series(
                *key, read.kind, read.role, read.stem, of_key.get(key), len(self._modes[key.name]) > 1
            )

    def _kind(self, name: str) -> Kind:
        given = self._kinds.get(name)
        if given is not None:
            return given
        kind = judged_as(self._described[name])
        if kind is Kind.UNKNOWN and self._source.is_loss(name):
            return Kind.LOSS
        return kind


class _LogScalars:
    """Scalars of a TensorBoard log. Steps are those of the log."""

    def __init__(self, trial: TensorBoardTrial) -> None:
        self._trial = trial
        self._log = trial.reader.log
        self._cursor = _core.ScalarCursor()

    def is_loss(self, name: str) -> bool:
        """Return False: the kind of a tag follows from its words only."""
        return False

    def new_rows(self, progress: Progress | None) -> list[tuple[Key, Rows]]:
        """Return new rows of each series of the log."""
        self._trial.maybe_refresh()
        added = self._cursor.advance(self._log)
        directories = [(ModeKeys(mode).name, worker) for worker, mode in self._log.directories()] if added else []
        found = []
        for at, (name, directory, steps, values, whole, superseded) in enumerate(added, 1):
            if progress is not None:
                progress(at, len(added))
            found.append((Key(name, *directories[directory]), Rows(steps, values, whole, superseded)))
        return found


class _ArrayScalars:
    """Series in memory, to which rows may be appended."""

    def __init__(self, arrays: Arrays) -> None:
        self._arrays = arrays
        #: Number of rows that were read of each series, and the last one.
        self._read: dict[str, tuple[int, int, float]] = {}

    def is_loss(self, name: str) -> bool:
        """Return False: the kind of a series follows from its words only."""
        return False

    def new_rows(self, progress: Progress | None) -> list[tuple[Key, Rows]]:
        """Return new rows of each series.

        A series that is shorter than before, or whose last row has changed, is read again.
        """
        found = []
        for name, given in self._arrays.items():
            steps, values = _steps_and_values(name, given)
            count, step, value = self._read.get(name, (0, 0, 0.0))
            whole = count > len(steps) or (
                count > 0 and (steps[count - 1] != step or not _same(float(values[count - 1]), value))
            )
            begin = 0 if whole else count
            if begin < len(steps):
                self._read[name] = len(steps), int(steps[-1]), float(values[-1])
                found.append((Key(name, "GLOBAL", ""), Rows(steps[begin:], values[begin:], whole)))
        return found


def _steps_and_values(name: str, given: Any) -> tuple[Steps, Floats]:
    """Return the steps and values of a series in memory.

    >>> _steps_and_values("loss", [2.0, 1.5])
    (array([0, 1]), array([2. , 1.5]))
    """
    # Only a tuple of two sequences is a pair of steps and values: two numbers are two values.
    pair = isinstance(given, tuple) and len(given) == 2 and all(np.ndim(one) for one in given)
    try:
        values = np.ascontiguousarray(given[1] if pair else given, dtype=np.float64)
        steps = np.ascontiguousarray(given[0], dtype=np.int64) if pair else np.arange(values.size)
    except (TypeError, ValueError) as error:
        raise SMDebugTypeError(
            f"series {shown(name)} must be a sequence of numbers, or a tuple (steps, values), got {shown(given)}"
        ) from error
    if steps.shape != values.shape or values.ndim != 1:
        raise SMDebugValueError(
            f"series {shown(name)} must have equally many steps and values, got shapes {steps.shape} and {values.shape}"
        )
    return steps, values


def _same(one: float, other: float) -> bool:
    """Whether two values are equal, or both NaN."""
    return one == other or (one != one and other != other)


class _SavedScalars:
    """Scalar tensors of a run that a hook wrote. Steps are global steps."""

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self._last = -1
        self._scalar: dict[str, bool] = {}
        self._losses: frozenset[str] = frozenset()

    def is_loss(self, name: str) -> bool:
        """Return whether the hook put a tensor into the collection of losses."""
        return name in self._losses

    def new_rows(self, progress: Progress | None) -> list[tuple[Key, Rows]]:
        """Return the scalars of steps that were completed since the last call."""
        new = [step for step in self._trial.steps() if step > self._last]
        if not new:
            return []
        self._last = new[-1]
        names = [name for name in self._trial.tensor_names() if self._is_scalar(name)]
        if not names:
            return []
        self._losses = frozenset(self._trial.tensor_names(collection="losses"))
        table = self._trial.reductions(names, new, worker="*", reductions=["mean"], counts=True, progress=progress)
        values = np.real(table["mean"]).astype(np.float64)
        # A size of -1 means that the value was not saved; its mean may have been.
        there = ((table["size"] >= 0) | np.isfinite(values)).tolist()
        rows: dict[Key, list[int]] = {}
        keys = zip(*(table[column].tolist() for column in ("name", "mode", "worker")), strict=True)
        for row, key in enumerate(keys):
            if there[row]:
                rows.setdefault(Key(*key), []).append(row)
        return [(key, Rows(table["step"][mine].astype(np.int64), values[mine])) for key, mine in rows.items()]

    def _is_scalar(self, name: str) -> bool:
        known = self._scalar.get(name)
        if known is None:
            known = self._scalar[name] = has_one_number(self._trial.reader, name)
        return known
