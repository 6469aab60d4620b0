"""Poll the steps of a run until it ends."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from smdwidgets.trials.refresh import refresh

if TYPE_CHECKING:
    from smdwidgets.trials import Trial

__all__ = ["StepPoller", "batches"]

#: Polling interval in seconds: initial and maximum.
SHORTEST_WAIT, LONGEST_WAIT = 0.05, 2.0


class StepPoller:
    """Poll a run for new steps."""

    def __init__(self, trial: Trial, start_step: int = 0, end_step: int | None = None) -> None:
        self.trial = trial
        self.end_step = end_step
        self._from = start_step
        self._seen = 0
        #: The last step seen, -1 before the first.
        self.last_step = -1
        #: Whether the run has ended, so that no more steps will come.
        self.ended = False
        self._new_step_at = time.monotonic()

    def poll(self) -> list[int]:
        """Return new steps, ascending. Sets `ended` after the last step."""
        with refresh([self.trial]):
            # Check for the end before listing steps, so that steps saved just before the end are not missed.
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
            self._new_step_at = time.monotonic()
        return new

    @property
    def silence(self) -> float:
        """Seconds since the last new step, or since the poller was created."""
        return time.monotonic() - self._new_step_at

    @property
    def pause(self) -> float:
        """Seconds until the next poll; grows with the time since the last new step."""
        return min(max(SHORTEST_WAIT, self.silence / 4), LONGEST_WAIT)


def batches(poller: StepPoller, waiting: Callable[[float], bool]) -> Iterator[list[int]]:
    """Yield batches of new steps until the run ends.

    `waiting(seconds)` is called when there are no new steps; if it returns True, the iteration ends.
    """
    while True:
        if new := poller.poll():
            yield new
        if poller.ended:
            return
        if not new and waiting(poller.pause):
            return
