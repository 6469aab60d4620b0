"""Find the tensors of a step whose largest element jumps.

It is compared with the largest elements of the last steps.

Nothing is decided by it: it says where to look when something else has shown that a training broke, such as a loss that
a flipped bit of one weight has raised.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from smdwidgets.hooks.incidents.step_columns import StepColumns
from smdwidgets.incident import Jump
from smdwidgets.modes import ModeKeys

__all__ = ["Jumps"]

#: Values of each tensor that are kept, and that are needed to compare with.
WINDOW: Final = 64
_LEAST: Final = 8
#: Jumps that are returned at most, and the factor from which one counts.
MOST: Final = 5
_LEAST_FACTOR: Final = 2.0


class _History:
    """The last magnitudes of the tensors of one mode."""

    def __init__(self) -> None:
        self._rows: dict[str, int] = {}
        self._layouts: dict[tuple[str, ...], NDArray[np.intp]] = {}
        self._values = np.zeros((0, WINDOW))
        self._counts = np.zeros(0, np.int64)

    def rows(self, names: tuple[str, ...]) -> NDArray[np.intp]:
        """Return where the tensors are in this history."""
        places = self._layouts.get(names)
        if places is None:
            if len(self._layouts) >= WINDOW:
                self._layouts.clear()
            places = np.array([self._rows.setdefault(name, len(self._rows)) for name in names], np.intp)
            self._layouts[names] = places
            missing = len(self._rows) - len(self._counts)
            if missing > 0:
                missing = max(missing, len(self._counts))
                self._values = np.concatenate([self._values, np.zeros((missing, WINDOW))])
                self._counts = np.concatenate([self._counts, np.zeros(missing, np.int64)])
        return places

    def push(self, rows: NDArray[np.intp], magnitudes: NDArray[np.float64]) -> None:
        """Add the magnitudes of a step. Those that are not finite are left out."""
        known = np.isfinite(magnitudes)
        rows, magnitudes = rows[known], magnitudes[known]
        self._values[rows, self._counts[rows] % WINDOW] = magnitudes
        self._counts[rows] += 1

    def largest(self, rows: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return the largest of the last magnitudes of each tensor.

        It is 0 if too few are known.
        """
        largest: NDArray[np.float64] = self._values[rows].max(axis=1, initial=0.0)
        return np.where(self._counts[rows] >= _LEAST, largest, 0.0)


class Jumps:
    """Compares the magnitudes of each step with those of the last steps of its mode."""

    def __init__(self) -> None:
        self._histories: dict[ModeKeys, _History] = {}

    def push(self, mode: ModeKeys, step: StepColumns) -> None:
        """Add a step."""
        if step.names:
            history = self._histories.setdefault(mode, _History())
            history.push(history.rows(step.names), step["abs_max"])

    def largest(self, mode: ModeKeys, step: StepColumns) -> tuple[Jump, ...]:
        """Return the tensors with the largest jumps, the largest first.

        The step was not added yet.
        """
        history = self._histories.get(mode)
        if history is None or not step.names:
            return ()
        before, now = history.largest(history.rows(step.names)), step["abs_max"]
        factors = np.zeros(len(now))
        np.divide(now, before, out=factors, where=np.isfinite(now) & (before > 0))
        first = np.argsort(-factors, kind="stable")[:MOST]
        return tuple(
            Jump(step.names[row], float(before[row]), float(now[row])) for row in first if factors[row] >= _LEAST_FACTOR
        )
