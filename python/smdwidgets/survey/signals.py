"""Give a survey the rows of signals: heads, experts and blocks over steps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from smdwidgets.modes import ModeKeys
from smdwidgets.signals.rows import SignalRow, table_of
from smdwidgets.survey.spans import Span
from smdwidgets.survey.table import SurveyTable
from smdwidgets.trials import Trial

__all__ = ["SignalFeed"]


class SignalFeed:
    """The rows of a trial's signals, each value read once.

    The size of a row is its value without sign. Its growth is relative to the healthy value of its kind, such as an
    equal share of the tokens, or to its first value. Where it exceeds a limit of its kind first, it has a mark.

    Args:
        trial: the run.
    """

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        #: Names that were added, which are no tensors.
        self.names: set[str] = set()
        #: First and last step of what was added, by row and worker.
        self._added: dict[tuple[str, str], int] = {}
        self._portions = 0

    def add_to(self, table: SurveyTable) -> None:
        """Add the values that came since the last call."""
        parts: list[tuple[SignalRow, SignalRow]] = []
        for name, rows in self._trial.reader.signal_rows().items():
            self.names.add(name)
            for row in rows:
                parts += self._new(table, row)
        if not parts:
            return
        columns = table_of(part for part, _ in parts)
        steps = columns["step"]
        modes = {step: self._mode(step) for step in np.unique(steps).tolist()}
        columns["mode"] = np.array([modes[step] for step in steps.tolist()], np.uint8)
        marks = [whole.crossings()[np.searchsorted(whole.steps, part.steps)] for part, whole in parts]
        # Portions need not be joined: no finding compares a value of a signal with those before it.
        span = Span(("signals", self._portions), None, int(steps.max()))
        self._portions += 1
        table.add(columns, span=span, marks=np.concatenate(marks))

    def _new(self, table: SurveyTable, row: SignalRow) -> list[tuple[SignalRow, SignalRow]]:
        """Return the new part of a row, with the whole row."""
        key = row.name, row.worker
        last = self._added.get(key)
        if last is None and row.kind.centre:
            table.put_start(row.name, row.worker, row.kind.centre)
        self._added[key] = int(row.steps[-1])
        if last is None or int(row.steps[-1]) < last:  # new, or recorded again by a training that was resumed
            return [(row, row)]
        at = int(np.searchsorted(row.steps, last, side="right"))
        if at == len(row.steps):
            return []
        return [(replace(row, steps=row.steps[at:], values=row.values[at:]), row)]

    def _mode(self, step: int) -> int:
        mode = self._trial.reader.mode_of(step)
        return ModeKeys.GLOBAL.value if mode is None else mode[0]
