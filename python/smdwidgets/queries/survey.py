"""Queries on the survey of a run, which read no values for most statistics."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from smdwidgets.modes import ModeKeys
from smdwidgets.queries.grammar import Query
from smdwidgets.queries.table import TensorTable, evaluate
from smdwidgets.queries.tensors import RunStatistics, check_worker, in_model_order
from smdwidgets.survey import Survey
from smdwidgets.survey.measures import powers
from smdwidgets.survey.table import WORST
from smdwidgets.trials.run import Progress

#: Columns of a survey by statistic. Sizes are logarithms.
_COLUMNS: Final = {
    **{name: name for name in ("size", "l2", "update", "zeros", "surprise", "growth", "mean")},
    "nonfinite": "not_finite",
}
_LOGARITHMS: Final = frozenset({"size", "l2", "update", "growth"})


def query_survey(
    survey: Survey,
    names: Sequence[str],
    members: Mapping[str, Collection[int]],
    text: str,
    mode: ModeKeys,
    worker: str | None,
    progress: Progress | None = None,
) -> list[int]:
    """Return the indices of the tensors that a query finds. Raises QueryError.

    Args:
        survey: the survey of the run.
        names: names of the tensors.
        members: indices of the tensors of each collection.
        text: the query.
        mode: only steps of this mode.
        worker: name of a worker; None: the first one, ``"*"``: all.
        progress: called while values are read, which the survey does not have.
    """
    check_worker(survey.trial, worker)
    order, collections = in_model_order(names, members)
    ordered = [names[index] for index in order]
    table = TensorTable(ordered, _SurveyStatistics(survey, ordered, mode, worker, progress), collections)
    return [order[row] for row in evaluate(table, text).rows]


class _SurveyStatistics:
    def __init__(
        self, survey: Survey, names: Sequence[str], mode: ModeKeys, worker: str | None, progress: Progress | None
    ) -> None:
        self._survey, self._names, self._mode, self._worker = survey, names, mode, worker
        self._other = RunStatistics(survey.trial, names, mode, worker, progress)

    def values(self, statistic: str, rows: Sequence[int], query: Query) -> list[list[float]]:
        """Return the values of tensors at the steps of the query that were read.

        For a run with too many records to hold, they are the extremes of several steps each.
        """
        # Stored cells do not have the mean of the elements.
        if statistic not in _COLUMNS or (statistic == "mean" and self._survey.table.has_stored):
            return self._other.values(statistic, rows, query)
        return [self._of(self._names[row], statistic, query).tolist() for row in rows]

    def _of(self, name: str, statistic: str, query: Query) -> NDArray[np.float64]:
        table = self._survey.table
        found = [
            table.series(row, _COLUMNS[statistic])
            for row in table.rows_of(name, WORST if self._worker == WORST else self._worker or "")
        ]
        if not found:
            return np.empty(0)
        steps, modes, values = (np.concatenate(parts) for parts in zip(*found, strict=True))
        low, high = query.steps or (0, None)
        inside = (steps >= low) & (steps <= (np.inf if high is None else high))
        if self._mode != ModeKeys.GLOBAL:
            inside &= modes == self._mode.value
        order = np.argsort(steps[inside], kind="stable")
        column: NDArray[np.float64] = values[inside][order].astype(np.float64)
        return powers(column) if statistic in _LOGARITHMS else column
