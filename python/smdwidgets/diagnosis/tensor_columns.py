"""Read the statistics of a run's tensors.

They are those of `Trial.statistics`: written by the training at every step, or computed from saved values. What
statistics cannot tell is computed from values in `tensor_values`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from smdwidgets.diagnosis import step_sample
from smdwidgets.diagnosis.arrays import Floats, Steps
from smdwidgets.diagnosis.inputs import TensorColumn, TensorColumns
from smdwidgets.diagnosis.step_sample import StepSample
from smdwidgets.diagnosis.tensor_roles import TensorRole, tensor_roles
from smdwidgets.diagnosis.tensor_table import TensorTable
from smdwidgets.diagnosis.tensor_values import Key, ValueReader
from smdwidgets.trials import Trial
from smdwidgets.trials.columns import Columns
from smdwidgets.trials.run import Progress
from smdwidgets.trials.sources.trial import SourceTrial
from smdwidgets.trials.tensorboard.trial import TensorBoardTrial

__all__ = ["TensorReader", "read_tensors", "tensor_reader"]

_COUNTS = ("count", "nan", "neg_inf", "pos_inf")
_NUMBERS = ("l2", "mean", "std", "min", "max", "update")
#: Numbers that detectors read of the roles that most tensors of a large run have; they may read all of the others.
_READ = {"weight": ("l2", "std", "update"), "gradient": ("l2", "update")}
#: Counts that only types of 8 and 4 bits have, and their names here, where values have other saturated units.
_OF_SMALL_TYPES = {"saturated": "at_limit", "subnormal": "subnormal"}
#: Flags of rows without numbers: no value, a skipped step, a failure.
_WITHOUT_NUMBERS = 1 | 2 | 8
#: Rows that are read at once.
BLOCK_ROWS = 250_000
#: Tensors of each role whose steps tell when values were saved.
_ASKED = 100


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


class TensorReader:
    """Reads the statistics of new steps, and keeps those of earlier steps.

    It reads a part of the tensors at a time. If a run has more than `step_sample.WHOLE_ROWS` rows, it reads a sample of
    the steps, the same of all tensors, so that memory is bounded.

    Args:
        trial: the run.
        until: last step to read; None: all.

    Attributes:
        missing: what could not be read, by tensor.
    """

    def __init__(self, trial: Trial, until: int | None = None) -> None:
        self._trial = trial
        self._until = until
        self._roles: dict[str, TensorRole] = {}
        self._start()

    def _start(self) -> None:
        self._tables: dict[Key, TensorTable] = {}
        self._values = ValueReader()
        self._paths = _Paths()
        self._last = -1
        self._sample: StepSample | None = None
        #: All steps and those that were read, if they are a sample, and the number of those with values.
        self._every, self._chosen, self._valued = np.empty(0, np.int64), np.empty(0, np.int64), 0
        self.missing: dict[str, str] = {}

    @property
    def sampled(self) -> tuple[int, int] | None:
        """The number of steps that were read, and of all, if they are a sample; else None."""
        return None if self._sample is None else (len(self._chosen), len(self._every))

    def update(self, progress: Progress | None = None) -> TensorColumns:
        """Read the steps that were saved since the last call.

        Return the statistics of all steps.

        ``progress`` is called with the work that is done and its total, first for the choice of steps of a very large
        run, then for statistics, then for values.
        """
        steps = [step for step in self._trial.steps() if self._until is None or step <= self._until]
        if steps and steps[-1] > self._last:
            self._roles = tensor_roles(self._trial)
            if self._roles:
                rows = self._rows(len(steps))
                has_all = self._sample is None and rows <= step_sample.WHOLE_ROWS
                if not has_all and (self._sample is None or rows > 2 * self._sample.rows):
                    self._start()
                new = [step for step in steps if step > self._last]
                chosen = None if has_all else self._sampled(new, rows, progress)
                share = len(new) / len(steps) if chosen is None else len(chosen) / len(self._every)
                self._read(new, chosen, int(rows * share), progress)
            self._last = steps[-1]
        return self._columns()

    def _rows(self, steps: int) -> int:
        """Return about how many rows the first steps of the run have, of all workers."""
        reader = self._trial.reader
        file, index, every = reader.run.statistics_file(), reader.index, max(1, len(self._trial.steps()))
        stored = set() if file is None else set(file.names())
        others, workers = [name for name in self._roles if name not in stored], max(1, len(index.workers()))
        rows = len(others) * every * workers
        if rows > step_sample.WHOLE_ROWS:  # if all were saved at all steps
            rows = sum(len(index.steps_of(name)) for name in others) * workers
        return (rows + (0 if file is None else file.size()[1])) * steps // every

    def _sampled(self, new: list[int], rows: int, progress: Progress | None) -> list[int]:
        """Return the new steps to read of a run with so many rows."""
        file = self._trial.reader.run.statistics_file()
        scanned, broken = (
            (np.array(new), np.empty(0, np.int64))
            if file is None
            else file.scan(self._last, progress or (lambda done, total: None))
        )
        steps = np.union1d(new, scanned[scanned <= new[-1]])
        broken = broken[broken <= new[-1]]
        valued = self._steps_with_values(new)
        if self._sample is None:
            self._sample = step_sample.planned(rows, len(steps), len(valued), step_sample.MOST_ROWS)
        chosen = self._sample.of(steps.tolist(), valued, broken.tolist(), (len(self._every), self._valued))
        self._every, self._chosen = np.append(self._every, steps), np.append(self._chosen, chosen)
        self._valued += len(valued)
        return chosen

    def _steps_with_values(self, new: list[int]) -> set[int]:
        """Return the new steps at which values of tensors were saved.

        Some tensors of each role tell.
        """
        by_role: defaultdict[str, list[str]] = defaultdict(list)
        for name, role in self._roles.items():
            by_role[role.role].append(name)
        index = self._trial.reader.index
        some = [name for names in by_role.values() for name in names[:: max(1, len(names) // _ASKED)]]
        return {step for name in some for step in index.steps_of(name)}.intersection(new)

    def _read(self, new: list[int], chosen: list[int] | None, rows: int, progress: Progress | None) -> None:
        """Read about so many rows of new steps, or of those that were chosen."""
        is_first = self._last < 0
        # Statistics may have steps at which nothing was saved. The cache is for whole runs, not for each update.
        steps = chosen if chosen is not None else None if is_first else range(self._last + 1, new[-1] + 1)
        names = list(self._roles)
        parts = max(1, min(len(names), -(-rows // BLOCK_ROWS)))
        added: dict[Key, int] = {}
        for number, part in enumerate(np.array_split(np.array(names, object), parts)):
            self._read_part(part.tolist(), steps, new[-1], is_first, added, progress if parts == 1 else None)
            if progress is not None and parts > 1:
                progress(number + 1, parts)
        at_step = {key: self._tables[key].steps[-count:] for key, count in added.items()}
        statistics = {key: self._tables[key].columns(count) for key, count in added.items()}
        read = new if chosen is None else [step for step in chosen if step <= new[-1]]
        computed = self._values.update(self._trial, self._roles, read, at_step, statistics, progress)
        for key, count in added.items():
            if np.isnan(statistics[key]["count"]).all():
                self.missing[key[0]] = "only reductions were saved"
            if columns := computed.get(key):
                self._tables[key].put({name: _aligned(at_step[key], *one) for name, one in columns.items()}, count)

    def _read_part(
        self,
        names: list[str],
        steps: Sequence[int] | None,
        last: int,
        is_first: bool,
        added: dict[Key, int],
        progress: Progress | None,
    ) -> None:
        """Read the statistics of some tensors, and note how many rows each has."""
        columns = (*_COUNTS, *_NUMBERS, *_OF_SMALL_TYPES, "flags")
        found = self._trial.statistics(names, steps, columns, worker="*", cache=is_first, progress=progress)
        for failure in found.errors:
            self.missing[failure.name] = f"unreadable at step {failure.step}: {failure.error}"
        kept = (found["step"] <= last) & (found["flags"] & _WITHOUT_NUMBERS == 0)
        numbers = _numbers(found)
        rows = {key: some for key, every in _groups(found) if len(some := every[kept[every]])}
        statistics = {
            key: {name: numbers[name][some] for name in (*_COUNTS, *_READ.get(self._roles[key[0]].role, _NUMBERS))}
            for key, some in rows.items()
        }
        has_small = np.any([found[name] > 0 for name in _OF_SMALL_TYPES], axis=0)
        for key, some in rows.items():
            if has_small[some].any() or (key in self._tables and "at_limit" in self._tables[key].columns(0)):
                statistics[key] |= {name: numbers[name][some] for name in ("min", "max")}
                statistics[key] |= {to: found[name][some].astype(float) for name, to in _OF_SMALL_TYPES.items()}
        at_step = {key: found["step"][some].astype(np.int64) for key, some in rows.items()}
        if self._sample is not None:
            for key, one in statistics.items():
                self._mark_gaps(key, at_step[key], one)
        weights = [key for key in rows if self._roles[key[0]].role in ("weight", "bias")]
        self._paths.join({key: (at_step[key], statistics[key]) for key in weights})
        shared: dict[bytes, NDArray[np.int64]] = {}
        for key, some in rows.items():
            keys = np.stack([at_step[key], found["mode_step"][some].astype(np.int64)])
            keys = shared.setdefault(keys.tobytes(), keys)
            self._tables.setdefault(key, TensorTable()).append(keys, statistics[key])
            added[key] = len(some)

    def _mark_gaps(self, key: Key, steps: Steps, columns: dict[str, Floats]) -> None:
        """Remove changes since a step that was not read.

        A tensor that is the same as at the last step that was read has not changed.
        """
        update, table = columns["update"][1:], self._tables.get(key)
        others = [column for name, column in columns.items() if name != "update"]
        if table is not None:
            last, update = table.columns(1), columns["update"]
            steps = np.append(table.steps[-1], steps)
            others = [np.append(last[name], one) for name, one in columns.items() if name != "update" and name in last]
        follows = np.diff(np.searchsorted(self._every, steps)) == np.diff(np.searchsorted(self._chosen, steps))
        same = np.all([column[1:] == column[:-1] for column in others], axis=0)
        update[~follows] = np.where(same[~follows], 0.0, np.nan)

    def _columns(self) -> TensorColumns:
        found = [self._column(key, table) for key, table in self._tables.items()]
        return TensorColumns([one for one in found if one.role or np.nanmax(one["count"], initial=0) > 1])

    def _column(self, key: Key, table: TensorTable) -> TensorColumn:
        """Return the statistics of a tensor.

        They are without ``update`` if only reductions were saved.
        """
        columns = table.columns()
        if np.isnan(columns["count"]).all():
            columns = {name: column for name, column in columns.items() if name != "update"}
        name, mode, worker = key
        role = self._roles[name]
        about = (name, role.role, role.layer, role.module, role.order, mode, worker)
        return TensorColumn(*about, table.steps, table.mode_steps, columns)


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
