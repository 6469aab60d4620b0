"""The steps of a run as they come: those that are there, then the new ones, until the run has ended."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from smdwidgets.trials.refresh import refresh

if TYPE_CHECKING:
    from smdwidgets.trials import Trial

__all__ = ["Feed", "batches"]

#: Between looks for new steps, at first and at most.
SHORTEST_WAIT, LONGEST_WAIT = 0.05, 2.0


class Feed:
    """Looks for steps of a run that were not given out before."""

    def __init__(self, trial: Trial, start_step: int = 0, end_step: int | None = None) -> None:
        self.trial = trial
        self.end_step = end_step
        self._from = start_step
        self._seen = 0
        #: The last step seen, -1 before the first.
        self.last_step = -1
        #: No more steps will come.
        self.ended = False
        self._news_at = time.monotonic()

    def look(self) -> list[int]:
        """New steps, ascending. Sets `ended` when they are the last."""
        with refresh([self.trial]):
            # Asked before the steps: what the run's end brings must still be seen.
            over = self.trial.loaded_all_steps
            steps = self.trial.steps()
        new = steps[bisect_left(steps, self._from) :]
        if self.end_step is not None:
            new = new[: bisect_left(new, self.end_step)]
            over = over or bool(steps and steps[-1] >= self.end_step - 1)
        self.ended = over
        if new:
            self.last_step = new[-1]
            self._from = new[-1] + 1
            self._news_at = time.monotonic()
        return new

    @property
    def silence(self) -> float:
        """Seconds since a new step was seen, or since the watching began."""
        return time.monotonic() - self._news_at

    @property
    def pause(self) -> float:
        """How long to wait before looking again: short after news, longer the longer there were none."""
        return min(max(SHORTEST_WAIT, self.silence / 4), LONGEST_WAIT)


def batches(feed: Feed, waiting: Callable[[float], bool]) -> Iterator[list[int]]:
    """New steps in portions until the run ends. `waiting(seconds)` is called while there are none; True ends it."""
    while True:
        if new := feed.look():
            yield new
        if feed.ended:
            return
        if not new and waiting(feed.pause):
            return
