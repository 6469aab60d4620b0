"""Which steps count as complete when several workers write them at their own pace."""

from __future__ import annotations

from smdwidgets.trials.environment import incomplete_step_window
from smdwidgets.trials.run import Index


class Completeness:
    """The last complete global step. It only grows.

    A step is complete once every worker has written it. Once a step is complete, so are all before it: a worker that skipped
    one of them will not come back to it. And when more steps than a window (1000) wait for a worker, the older half of these
    is declared complete: that worker is gone.

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
        """Take in what is new."""
        self.until = max(self.until, index.complete_until(max(1, num_workers)))
        while index.count_after(self.until) > self._window:
            waiting = [step for step in index.steps() if step > self.until]
            self.until = waiting[self._window // 2 - 1]

    def end(self, index: Index) -> None:
        """The run has ended: no worker will write any more."""
        last = index.last_step()
        if last is not None:
            self.until = max(self.until, last)
