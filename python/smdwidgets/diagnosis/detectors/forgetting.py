"""Evaluations of earlier data that get worse while those of other data improve."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from smdwidgets.diagnosis.detectors._show import beside, from_to
from smdwidgets.diagnosis.inputs import Kind, RunData, Series
from smdwidgets.finding import Finding

__all__ = ["forgetting"]

#: Fewest evaluations; the first one by the best, where the data were known before; the last ones by the first, where
#: they are forgotten; and the last ones of the others by their first and by their best.
LEAST_POINTS, KNOWN, FORGOTTEN, LEARNED, NEAR_BEST = 5, 1.1, 1.3, 0.7, 1.1
#: Words of a loss that do not name its data.
_OF_LOSS = frozenset({"loss", "nll", "ce", "cross", "entropy"})


def forgetting(data: RunData) -> Iterator[Finding]:
    """Yield losses of data that were known before the training of others.

    Overfitting raises the losses of all data that are not trained on.
    """
    losses = [one for one in data.held_out(Kind.LOSS) if len(one) >= LEAST_POINTS and one.values.min() > 0]
    losses = [one for one in losses if _is_of_data(data, one)]
    learned = [one for one in losses if _is_learned(one)]
    for loss in losses:
        end = float(np.median(loss.values[-3:]))
        if loss.values[0] > KNOWN * loss.values.min() or end < FORGOTTEN * loss.values[0]:
            continue
        for other in learned:
            # What is learned was not known at first.
            if not np.array_equal(other.steps, loss.steps) or other.values[0] <= loss.values[0]:
                continue
            onset = int(loss.steps[int(np.flatnonzero(loss.values <= KNOWN * loss.values[0])[-1])])
            facts = {"series": loss.quoted, "keep": onset, "numbers": f"{from_to(loss)}; {from_to(other)}"}
            yield beside("forgetting", "problem", (loss, other), facts, onset)
            return


def _is_learned(loss: Series) -> bool:
    end = float(np.median(loss.values[-3:]))
    return bool(end <= LEARNED * loss.values[0] and loss.values[-1] <= NEAR_BEST * loss.values.min())


def _is_of_data(data: RunData, loss: Series) -> bool:
    """Whether a loss is one of several data, not a part of the loss of all.

    Then something else is named after the data, too, such as their accuracy.
    """
    words = frozenset(loss.stem) - _OF_LOSS
    return bool(words) and any(
        words < frozenset(one.words) and one.kind is not Kind.LOSS and one.role.is_held_out for one in data.series
    )
