"""The tensors of a run as a table for queries."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from smdwidgets._text import natural
from smdwidgets.exceptions import InvalidWorker
from smdwidgets.modes import ModeKeys
from smdwidgets.naming.tensors import model_order
from smdwidgets.pictures.overview import collection_members
from smdwidgets.queries.grammar import Query
from smdwidgets.queries.table import TensorTable
from smdwidgets.signals.rows import SignalRow, table_of
from smdwidgets.survey.measures import measures, powers
from smdwidgets.survey.table import SurveyTable
from smdwidgets.trials import Trial
from smdwidgets.trials.bulk import EVERY_WORKER
from smdwidgets.trials.columns import Columns, Failure
from smdwidgets.trials.run import Progress

_COLUMNS: Final = (
    *("count", "nan", "neg_inf", "pos_inf", "zeros", "min", "max", "mean", "std", "l2", "update", "flags"),
)

Floats = NDArray[np.float64]


def tensors_of(
    trial: Trial,
    mode: ModeKeys = ModeKeys.GLOBAL,
    worker: str | None = None,
    progress: Progress | None = None,
) -> tuple[TensorTable, RunStatistics]:
    """Return the tensors of a run in model order, and their statistics."""
    check_worker(trial, worker)
    known = trial.tensor_names(mode=mode)
    file = trial.reader.statistics_file()
    recorded = [] if file is None or mode != ModeKeys.GLOBAL else file.names()
    signals = trial.reader.signal_rows() if mode == ModeKeys.GLOBAL else {}
    names = sorted({*known, *recorded, *signals}, key=natural)
    order, collections = in_model_order(names, collection_members(trial, names))
    ordered = [names[index] for index in order]
    statistics = RunStatistics(trial, ordered, mode, worker, progress)
    return TensorTable(ordered, statistics, collections), statistics


def check_worker(trial: Trial, worker: str | None) -> None:
    """Raise InvalidWorker for an unknown worker; None and ``"*"`` are all of them."""
    if worker not in (None, EVERY_WORKER) and worker not in trial.workers():
        raise InvalidWorker(str(worker), trial.workers())


def in_model_order(
    names: Sequence[str], members: Mapping[str, Collection[int]]
) -> tuple[list[int], dict[str, set[int]]]:
    """Return the indices of the names in model order, and the collections.

    Their members are places in this order.
    """
    order = model_order(names, members)
    place = {index: row for row, index in enumerate(order)}
    return order, {name: {place[index] for index in indices} for name, indices in members.items()}


class RunStatistics:
    """Statistics of a run, read for the rows that a query asks for."""

    def __init__(
        self, trial: Trial, names: Sequence[str], mode: ModeKeys, worker: str | None, progress: Progress | None
    ) -> None:
        self._trial, self._names = trial, names
        self._mode, self._worker, self._progress = mode, worker, progress
        #: Part and places of rows, by whether all steps were read and not only those of the query.
        self._known: dict[bool, dict[int, tuple[_Part, NDArray[np.int64]]]] = {True: {}, False: {}}
        self._errors: dict[tuple[str, int, str | None], Failure] = {}

    @property
    def errors(self) -> list[Failure]:
        """Records that could not be read."""
        return list(self._errors.values())

    def values(self, statistic: str, rows: Sequence[int], query: Query) -> list[list[float]]:
        """Return the values of tensors at the saved steps of the query's range."""
        low, high = query.steps or (0, None)
        # The surprise at a step, and the growth, depend on the steps before the range.
        whole = query.steps is None or statistic in ("surprise", "growth") or self._mode != ModeKeys.GLOBAL
        known = self._known[whole]
        if missing := [row for row in rows if row not in known]:
            steps = None
            if not whole:
                steps = [step for step in self._trial.steps() if low <= step and (high is None or step <= high)]
            known |= self._read(missing, steps)
        found = []
        for row in rows:
            part, places = known[row]
            at = part.column("step")[places]
            inside = (at >= low) & (at <= (np.inf if high is None else high))
            found.append(part.column(statistic)[places[inside]].tolist())
        return found

    def _read(self, rows: Sequence[int], steps: list[int] | None) -> dict[int, tuple[_Part, NDArray[np.int64]]]:
        names = {row: self._names[row] for row in rows}
        signals = self._trial.reader.signal_rows()
        read: dict[int, tuple[_Part, NDArray[np.int64]]] = {}
        for is_signal in (False, True):
            chosen = [name for name in names.values() if (name in signals) == is_signal]
            if not chosen:
                continue
            table = self._of_signals(chosen) if is_signal else self._of_tensors(chosen, steps)
            starts = {name: signals[name][0].kind.centre for name in chosen} if is_signal else {}
            part = _Part(table, self._worker == EVERY_WORKER, {name: one for name, one in starts.items() if one})
            places: dict[str, list[int]] = {name: [] for name in chosen}
            for at, name in enumerate(table["name"].tolist()):
                places[name].append(at)
            read |= {row: (part, np.array(places[name], np.int64)) for row, name in names.items() if name in places}
        return read

    def _of_tensors(self, names: list[str], steps: list[int] | None) -> Columns:
        table = self._trial.statistics(names, steps, _COLUMNS, self._mode, self._worker, progress=self._progress)
        self._errors |= {(error.name, error.step, error.worker): error for error in table.errors}
        return table

    def _of_signals(self, names: list[str]) -> Columns:
        signals = self._trial.reader.signal_rows()
        return Columns(table_of(one for name in names for one in self._recorded_by(signals[name])))

    def _recorded_by(self, rows: Sequence[SignalRow]) -> Sequence[SignalRow]:
        """Return the rows of a signal of the chosen worker, of the first one, or of all."""
        if self._worker is None:
            return rows[:1]
        return rows if self._worker == EVERY_WORKER else [row for row in rows if row.worker == self._worker]


