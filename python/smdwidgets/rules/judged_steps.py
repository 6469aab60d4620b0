"""The steps that a rule judged, in little memory."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence

import numpy as np


class JudgedSteps:
    """A growing sequence of step numbers, stored as runs of equal distance.

    A training saves every Nth step, so that a run of a million steps takes three numbers.

    >>> steps = JudgedSteps()
    >>> steps.extend([0, 10, 20, 21])
    >>> steps.append(22)
    >>> len(steps), list(steps.after(1))
    (5, [10, 20, 21, 22])
    """

    def __init__(self) -> None:
        self._length = 0
        self._last = 0
        #: For each run: the place of its first step, that step, and the distance; 0 while the run has one step.
        self._places, self._firsts, self._distances = array("q"), array("q"), array("q")

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[int]:
        return iter(self.after(0))

    def append(self, step: int) -> None:
        """Add a step."""
        distance = step - self._last
        alone = self._length > 0 and self._places[-1] == self._length - 1
        if alone:
            self._distances[-1] = distance
        elif not self._length or distance != self._distances[-1]:
            self._places.append(self._length)
            self._firsts.append(step)
            self._distances.append(0)
        self._last = step
        self._length += 1

    def extend(self, steps: Sequence[int]) -> None:
        """Add steps."""
        given = np.asarray(steps, np.int64)
        at = 0
        while at < len(given):
            self.append(int(given[at]))
            at += 1
            if self._places[-1] == self._length - 1:
                continue
            # All that follow at the distance of the run belong to it.
            differs = np.flatnonzero(np.diff(given[at - 1 :]) != self._distances[-1])
            more = int(differs[0]) if len(differs) else len(given) - at
            at += more
            self._length += more
            self._last = int(given[at - 1])

    def after(self, place: int) -> array[int]:
        """Return the steps from a place on."""
        found = array("q")
        first = max(0, bisect_right(self._places, place) - 1)
        for run in range(first, len(self._places)):
            start = self._places[run]
            end = self._places[run + 1] if run + 1 < len(self._places) else self._length
            skipped = max(0, place - start)
            steps = self._firsts[run] + self._distances[run] * np.arange(skipped, end - start, dtype=np.int64)
            found.frombytes(steps.tobytes())
        return found
