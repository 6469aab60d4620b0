"""Read the statistics of a run's tensors.

They are those of `Trial.statistics`: written by the training at every step, or computed from saved values. What
statistics cannot tell is computed from values in `tensor_values`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from smdwidgets.diagnosis.arrays import Floats, Growing, Steps
from smdwidgets.diagnosis.inputs import TensorColumn, TensorColumns
from smdwidgets.diagnosis.tensor_roles import TensorRole, tensor_roles
from smdwidgets.diagnosis.tensor_values import Key, ValueReader
from smdwidgets.trials import Trial
from smdwidgets.trials.columns import Columns
from smdwidgets.trials.run import Progress
from smdwidgets.trials.sources.trial import SourceTrial
from smdwidgets.trials.tensorboard.trial import TensorBoardTrial

__all__ = ["TensorReader", "read_tensors", "tensor_reader"]

_COUNTS = ("count", "nan", "neg_inf", "pos_inf")
_NUMBERS = ("l2", "mean", "std", "min", "max", "update")
#: Flags of rows without numbers: no value, a skipped step, a failure.
_WITHOUT_NUMBERS = 1 | 2 | 8


def read_tensors(run: object, until: int | None = None) -> TensorColumns:
    """Read the statistics of all tensors of a run."""
    reader = tensor_reader(run, until)
    return TensorColumns() if reader is None else reader.update()


def tensor_reader(run: object, until: int | None = None) -> TensorReader | None:
    """Return a reader of the tensors of a run that a hook wrote, or of checkpoints.

    Return None for logs and series in memory.
    """
    has_tensors = isinstance(run, SourceTrial) or not isinstance(run, TensorBoardTrial)
    return TensorReader(run, until) if isinstance(run, Trial) and has_tensors else None


class _Table:
    """The statistics of one tensor of a mode and worker, which grow with its steps."""

    def __init__(self) -> None:
        self._steps = Growing(np.empty(0, np.int64))
        self._mode_steps = Growing(np.empty(0, np.int64))
        self._columns: dict[str, Growing[np.float64]] = {}

    def append(self, steps: Steps, mode_steps: Steps, columns: Mapping[str, Floats]) -> None:
        """Append rows; what is not given is NaN, also in earlier rows of new columns."""
        known = len(self._steps.view)
        self._steps.extend(steps)
        self._mode_steps.extend(mode_steps)
        for name in columns.keys() - self._columns.keys():
            self._columns[name] = Growing(np.full(known, np.nan))
        for name, column in self._columns.items():
            column.extend(columns[name] if name in columns else np.full(len(steps), np.nan))

    def column(self, key: Key, role: TensorRole) -> TensorColumn:
        """Return the statistics so far; without ``update`` if only reductions were saved."""
        columns = {name: column.view for name, column in self._columns.items()}
        if np.isnan(columns["count"]).all():
            del columns["update"]
        name, mode, worker = key
        about = (name, role.role, role.layer, role.module, role.order, mode, worker)
        return TensorColumn(*about, self._steps.view, self._mode_steps.view, columns)


class TensorReader:
    """Reads the statistics of new steps, and keeps those of earlier steps.

    Args:
        trial: the run.
        until: last step to read; None: all.

    Attributes:
        missing: what could not be read, by tensor.
    """

    def __init__(self, trial: Trial, until: int | None = None) -> None:
        self._trial = trial
        self._until = until
        self._tables: dict[Key, _Table] = {}
        self._roles: dict[str, TensorRole] = {}
        self._values = ValueReader()
        self._paths = _Paths()
        self._last = -1
        self.missing: dict[str, str] = {}

    def update(self, progress: Progress | None = None) -> TensorColumns:
        """Read the steps that were saved since the last call.

        Return the statistics of all steps.

        ``progress`` is called with the work that is done and its total, first for statistics, then for values.
        """
        new = [step for step in self._trial.steps() if step > self._last]
        if self._until is not None:
            new = [step for step in new if step <= self._until]
        if new:
            self._roles = tensor_roles(self._trial)
            if self._roles:
                self._read(new, progress)
            self._last = new[-1]
        return self._columns()

    def _read(self, new: list[int], progress: Progress | None) -> None:
        is_first = self._last < 0
        # Statistics may have steps at which nothing was saved. The cache is for whole runs, not for each update.
        steps = None if is_first else range(self._last + 1, new[-1] + 1)
        names = list(self._roles)
        columns = (*_COUNTS, *_NUMBERS, "flags")
        found = self._trial.statistics(names, steps, columns, worker="*", cache=is_first, progress=progress)
        for failure in found.errors:
            self.missing[failure.name] = f"unreadable at step {failure.step}: {failure.error}"
        kept = (found["step"] <= new[-1]) & (found["flags"] & _WITHOUT_NUMBERS == 0)
        numbers = _numbers(found)
        rows = {key: some for key, every in _groups(found) if len(some := every[kept[every]])}
        statistics = {key: {name: column[some] for name, column in numbers.items()} for key, some in rows.items()}
        at_step = {key: found["step"][some].astype(np.int64) for key, some in rows.items()}
        weights = [key for key in rows if self._roles[key[0]].role in ("weight", "bias")]
        self._paths.join({key: (at_step[key], statistics[key]) for key in weights})
        computed = self._values.update(self._trial, self._roles, new, at_step, statistics, progress)
        for key, some in rows.items():
            if np.isnan(statistics[key]["count"]).all():
                self.missing[key[0]] = "only reductions were saved"
            added = {name: _aligned(at_step[key], *column) for name, column in computed.get(key, {}).items()}
            table = self._tables.setdefault(key, _Table())
            table.append(at_step[key], found["mode_step"][some].astype(np.int64), statistics[key] | added)

    def _columns(self) -> TensorColumns:
        found = [table.column(key, self._roles[key[0]]) for key, table in self._tables.items()]
        return TensorColumns([one for one in found if one.role or np.nanmax(one["count"], initial=0) > 1])


class _Paths:
    """Adds up the changes of parameters over all modes.

    The statistics have the change since the last save of any mode. Where an evaluation follows an update, its save has
    that change, and the next save of the training has none.
    """

    def __init__(self) -> None:
        #: Length of the path of a parameter of a worker so far, and where it was at the last save of each mode.
        self._length: dict[tuple[str, str], float] = {}
        self._at: defaultdict[tuple[str, str], dict[str, float]] = defaultdict(dict)

    def join(self, saves: Mapping[Key, tuple[Steps, dict[str, Floats]]]) -> None:
        """Replace changes by those since the last save of the same mode."""
        modes: dict[tuple[str, str], list[Key]] = {}
        for key in saves:
            modes.setdefault((key[0], key[2]), []).append(key)
        for parameter, keys in modes.items():
            changes = np.concatenate([saves[key][1]["update"] for key in keys])
            order = np.argsort(np.concatenate([saves[key][0] for key in keys]), kind="stable")
            lengths = np.empty(len(order))
            lengths[order] = self._length.get(parameter, 0.0) + np.cumsum(np.nan_to_num(changes[order], posinf=0.0))
            self._length[parameter] = float(lengths.max(initial=0.0))
            begin, at = 0, self._at[parameter]
            several = len({*at, *(mode for _, mode, _ in keys)}) > 1
            for key in keys:
                own = saves[key][1]["update"]
                here = lengths[begin : begin + len(own)]
                begin += len(own)
                before = np.append(at.get(key[1], np.nan), here[:-1])
                at[key[1]] = float(here[-1])
                if several:
                    saves[key][1]["update"] = np.where(np.isfinite(own) & np.isfinite(before), here - before, own)


def _numbers(found: Columns) -> dict[str, Floats]:
    """Return counts and numbers; numbers of tensors that are not all finite are lost.

    Counts are NaN where only reductions were saved.
    """
    counts = {name: np.where(found["count"] >= 0, found[name], np.nan) for name in _COUNTS}
    infinite = counts["neg_inf"] + counts["pos_inf"] > 0
    lost = infinite | (counts["nan"] > 0)
    numbers = {name: np.where(lost, np.nan, found[name]) for name in _NUMBERS}
    numbers["l2"][infinite & ~(counts["nan"] > 0)] = np.inf
    return counts | numbers


def _groups(found: Columns) -> Iterator[tuple[Key, NDArray[np.intp]]]:
    """Yield the rows of each name, mode and worker; they are sorted by name and step."""
    names = found["name"]
    starts = np.flatnonzero(np.append(True, names[1:] != names[:-1])) if len(names) else np.empty(0, np.intp)
    for start, end in zip(starts, np.append(starts[1:], len(names)), strict=False):
        modes, workers = found["mode"][start:end], found["worker"][start:end]
        if (modes == modes[0]).all() and (workers == workers[0]).all():
            yield (str(names[start]), str(modes[0]), str(workers[0])), np.arange(start, end)
            continue
        rows: dict[tuple[str, str], list[int]] = {}
        for row, key in enumerate(zip(modes.tolist(), workers.tolist(), strict=True), int(start)):
            rows.setdefault(key, []).append(row)
        for key, some in rows.items():
            yield (str(names[start]), *key), np.array(some, dtype=np.intp)


def _aligned(steps: Steps, at: Steps, values: Floats) -> Floats:
    """Return values at some steps as a column of all steps; NaN elsewhere.

    >>> _aligned(np.array([0, 5, 10]), np.array([5, 7]), np.array([1.0, 2.0]))
    array([nan,  1., nan])
    """
    column: Floats = np.full(len(steps), np.nan)
    places = np.minimum(np.searchsorted(steps, at), len(steps) - 1)
    there = steps[places] == at
    column[places[there]] = values[there]
    return column
