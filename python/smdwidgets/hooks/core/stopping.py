"""The request to stop a training, which a rule writes as a file of the run."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from smdwidgets._looks import Looks
from smdwidgets.exceptions import TrainingStopped
from smdwidgets.stop import STOP_FILE, StopRequest, stop_requested

__all__ = ["Stopping"]

#: Seconds between two looks: at a step of a millisecond, a look at the disk would be a part of the hook's cost.
_INTERVAL = 0.1


class Stopping:
    """Looks for a request, and ends the training once.

    Args:
        run: directory of the run.
    """

    def __init__(self, run: Path) -> None:
        self._run = run
        self._file = str(run / STOP_FILE)
        #: Whether the request was handled, or need not be.
        self.seen = False
        #: Ends the loop of the framework; returns False if it cannot yet. Without it, TrainingStopped is raised.
        self.end_loop: Callable[[StopRequest], bool] | None = None
        self._looks = Looks(_INTERVAL)

    @property
    def request(self) -> StopRequest | None:
        """The request, or None."""
        request = stop_requested(self._run) if os.path.exists(self._file) else None
        if request is not None:
            self._looks.repeat()
        return request

    def check(self) -> None:
        """End the loop once if a stop was requested, or raise TrainingStopped.

        It looks at most ten times a second.
        """
        if self.seen or not self._looks.is_due():
            return
        request = self.request
        if request is None:
            return
        self.seen = True
        if self.end_loop is None:
            raise TrainingStopped(request.by, request.reason, request.step)
        self.seen = self.end_loop(request)
