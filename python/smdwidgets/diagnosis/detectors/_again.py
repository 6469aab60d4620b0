"""A loss that takes its first course again, as that of new weights does."""

from __future__ import annotations

import numpy as np

from smdwidgets.diagnosis.arrays import Floats
from smdwidgets.diagnosis.trends import local_noise

__all__ = ["begins_again"]

#: Fewest values of both courses, and of those that give the level before the second one.
LEAST, LEVEL = 5, 3
#: What was learned before, relative to the first value, and in units of the noise.
LEARNED, CLEAR = 0.1, 5.0
#: Distance of the first values, and of the courses while they fall, relative to what was learned.
FIRST_APART, APART = 0.15, 0.25
#: Share of what was learned by which both fall.
FALLS = 0.75


def begins_again(values: Floats) -> int | None:
    """Return where a loss jumps to its first value and falls as it did at first.

    >>> course = 2 * 0.7 ** np.arange(9)
    >>> begins_again(np.concatenate([course, course])), begins_again(np.concatenate([course, course[3:], course[3:]]))
    (9, None)
    """
    if len(values) < 2 * LEAST:
        return None
    at = int(np.diff(values).argmax()) + 1
    count = min(at, len(values) - at)
    if count < LEAST:
        return None
    first, again = values[:count], values[at : at + count]
    learned = float(values[0] - np.median(values[at - LEVEL : at]))
    least = max(LEARNED * abs(float(values[0])), CLEAR * local_noise(values))
    if not learned > least or again[0] < values[0] - FIRST_APART * learned:
        return None
    # Only while it falls does a course tell one training from another, or from a single spike.
    fallen = np.flatnonzero(first <= values[0] - FALLS * learned)
    if not len(fallen) or fallen[0] < LEVEL:
        return None
    both = slice(int(fallen[0]) + 1)
    return at if float(np.abs(first[both] - again[both]).mean()) <= APART * learned else None
