"""Find the tensors of a step whose largest element jumps.

It is compared with the largest elements of the last steps.

Nothing is decided by it: it says where to look when something else has shown that a training broke, such as a loss that
a flipped bit of one weight has raised. A jump grows on its way through the step: the gradients rise by the weight's
factor again and again. So the first jump in causal order is returned with the largest ones.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from smdwidgets.hooks.incidents.step_columns import StepColumns
from smdwidgets.incident import Jump
from smdwidgets.modes import ModeKeys
from smdwidgets.naming.causal_order import Place

__all__ = ["Jumps"]

#: Values of each tensor that are kept, and that are needed to compare with.
WINDOW: Final = 64
_LEAST: Final = 8
#: Jumps that are returned at most, and the factor from which one counts.
MOST: Final = 5
_LEAST_FACTOR: Final = 2.0
#: The least logarithm of a factor by that of the largest one. Smaller jumps did not cause it.
_LEAST_SHARE: Final = 0.25


class Jumps:
    """Compares the magnitudes of each step with those of the last steps of its mode.

    Steps are only kept: they are read when something has shown that a training broke.
    """

    def __init__(self) -> None:
        #: By mode and by the names of a step's tensors: the last steps, with their places in the order of all steps.
        self._steps: defaultdict[ModeKeys, dict[tuple[str, ...], deque[tuple[int, NDArray[np.float64]]]]]
        self._steps = defaultdict(dict)
        self._pushed = 0

    def push(self, mode: ModeKeys, step: StepColumns) -> None:
        """Add a step."""
        if not step.names:
            return
        by_names = self._steps[mode]
        steps = by_names.get(step.names)
        if steps is None:
            if len(by_names) >= WINDOW:  # names that change at each step
                del by_names[min(by_names, key=lambda names: by_names[names][-1][0])]
            steps = by_names[step.names] = deque(maxlen=WINDOW)
        self._pushed += 1
        steps.append((self._pushed, step["abs_max"]))

    def largest(self, mode: ModeKeys, step: StepColumns, places: Sequence[Place]) -> tuple[Jump, ...]:
        """Return the tensors with the largest jumps, and the first one, in causal order.

        Args:
            mode: the mode of the step.
            step: the step, which was not added yet.
            places: place of each of its tensors in causal order.
        """
        if mode not in self._steps or not step.names:
            return ()
        before, now = self._before(mode, step.names), step["abs_max"]
        factors = np.zeros(len(now))
        np.divide(now, before, out=factors, where=np.isfinite(now) & (before > 0))
        rows = [row for row in np.argsort(-factors, kind="stable")[:MOST].tolist() if factors[row] >= _LEAST_FACTOR]
        if not rows:
            return ()
        causes = np.flatnonzero(factors >= max(_LEAST_FACTOR, float(factors[rows[0]]) ** _LEAST_SHARE)).tolist()
        first = min(causes, key=places.__getitem__)
        if first not in rows:
            rows[MOST - 1 :] = [first]
        rows.sort(key=places.__getitem__)
        return tuple(Jump(step.names[row], float(before[row]), float(now[row])) for row in rows)

    def _before(self, mode: ModeKeys, names: tuple[str, ...]) -> NDArray[np.float64]:
        """Return the largest of the last finite magnitudes of each tensor.

        It is 0 if too few are known.
        """
        rows = {name: row for row, name in enumerate(names)}
        largest, counts = np.zeros(len(names)), np.zeros(len(names), np.intp)
        layouts = [
            (np.array([rows.get(name, -1) for name in of_steps], np.intp), steps)
            for of_steps, steps in self._steps[mode].items()
            if not rows.keys().isdisjoint(of_steps)
        ]
        every = sorted(
            ((at, places, magnitudes) for places, steps in layouts for at, magnitudes in steps),
            key=lambda one: one[0],
            reverse=True,
        )
        for _, places, magnitudes in every:
            kept = (places >= 0) & np.isfinite(magnitudes)
            into, values = places[kept], magnitudes[kept]
            wanted = counts[into] < WINDOW
            into, values = into[wanted], values[wanted]
            largest[into] = np.maximum(largest[into], values)
            counts[into] += 1
        return np.where(counts >= _LEAST, largest, 0.0)
