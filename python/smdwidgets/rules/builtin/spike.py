"""Base class of rules on sudden rises."""

from __future__ import annotations

from collections import defaultdict
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from smdwidgets.anomalies import Anomaly, SpikeScan
from smdwidgets.anomalies.defaults import SPIKE_FIRST, SPIKE_WINDOW
from smdwidgets.modes import ModeKeys
from smdwidgets.rules.builtin.base import SelectingRule
from smdwidgets.rules.builtin.sequence import Rows, SequenceRule
from smdwidgets.rules.findings import number
from smdwidgets.rules.parameters import Real
from smdwidgets.rules.scalar_columns import ScalarColumns
from smdwidgets.rules.verdicts import Verdicts

__all__ = ["SpikeRule"]


class SpikeRule(SelectingRule, SequenceRule):
    """A rule on series that rise suddenly or are not finite."""

    sagemaker = False
    needs_selector = False
    #: What a series has, in messages.
    quantity: ClassVar[str]

    sensitivity = Real(
        1.0, "2 halves the height from which on a rise is a spike, 0.5 doubles it.", minimum=0.01, maximum=100.0
    )

    def compared(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return values of a series, NaN for those that are left out."""
        return values

    def subject(self, series: str, step: int) -> tuple[str, str | None, str]:
        """Return tensor and worker of a finding, and what is added to its message."""
        return series, None, ""

    def begin(self) -> None:
        self._scans: defaultdict[tuple[str, ModeKeys], SpikeScan] = defaultdict(lambda: SpikeScan(self.sensitivity))

    def judge_columns(self, columns: ScalarColumns, judged: Rows) -> Verdicts:
        bad = columns.saved & ~np.isfinite(columns.values)
        enough = np.zeros(len(columns), np.bool_)
        spikes: dict[int, list[tuple[int, Anomaly]]] = defaultdict(list)
        for name, mode, rows in columns.by_mode():
            scan = self._scans[columns.names[name], mode]
            values = self.compared(columns.values[name, rows])
            finite = np.isfinite(values)
            enough[rows[scan.finite + np.cumsum(finite) - finite >= SPIKE_FIRST]] = True
            begin = scan.count
            for spike in scan.extend(values).anomalies():
                spikes[int(rows[spike.index - begin])].append((name, spike))
        counts = bad.sum(axis=0)
        for row, some in spikes.items():
            counts[row] += len(some)

        def blame(row: int) -> None:
            step = int(columns.steps[row])
            spike_of = dict(spikes.get(row, ()))
            for name in sorted({*spike_of, *np.flatnonzero(bad[:, row]).tolist()}):
                value, spike = float(columns.values[name, row]), spike_of.get(name)
                tensor, worker, more = self.subject(columns.names[name], step)
                message = f"the {self.quantity} is {number(value)}"
                if spike is not None:
                    message = (
                        f"the {self.quantity} {number(value)} is above {number(spike.limit)}; the median of its last "
                        f"{SPIKE_WINDOW} values is {number(spike.usual)}{more}"
                    )
                self.blame(tensor, step, value, None if spike is None else spike.limit, message, worker)

        return self.verdicts(
            columns,
            counts,
            enough | bad.any(axis=0),
            blame,
            lambda row: f"fewer than {SPIKE_FIRST} previous values of the {self.quantity} are available",
        )
