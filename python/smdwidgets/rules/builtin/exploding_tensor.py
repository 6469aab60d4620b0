"""ExplodingTensor."""

from __future__ import annotations

import numpy as np

from smdwidgets.rules.builtin.base import NothingToJudge, SelectingRule
from smdwidgets.rules.parameters import Flag
from smdwidgets.rules.tables import Need


class ExplodingTensor(SelectingRule):
    """Detect tensors that hold NaN or infinity.

    Fires when any selected tensor holds a NaN, or an infinity unless `only_nan` is True. All tensors of the step are
    checked, so that the findings name every one. Without `collection_names` and `tensor_regex`, all saved tensors are
    selected.

    If only reductions were saved, the rule checks `min` and `max`, or else `mean`, `sum`, `l1` or `l2`. The latter can
    also overflow for large finite values.

    What to do: use a smaller learning rate, gradient clipping, or an epsilon in divisions and logarithms; check the
    data.
    """

    needs_selector = False

    only_nan = Flag(False, "Check for NaN only, not for infinities.")

    def needs(self) -> list[Need]:
        return [Need(self.selector, ("min", "max", "size"))]

    def judge(self, step: int) -> None:
        table = self.required_table(self.needs()[0], step)
        low, high = table["min"], table["max"]
        nan = np.isnan(low) | np.isnan(high)
        fault = nan if self.only_nan else nan | np.isinf(low) | np.isinf(high)
        fault &= table["size"] != 0  # min and max of an empty tensor are NaN
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
            raise NothingToJudge("none of min, max, mean, sum, l1, l2 was saved for the tensors at this step")
        for at, what in sorted(found):
            message = f"holds {what} ({len(found)} of {len(table)} tensors at this step are not finite)"
            self.blame(table.names[at], step, np.nan if what == "NaN" else np.inf, None, message, table.workers[at])

    def _by_other_reductions(self, name: str, step: int, worker: str | None) -> str | None:
        """Return the kind of non-finite value from other reductions.

        Returns an empty string if they are finite, and None if no reduction was saved.
        """
        known = False
        for column in ("min", "max", "mean", "sum", "l1", "l2", "abs_mean", "abs_max"):
            value = self.measurements.reduction(name, step, worker, column)
            if value is None:
                continue
            known = True
            if np.isnan(value):
                return "NaN"
            if np.isinf(value) and not self.only_nan:
                return "an infinity"
        return "" if known else None
