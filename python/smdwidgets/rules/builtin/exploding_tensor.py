"""ExplodingTensor."""

from __future__ import annotations

import numpy as np

from smdwidgets.rules.builtin.base import NothingToJudge, SelectingRule
from smdwidgets.rules.parameters import Flag
from smdwidgets.rules.tables import Need


class ExplodingTensor(SelectingRule):
    """A tensor holds NaN or an infinity.

    Fires when any tensor looked at holds a NaN, or, unless `only_nan`, an infinity. All tensors of the step are looked at, so
    that the message names every one. Without `collection_names` and `tensor_regex` every saved tensor is looked at.

    Where only reductions were saved, NaN and infinities show in `min` and `max`, or else in `mean`, `sum`, `l1` or `l2`
    (which could also have overflowed; so does training, soon after).

    What to do: a smaller learning rate, gradient clipping, an epsilon in divisions and logarithms, a look at the data.
    """

    needs_selector = False

    only_nan = Flag(False, "Look for NaN only, not for infinities.")

    def needs(self) -> list[Need]:
        return [Need(self.selector, ("min", "max", "size"))]

    def judge(self, step: int) -> None:
        table = self.look(self.needs()[0], step)
        low, high = table["min"], table["max"]
        nan = np.isnan(low) | np.isnan(high)
        fault = nan if self.only_nan else nan | np.isinf(low) | np.isinf(high)
        fault &= table["size"] != 0  # of nothing there is no smallest
        unknown = table.unknown("min") | table.unknown("max")
        known = np.flatnonzero(fault & ~unknown)
        judged = len(table)
        found = [(int(at), "NaN" if nan[at] else "an infinity") for at in known]
        for at in np.flatnonzero(unknown).tolist():
            verdict = self._by_other_reductions(table.names[at], step, table.workers[at])
            judged -= verdict is None
            if verdict:
                found.append((int(at), verdict))
        if not judged:
            raise NothingToJudge("none of min, max, mean, sum, l1, l2 was saved of the tensors of this step")
        for at, what in sorted(found):
            message = f"holds {what} (at this step {len(found)} of {len(table)} tensors are not finite)"
            self.blame(table.names[at], step, np.nan if what == "NaN" else np.inf, None, message, table.workers[at])

    def _by_other_reductions(self, name: str, step: int, worker: str | None) -> str | None:
        """Nothing if finite, else what it holds; None if no reduction tells."""
        told = False
        for column in ("min", "max", "mean", "sum", "l1", "l2", "abs_mean", "abs_max"):
            value = self.measurements.reduction(name, step, worker, column)
            if value is None:
                continue
            told = True
            if np.isnan(value):
                return "NaN"
            if np.isinf(value) and not self.only_nan:
                return "an infinity"
        return "" if told else None
