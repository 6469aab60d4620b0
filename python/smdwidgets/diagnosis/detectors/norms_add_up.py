"""Norms of the gradient that grow like those of gradients that are not reset."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from smdwidgets.diagnosis.detectors._show import beside, from_to
from smdwidgets.diagnosis.inputs import Kind, RunData, Series
from smdwidgets.diagnosis.trends import local_noise
from smdwidgets.finding import Finding

__all__ = ["growing_norm", "norms_add_up"]

#: Fewest norms, their growth, the usual change from one to the next relative to it, and the noise of the loss beside
#: them, relative to its level.
LEAST_POINTS, GROWS, HARDLY_CHANGES, VARIES = 30, 10.0, 0.03, 0.05


def norms_add_up(data: RunData) -> Iterator[Finding]:
    """Yield norms that grow to the end and hardly differ between batches."""
    loss, norm = data.longest_loss, growing_norm(data)
    if loss is not None and norm is not None:
        facts = {
            "what": "The norm of the gradient grows, and hardly differs between batches",
            "detail": f"{from_to(norm)}, by {_change(norm):.1%} from one log to the next; {from_to(loss)}",
        }
        yield beside("gradients_add_up", "problem", (norm, loss), facts)


def growing_norm(data: RunData) -> Series | None:
    """Return a norm that grows like that of gradients that add up, or None.

    The gradient of one batch changes a sum of many only a little, while the losses of batches differ.
    """
    loss = data.longest_loss
    if loss is None or len(loss) < LEAST_POINTS or len(data.tensors):
        return None
    if local_noise(loss.values) < VARIES * abs(float(np.median(loss.values))):
        return None
    return next((one for one in data.of(Kind.GRADIENT_NORM) if _grows(one)), None)


def _grows(norm: Series) -> bool:
    values = norm.values
    if len(values) < LEAST_POINTS or values.min() <= 0 or not np.isfinite(values).all():
        return False
    first, last = float(np.median(values[:3])), float(np.median(values[-len(values) // 3 :]))
    return _change(norm) <= HARDLY_CHANGES and last > max(GROWS * first, 0.9 * float(values.max()))


def _change(norm: Series) -> float:
    """Return the usual change from one value to the next, relative to it."""
    return float(np.median(np.abs(np.diff(norm.values)) / norm.values[:-1]))
