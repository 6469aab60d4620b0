"""Logged norms of the gradients of parts, of which one vanishes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from smdwidgets.diagnosis.detectors._falls import ends
from smdwidgets.diagnosis.detectors._show import course
from smdwidgets.diagnosis.inputs import Kind, RunData
from smdwidgets.finding import Finding

__all__ = ["norms_of_parts"]

#: Fewest norms, a norm by that of another part that no scale of the weights explains, and the share of its first values
#: to which a loss has fallen that is learned nevertheless.
LEAST_POINTS, VANISHING, LEARNED = 10, 1e-6, 0.9


def norms_of_parts(data: RunData) -> Iterator[Finding]:
    """Yield a part whose gradient is nothing beside that of another one.

    A part that is not trained has a norm of exactly 0.
    """
    if data.tensors or data.of(Kind.REWARD):
        return  # gradients themselves tell
    losses = [one for one in data.training_losses() if len(one) >= LEAST_POINTS]
    levels = [ends(one.values) for one in losses]
    if not losses or any(last < LEARNED * first for first, last in levels):
        return
    norms = [one for one in data.of(Kind.GRADIENT_NORM) if len(one) >= LEAST_POINTS and one.values.min() > 0]
    for low in norms:
        for high in norms:
            if not np.array_equal(low.steps, high.steps) or (low.values > VANISHING * high.values).any():
                continue
            first, last = int(low.steps[0]), int(low.steps[-1])
            ratio = float(np.median(low.values / high.values))
            facts = {"tensor": low.label, "other": high.label, "ratio": ratio, "measure": "The norm"}
            shown = tuple(course(one, first, last) for one in (low, high, losses[0]))
            names = (low.name, high.name, losses[0].name)
            yield Finding.of("vanishing", "problem", "medium", first, last, names, facts, shown)
            return
