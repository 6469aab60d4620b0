"""Completeness of steps that several workers write independently."""

from __future__ import annotations

from smdwidgets.trials.environment import incomplete_step_window
from smdwidgets.trials.run import Index


class Completeness:
    """The last complete global step, monotonically increasing.

    A step is complete once every worker has written it. All earlier steps are then complete too, since workers write
    steps in ascending order. If more than ``window`` (1000) steps are incomplete, the older half of them is declared
    complete: the missing worker has probably stopped.

    >>> import smdwidgets._core
    >>> catalog = smdwidgets._core.Catalog()
    >>> _ = catalog.add_keys([f"index/000000000/{step:012d}_worker_0.json" for step in range(3)])
    >>> done = Completeness()
    >>> done.update(catalog, num_workers=1)
    >>> done.until
    2
    """

    def __init__(self, window: int | None = None) -> None:
        self.until = -1
        self._window = max(2, incomplete_step_window() if window is None else window)

    def update(self, index: Index, num_workers: int) -> None:
        """Update the last complete step after new steps were added to the index."""
        self.until = max(self.until, index.complete_until(max(1, num_workers)))
        while index.count_after(self.until) > self._window:
            waiting = [step for step in index.steps() if step > self.until]
            self.until = waiting[self._window // 2 - 1]

    def end(self, index: Index) -> None:
        """Mark all steps as complete, since the run has ended."""
        last = index.last_step()
        if last is not None:
            self.until = max(self.until, last)
