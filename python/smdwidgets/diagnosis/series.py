"""Turn the rows of one scalar into a series, as they arrive."""

from __future__ import annotations

import math

import numpy as np

from smdwidgets.anomalies import NO_RISES, Rises, SpikeScan
from smdwidgets.diagnosis.arrays import Floats, Growing, Steps
from smdwidgets.diagnosis.blocks import Blocks, Parts
from smdwidgets.diagnosis.inputs import Kind, Series
from smdwidgets.diagnosis.trends import Trend
from smdwidgets.naming.scalars import Role

#: Kinds that are judged by their trend, and whether they should rise.
JUDGED = {Kind.LOSS: False, Kind.REWARD: True, Kind.METRIC: True}
#: Fewer points cannot be judged.
LEAST_POINTS = 10


_NO_STEPS, _NO_VALUES = np.empty(0, np.int64), np.empty(0)


class SeriesBuilder:
    """One scalar of one mode and worker, sorted by step.

    Of several values for a step, the one written last counts.
    Values that are not finite are set aside. Appending later steps costs time proportional to their number.
    """

    def __init__(self, superseded: int = 0) -> None:
        self._reset(_NO_STEPS, _NO_VALUES)
        self.superseded = superseded

    def _reset(self, steps: Steps, values: Floats) -> None:
        finite = np.isfinite(values)
        # The usual series needs no copies, and nothing for values that are lost.
        whole = finite.all()
        self._steps = Growing(steps if whole else steps[finite])
        self._values = Growing(values if whole else values[finite])
        self._lost_steps = Growing(_NO_STEPS if whole else steps[~finite])
        self._lost_values = Growing(_NO_VALUES if whole else values[~finite])
        self._last = int(steps[-1]) if len(steps) else None
        #: Of series that are judged by their trend, and of losses. Most series of a large log are neither.
        self._blocks: Blocks | None = None
        self._scan: SpikeScan | None = None
        self._rises = NO_RISES

    @property
    def rows(self) -> int:
        """Number of values, finite or not."""
        return len(self._steps.view) + len(self._lost_steps.view)

    def append(self, steps: Steps, values: Floats) -> None:
        """Add rows in the order in which they were written."""
        if not len(steps):
            return
        if len(steps) == 1 and self._last is not None and steps[0] > self._last and math.isfinite(values[0]):
            # The usual update of a live run, without the checks of arrays.
            self._steps.extend(steps)
            self._values.extend(values)
            self._last = int(steps[0])
            return
        if len(steps) > 1 and not (steps[1:] > steps[:-1]).all():
            steps, values = self._sorted(steps, values)
        if self._last is not None and steps[0] <= self._last:
            known = np.concatenate([self._steps.view, self._lost_steps.view])
            order = np.argsort(known, kind="stable")
            known_values = np.concatenate([self._values.view, self._lost_values.view])
            self._reset(
                *self._sorted(np.concatenate([known[order], steps]), np.concatenate([known_values[order], values]))
            )
            return
        finite = np.isfinite(values)
        if self._last is None:
            self._reset(steps, values)
        elif finite.all():
            self._steps.extend(steps)
            self._values.extend(values)
        else:
            self._steps.extend(steps[finite])
            self._values.extend(values[finite])
            self._lost_steps.extend(steps[~finite])
            self._lost_values.extend(values[~finite])
        self._last = int(steps[-1])

    def _sorted(self, steps: Steps, values: Floats) -> tuple[Steps, Floats]:
        order = np.argsort(steps, kind="stable")
        steps, values = steps[order], values[order]
        last = np.append(steps[1:] != steps[:-1], True)
        self.superseded += int(len(last) - np.count_nonzero(last))
        return steps[last], values[last]

    def series(
        self,
        name: str,
        mode: str,
        worker: str,
        kind: Kind,
        role: Role,
        stem: tuple[str, ...],
        trend: Trend | None = None,
        shares_name: bool = False,
    ) -> Series:
        """Return the series so far."""
        values = self._values.view
        return Series(
            name,
            mode,
            worker,
            kind,
            role,
            stem,
            self._steps.view,
            values,
            self._lost_steps.view,
            self._lost_values.view,
            self.superseded,
            trend,
            self._scanned() if kind is Kind.LOSS else None,
            shares_name,
        )

    def _scanned(self) -> Rises:
        if self._scan is None:
            self._scan = SpikeScan()
        values = self._values.view[self._scan.count :]
        more = self._scan.extend(values)
        if len(more):
            self._rises = Rises.joined([self._rises, more])
        return self._rises

    def parts(self, kind: Kind) -> Parts | None:
        """Return the blocks of the values; None if the series is not judged by its trend."""
        values = self._values.view
        if kind not in JUDGED or len(values) < LEAST_POINTS:
            return None
        if self._blocks is None:
            self._blocks = Blocks()
        return self._blocks.update(values)
