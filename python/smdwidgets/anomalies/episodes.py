"""Episodes: anomalies that follow each other closely count as one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from smdwidgets.anomalies.defaults import EPISODE_QUIET

__all__ = ["Episodes", "begins_episode"]


class Episodes:
    """Tells which occurrences of a condition begin an episode.

    >>> episodes = Episodes()
    >>> [episodes.push(step) for step in (3, 4, 14, 40)]
    [True, False, False, True]
    """

    def __init__(self, quiet: float = EPISODE_QUIET) -> None:
        self._quiet = quiet
        self._last: int | None = None

    def push(self, step: int) -> bool:
        """Note that the condition holds; return whether an episode begins."""
        last, self._last = self._last, step
        return last is None or not 0 <= step - last <= self._quiet


def begins_episode(steps: NDArray[np.int64], quiet: float = EPISODE_QUIET) -> NDArray[np.bool_]:
    """Return which of the steps, in the order of their occurrence, begin an episode.

    >>> begins_episode(np.array([3, 4, 14, 40])).tolist()
    [True, False, False, True]
    """
    distance = np.diff(steps)
    return np.append(np.ones(min(1, len(steps)), bool), (distance < 0) | (distance > quiet))
