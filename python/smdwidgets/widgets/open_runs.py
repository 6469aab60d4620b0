"""The runs of a widget. Those of a table are opened at their first use."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, overload

if TYPE_CHECKING:
    from smdwidgets.trials import Trial


class OpenRuns(Sequence["Trial"]):
    """A sequence of trials that opens a run when it is first used. Thread-safe.

    >>> runs = OpenRuns(lambda: 2, open_run)      # doctest: +SKIP
    >>> runs.opened(), runs[1].name, runs.opened()               # doctest: +SKIP
    """

    def __init__(
        self, count: Callable[[], int], open_run: Callable[[int], Trial], opened: Iterable[Trial] = ()
    ) -> None:
        self._count = count
        self._open = open_run
        self._opened: dict[int, Trial] = dict(enumerate(opened))
        self._lock = threading.RLock()
        #: Called with the number and the trial of a run that was opened.
        self.on_open: Callable[[int, Trial], None] = lambda number, trial: None

    @classmethod
    def of(cls, trials: Iterable[Trial]) -> OpenRuns:
        """Return runs that are all open."""
        opened = list(trials)
        return cls(lambda: len(opened), opened.__getitem__, opened)

    def opened(self) -> list[tuple[int, Trial]]:
        """Return number and trial of each run that is open."""
        return sorted(self._opened.copy().items())

    def index(self, value: Trial, start: int = 0, stop: int | None = None) -> int:
        """Return the number of an open run, without opening others."""
        end = len(self) if stop is None else stop
        found = next((number for number, one in self.opened() if one is value and start <= number < end), None)
        if found is None:
            raise ValueError("the run is not open")
        return found

    def __len__(self) -> int:
        return self._count()

    @overload
    def __getitem__(self, at: int) -> Trial: ...
    @overload
    def __getitem__(self, at: slice) -> list[Trial]: ...
    def __getitem__(self, at: int | slice) -> Trial | list[Trial]:
        if isinstance(at, slice):
            return [self[number] for number in range(*at.indices(len(self)))]
        number = at + len(self) if at < 0 else at
        if not 0 <= number < len(self):
            raise IndexError(f"no run {at}: the widget has {len(self):,} runs")
        with self._lock:
            known = self._opened.get(number)
            trial = self._opened[number] = self._open(number) if known is None else known
        # Outside of the lock, because this takes the locks of the widget.
        if known is None:
            self.on_open(number, trial)
        return trial


def opened(trials: Sequence[Trial]) -> list[tuple[int, Trial]]:
    """Return number and trial of each run of a widget that is open."""
    return trials.opened() if isinstance(trials, OpenRuns) else list(enumerate(trials))


def run_at(trials: Sequence[Trial], number: int) -> Trial:
    """Return a run of a widget by the number that a page uses."""
    if not 0 <= number < len(trials):
        raise ValueError(f"run index {number} is out of range")
    return trials[number]
