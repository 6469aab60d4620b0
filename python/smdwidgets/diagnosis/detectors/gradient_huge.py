"""Norms of the gradient that no sound training has."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from smdwidgets.diagnosis.detectors._show import beside, from_to
from smdwidgets.diagnosis.inputs import Kind, RunData
from smdwidgets.finding import Finding

__all__ = ["gradient_huge"]

#: Fewest norms, the least of them at nearly every step, and the size of the loss beside them.
LEAST_POINTS, HUGE, NEARLY_ALL, USUAL_LOSS = 10, 1e6, 0.9, 100.0


def gradient_huge(data: RunData) -> Iterator[Finding]:
    """Yield norms of the gradient above a million beside a loss of a usual size."""
    loss = data.longest_loss
    if loss is None or len(loss) < LEAST_POINTS or float(np.abs(loss.values).max()) > USUAL_LOSS:
        return
    for norm in data.of(Kind.GRADIENT_NORM):
        if len(norm) >= LEAST_POINTS and (norm.values > HUGE).mean() >= NEARLY_ALL:
            facts = {
                "series": norm.quoted,
                "value": float(np.median(norm.values)),
                "numbers": f"{from_to(norm)}, {from_to(loss)}",
            }
            yield beside("gradient_huge", "problem", (norm, loss), facts)
            return
