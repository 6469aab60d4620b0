"""Curves and steps of series, as evidence."""

from __future__ import annotations

import numpy as np

from smdwidgets.diagnosis.blocks import block_length
from smdwidgets.diagnosis.findings import Curve, Evidence
from smdwidgets.diagnosis.inputs import Series

#: Points of a small plot.
_POINTS = 96


def step_of_block(series: Series, block: int) -> int:
    """Return the first step of a block of the series' trend."""
    length = series.trend.length if series.trend is not None else block_length(len(series))
    return int(series.steps[min(block * length, len(series) - 1)])


def evidence(series: Series, text: str, begin: int | None = None, end: int | None = None) -> Evidence:
    """Return a fact about a series with its curve, thinned to some dozens of points.

    Extremes are kept: each stretch contributes its smallest and largest value.
    """
    count = len(series)
    at = np.arange(count)
    if count > _POINTS:
        edges = np.linspace(0, count, _POINTS // 2 + 1).astype(np.intp)
        pairs = (
            sorted((first + int(part.argmin()), first + int(part.argmax())))
            for first, last in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)
            if len(part := series.values[first:last])
        )
        at = np.unique([point for pair in pairs for point in pair])
    curve = Curve(series.name, tuple(series.steps[at].tolist()), tuple(series.values[at].tolist()), begin, end)
    return Evidence(text, series.name, curve)
