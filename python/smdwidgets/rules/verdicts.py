"""Results of a rule: at one step, and at many steps at once."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from smdwidgets.finding import Evidence

__all__ = ["Outcome", "Verdicts"]


class Outcome(IntEnum):
    """Result of a rule at one step."""

    PASSED = 1
    FIRED = 2
    SKIPPED = 3
    ERROR = 4


class Verdicts(NamedTuple):
    """Results of a rule at consecutive steps.

    Reasons and findings are made on request, because only the latest are kept.
    """

    #: An `Outcome` for each step.
    outcomes: NDArray[np.uint8]
    #: The number of findings at each step.
    counts: NDArray[np.int64]
    #: Returns why the step at an index was skipped.
    reason: Callable[[int], str]
    #: Returns the findings at the step at an index.
    findings: Callable[[int], list[Evidence]]

    def part(self, rows: NDArray[np.intp]) -> Verdicts:
        """Return the results at some of the steps."""
        reason, findings = self.reason, self.findings
        return Verdicts(
            self.outcomes[rows],
            self.counts[rows],
            lambda row: reason(int(rows[row])),
            lambda row: findings(int(rows[row])),
        )

    def rows(self, outcome: Outcome) -> list[int]:
        """Return the indices of the steps with an outcome."""
        found: list[int] = np.flatnonzero(self.outcomes == outcome).tolist()
        return found
