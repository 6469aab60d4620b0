"""Steps of evaluations on the steps of the training.

Some programs count the steps of a training in updates, and those of its evaluations in epochs.
"""

from __future__ import annotations

import numpy as np

from smdwidgets.diagnosis.arrays import Steps
from smdwidgets.diagnosis.inputs import Series

__all__ = ["counts_epochs", "steps_along"]

#: Fewest evaluations that show how they are counted, and how much more steps and values the training has.
_LEAST, _MORE_STEPS, _MORE_VALUES = 3, 5, 2
#: Most epochs from one evaluation to the next.
_MOST_EPOCHS = 10


def counts_epochs(held_out: Series, training: Series) -> bool:
    """Whether evaluations are counted in epochs beside many more updates."""
    steps, of_training = held_out.steps, training.steps
    if len(steps) < _LEAST:
        return False
    every = int(steps[1] - steps[0])
    return bool(
        every <= _MOST_EPOCHS
        and steps[0] <= every
        and (np.diff(steps) == every).all()
        and len(of_training) >= _MORE_VALUES * len(steps)
        and of_training[-1] >= _MORE_STEPS * steps[-1]
    )


def steps_along(held_out: Series, training: Series) -> Steps:
    """Return the steps of evaluations, counted as the training counts them.

    >>> from smdwidgets.diagnosis.inputs import Kind
    >>> from smdwidgets.naming.scalars import Role
    >>> def of(steps): return Series("loss", "", "", Kind.LOSS, Role.NONE, (), np.array(steps), np.zeros(len(steps)))
    >>> steps_along(of([0, 1, 2]), of(range(0, 600, 5))).tolist(), steps_along(of([0, 1, 2]), of(range(9))).tolist()
    ([198, 396, 595], [0, 1, 2])
    """
    if not counts_epochs(held_out, training):
        return held_out.steps
    ends = np.arange(1, len(held_out) + 1) * (int(training.steps[-1]) / len(held_out))
    return ends.astype(np.int64)