class _Part:
    """Statistics of some tensors that were read at once."""

    def __init__(self, table: Columns, several: bool, starts: Mapping[str, float]) -> None:
        self._table, self._several, self._starts = table, several, starts
        self._columns = measures(table)
        self._columns["nonfinite"] = self._columns.pop("not_finite")
        for name in ("step", "mean", "std", "min", "max"):
            self._columns[name] = np.asarray(table[name], np.float64)

    def column(self, statistic: str) -> Floats:
        """Return the values of a statistic."""
        if statistic not in self._columns:  # takes as long as all others
            self._columns |= _compared(self._table, self._several, self._starts)
        return self._columns[statistic]


def _compared(table: Columns, several: bool, starts: Mapping[str, float]) -> dict[str, Floats]:
    """Return surprise and growth of each row of a table.

    It is sorted by name and step.

    Args:
        table: statistics.
        several: whether they are those of several workers.
        starts: sizes that growth is relative to, of the tensors whose first size does not count.
    """
    workers = table["worker"].tolist() if several else [""] * table.num_rows
    series: dict[tuple[str, str], int] = {}
    of_row = [series.setdefault(pair, len(series)) for pair in zip(table["name"].tolist(), workers, strict=True)]
    # The survey numbers series in the order in which they occur, and sorts by number and step.
    order = np.lexsort((table["step"], np.array(of_row, np.int64)))
    columns = {name: column[order] for name, column in table.items()}
    columns["mode"] = np.array([ModeKeys[mode].value for mode in columns["mode"].tolist()], np.uint8)
    survey = SurveyTable()
    survey.add(columns, assembled=not several)
    for name, worker in series:
        if name in starts:
            survey.put_start(name, worker, starts[name])
    compared = {name: np.empty(table.num_rows) for name in ("surprise", "growth")}
    compared["surprise"][order] = survey.records()["surprise"]
    compared["growth"][order] = powers(survey.growths().astype(np.float64))
    return compared
