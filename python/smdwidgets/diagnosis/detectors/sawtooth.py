"""A training loss that adds up between two points at which it falls back."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from smdwidgets.diagnosis.detectors._show import evidence
from smdwidgets.diagnosis.inputs import RunData, Series
from smdwidgets.finding import Finding

__all__ = ["sawtooth"]

#: Fewest values between two falls, fewest falls, and the growth between them.
PERIOD, FALLS, GROWTH = 4, 3, 1.5


def sawtooth(data: RunData) -> Iterator[Finding]:
    """Yield losses that rise at every step but at those of a regular period."""
    for series in data.training_losses():
        period = _period(series)
        if period:
            yield _finding(series, period)
            return


def _period(series: Series) -> int:
    """Return the number of values of a tooth; 0 if the loss has no teeth.

    >>> import numpy as np
    >>> from smdwidgets.diagnosis.inputs import Kind
    >>> from smdwidgets.naming.scalars import Role
    >>> teeth = np.tile([1.0, 2.0, 3.0, 4.0], 5)
    >>> _period(Series("loss", "", "", Kind.LOSS, Role.NONE, ("loss",), np.arange(20), teeth))
    4
    """
    values = series.values
    falls = np.flatnonzero(np.diff(values) < 0) + 1
    if len(falls) < FALLS or values.min() <= 0:
        return 0
    lengths = np.diff([0, *falls])
    if lengths.min() < PERIOD or lengths.min() != lengths.max():
        return 0
    teeth = values[: falls[-1]].reshape(len(falls), -1)
    return int(lengths[0]) if (teeth[:, -1] > GROWTH * teeth[:, 0]).all() else 0


def _finding(series: Series, period: int) -> Finding:
    first, last = int(series.steps[0]), int(series.steps[-1])
    facts = {
        "series": series.quoted,
        "period": period,
        "tooth": f"{series.values[0]:.3g} → {series.values[period - 1]:.3g}, then {series.values[period]:.3g}",
    }
    shown = (evidence(series, f"{series.label} falls back after {period} values", first, last),)
    return Finding.of("sum_not_reset", "warning", "medium", first, last, (series.name,), facts, shown)
