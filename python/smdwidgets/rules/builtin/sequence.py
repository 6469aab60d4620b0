"""Base class of rules on the course of scalars."""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from smdwidgets.finding import Evidence
from smdwidgets.rules.builtin.base import BuiltinRule, no_tensor_message
from smdwidgets.rules.losses import loss_need
from smdwidgets.rules.scalar_columns import ScalarColumns
from smdwidgets.rules.selector import Selector
from smdwidgets.rules.tables import Need
from smdwidgets.rules.verdicts import Outcome, Verdicts

if TYPE_CHECKING:
    from smdwidgets.rules.measurements import Measurements
    from smdwidgets.trials import Trial

__all__ = ["SequenceRule"]

Rows = NDArray[np.bool_]


class SequenceRule(BuiltinRule):
    """A rule on the course of scalars.

    It is a predicate over the columns of consecutive steps, with a state between them. A single step is a column of one
    row. Steps are read in order, from the first one of the run; those before a step that were not judged are its
    history. Judging an earlier step begins again.
    """

    #: Why a step with selected tensors, but without scalars of the rule, is skipped.
    nothing_usable: ClassVar[str] = "no tensor at this step is a scalar"

    def __init__(self, base_trial: Trial, *args: object, **given: Any) -> None:
        super().__init__(base_trial, *args, **given)
        self._source: Measurements | None = None
        #: The last step that the state has seen.
        self._last: int | None = None

    @property
    @abstractmethod
    def selector(self) -> Selector:
        """The scalars that are judged."""

    @abstractmethod
    def begin(self) -> None:
        """Forget all steps."""

    @abstractmethod
    def judge_columns(self, columns: ScalarColumns, judged: Rows) -> Verdicts:
        """Return the results at all rows; those that are not to be judged are history."""

    def needs(self) -> list[Need]:
        return [loss_need(self.selector)]

    def columns(self, steps: Sequence[int]) -> ScalarColumns:
        """Return the scalars at consecutive saved steps."""
        return self.measurements.scalars(self.selector, steps)

    def judge(self, step: int) -> None:
        verdicts = self.judge_steps([step])
        self.findings = verdicts.findings(0)
        self.skipped = verdicts.reason(0) if verdicts.outcomes[0] == Outcome.SKIPPED else None

    def _reason_at(self, step: int) -> str:
        return no_tensor_message(self.selector)

    def judge_steps(self, steps: Sequence[int]) -> Verdicts:
        measurements = self.measurements
        if self._last is None or steps[0] <= self._last or self._source is not measurements:
            self._source, self._last = measurements, None
            self.begin()
        last, self._last = self._last, None  # after an exception, the state is not known
        rows = measurements.steps_between(last, steps[-1])
        columns = self.columns(rows)
        judged = np.zeros(len(rows), np.bool_)
        first = bisect_left(rows, steps[0])
        if len(rows) - first == len(steps):
            judged[first:] = True
        else:
            judged[np.searchsorted(columns.steps, np.asarray(steps, np.int64))] = True
        verdicts = self.judge_columns(columns, judged)
        self._last = steps[-1]
        return verdicts if judged.all() else verdicts.part(np.flatnonzero(judged))

    def verdicts(
        self,
        columns: ScalarColumns,
        counts: NDArray[np.int64],
        judged: Rows,
        blame: Callable[[int], object],
        reason: Callable[[int], str],
    ) -> Verdicts:
        """Return the results at all rows.

        Args:
            columns: the scalars.
            counts: number of findings.
            judged: whether there was something to judge.
            blame: reports the findings at a row with `blame`.
            reason: why nothing was judged at a row with scalars.
        """
        outcomes = np.where(judged, np.where(counts > 0, Outcome.FIRED, Outcome.PASSED), Outcome.SKIPPED)

        def findings(row: int) -> list[Evidence]:
            self.findings = []
            if counts[row]:
                blame(row)
            return self.findings

        def why(row: int) -> str:
            if columns.saved[:, row].any():
                return reason(row)
            table = self.measurements.table(self.selector, int(columns.steps[row]), self.needs()[0].columns)
            return self.nothing_usable if len(table) else no_tensor_message(self.selector, table)

        return Verdicts(outcomes.astype(np.uint8), counts, why, findings)
