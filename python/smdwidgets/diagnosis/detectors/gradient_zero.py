"""Norms of the gradient that are exactly 0."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from smdwidgets.diagnosis.detectors._falls import falls_on
from smdwidgets.diagnosis.detectors._show import beside, from_to
from smdwidgets.diagnosis.detectors.clipping import BEFORE_CLIPPING
from smdwidgets.diagnosis.inputs import Kind, RunData, Series
from smdwidgets.finding import Finding

__all__ = ["gradient_zero"]

#: Fewest norms, and fewest values of a loss that shows whether the model learns.
LEAST_POINTS, LEAST_LOSSES = 10, 6
#: The same where the loss is 0, too.
LEAST_ZEROS = 4
#: Change of a loss of evaluations, relative to its first value, that weights which stay do not make.
UNMOVED = 1e-3
#: Words of the norm of one part, which may not be trained.
_WHOLE = frozenset({"grad", "grads", "gradient", "gradients", "norm", "total", "l2"})


def gradient_zero(data: RunData) -> Iterator[Finding]:
    """Yield norms of the gradient that are 0 at every step, and nothing learned.

    Some trainers log a norm of 0 that they have not computed, and the loss falls.
    """
    if data.tensors or data.checked:
        return  # gradients themselves tell
    losses = [one for one in data.training_losses() if len(one) >= (LEAST_LOSSES if one.values.any() else LEAST_ZEROS)]
    if not losses or any(map(falls_on, losses)) or any(map(_moves, data.held_out(Kind.LOSS))):
        return
    rates = [one for one in data.of(Kind.LEARNING_RATE) if len(one)]
    if rates and not any(one.values.any() for one in rates):
        return  # another finding says so
    least = LEAST_ZEROS if not any(one.values.any() for one in losses) else LEAST_POINTS
    for norm in data.of(Kind.GRADIENT_NORM):
        is_whole = _WHOLE.issuperset(norm.stem) and not norm.name.endswith(BEFORE_CLIPPING)
        if is_whole and len(norm) >= least and not norm.values.any():
            facts = {"series": norm.quoted, "count": len(norm), "loss": from_to(losses[0])}
            yield beside("gradient_zero", "problem", (norm, losses[0]), facts)
            return


def _moves(loss: Series) -> bool:
    return len(loss) > 1 and float(np.ptp(loss.values)) > UNMOVED * abs(float(loss.values[0]))
