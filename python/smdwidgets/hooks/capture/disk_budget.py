"""The disk budget of a run: which of its steps keep their values.

A :class:`Spacing` decides by step numbers: a step is saved if its number is a multiple of the spacing. When the next
step would exceed the share, the spacing doubles, and saved steps that are not multiples of it are to be thinned. The
first step of each mode and the last ones are kept. Spacings are powers of two times the first one, so the steps of
workers with different spacings nest.

>>> from smdwidgets.modes import ModeKeys
>>> spacing = Spacing(share=5000)
>>> kept = []
>>> for step in range(40):
...     key = (step, ModeKeys.TRAIN, step)
...     if spacing.wants(step):
...         fits, thinned = spacing.make_room(key, 1000)
...         spacing.saved(key, 1000)
...         kept = [each for each in kept if each not in {one[0] for one in thinned}] + [step]
>>> spacing.every, kept
(8, [0, 8, 16, 24, 32])
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable

from smdwidgets._looks import Looks
from smdwidgets.config.capture_plan import (
    INCIDENTS_SHARE,
    SAMPLES_SHARE,
    SCALARS_SHARE,
    STATISTICS_SHARE,
    STEPS_SHARE,
    CapturePlan,
)
from smdwidgets.hooks.capture.captured import StepKey

__all__ = ["DiskBudget", "Spacing", "free_space"]

#: Default reserve: this share of the disk, at least so many bytes, but at most this share of what is free.
_RESERVE_SHARE, _RESERVE_LEAST, _RESERVE_OF_FREE = 0.05, 10**9, 0.5
#: A step's values may take this part of their share.
_OF_SHARE = 2
#: Saving resumes with this much more than the reserve.
_RESUME = 1.1
#: Below these parts of the reserve, incidents are not written, and statistics are written more rarely.
_NO_INCIDENTS, _FEW_STATISTICS = 0.5, 0.25
_LARGEST_STATISTICS_INTERVAL = 1 << 20
#: Seconds between two looks at the free space.
_LOOK_EVERY = 0.1
#: Space that the two files of a step with a few numbers take, in blocks of a file system.
SMALL_STEP = 2 * 4096


class Spacing:
    """The spacing of saved steps, and the space that they take.

    Args:
        share: space that the steps may take, in bytes.
        every: spacing to begin with; 0: no step is saved.
        keep_last: number of last steps that are kept, whatever the spacing.
    """

    def __init__(self, share: int, every: int = 1, keep_last: int = 2) -> None:
        self.share = share
        self.every = self._first_every = every
        #: A wider spacing of the steps to come, for another reason than their space.
        self.at_least = 1
        self.used = 0
        self._keep_last = max(keep_last, 1)
        self._steps: dict[StepKey, int] = {}
        self._last: deque[StepKey] = deque(maxlen=self._keep_last)
        self._lock = threading.Lock()

    def wants(self, mode_step: int) -> bool:
        """Whether a step is saved."""
        return self.every > 0 and mode_step % max(self.every, self.at_least) == 0

    @property
    def is_thinned(self) -> bool:
        """Whether the spacing has doubled."""
        return self.every > self._first_every

    @property
    def steps(self) -> list[StepKey]:
        """The saved steps, oldest first."""
        return list(self._steps)

    def make_room(self, key: StepKey, nbytes: int) -> tuple[bool, list[StepKey]]:
        """Return whether a step fits, and the steps that must be thinned before."""
        thinned: list[StepKey] = []
        with self._lock:
            before = self._steps.pop(key, 0)  # it is saved once more
            self.used -= before
            if nbytes > self.share:
                return False, []
            keep_last = self._keep_last - 1
            while self.used + nbytes > self.share:
                loose = self._loose(keep_last)
                if not loose:
                    if not keep_last:
                        return False, thinned
                    keep_last -= 1
                    continue
                if all(each[2] % self.every == 0 for each in loose):
                    self.every *= 2
                thinned += self._thin(loose)
            if len(self._last) == self._keep_last and (oldest := self._last[0]) in self._steps and oldest[2]:
                thinned += self._thin([oldest])  # it is no longer one of the last
            return True, thinned

    def saved(self, key: StepKey, nbytes: int) -> None:
        """A step was saved."""
        with self._lock:
            self._steps[key] = nbytes
            self._last.append(key)
            self.used += nbytes

    def forget(self, key: StepKey) -> int:
        """Never thin a step; return the space that it takes."""
        with self._lock:
            nbytes = self._steps.pop(key, 0)
            self.used -= nbytes
            return nbytes

    def _loose(self, keep_last: int) -> list[StepKey]:
        """Steps that are neither the first of a mode nor among the last ones."""
        steps = list(self._steps)
        return [key for key in (steps[:-keep_last] if keep_last else steps) if key[2] != 0]

    def _thin(self, steps: list[StepKey]) -> list[StepKey]:
        gone = [key for key in steps if key[2] % self.every]
        for key in gone:
            self.used -= self._steps.pop(key)
        return gone


class DiskBudget:
    """The shares of a run's disk budget, and the free space of its disk.

    Args:
        plan: states the budget and the reserve.
        workers: number of workers that share the budget.
        free: returns the free and the total bytes of the disk, or None if that is unknown.
    """

    def __init__(
        self, plan: CapturePlan, workers: int = 1, free: Callable[[], tuple[int, int] | None] = lambda: None
    ) -> None:
        self._plan, self._workers = plan, max(workers, 1)
        self.values = Spacing(0, plan.every, plan.keep_last)
        self.scalars = Spacing(0)
        #: Samples of the elements, at steps with values.
        self.samples = Spacing(0, plan.every, plan.keep_last)
        self._model_bytes = -1
        self.fit(0)
        #: Space that the steps around incidents take.
        self.incidents_used = 0
        self._free = free
        found = free()
        self.reserve = 0
        if plan.reserve is not None:
            self.reserve = int(plan.reserve)
        elif found is not None:
            self.reserve = int(min(max(_RESERVE_SHARE * found[1], _RESERVE_LEAST), _RESERVE_OF_FREE * found[0]))
        #: Whether values are not saved, because the disk is full but for the reserve.
        self.paused = False
        self._resumes_at = 0.0
        self._looks = Looks(_LOOK_EVERY)
        self._statistics_used = 0
        #: Statistics are written at every nth of their steps, because their share is being used up.
        self.statistics_every = 1
        self.free_bytes = -1

    @property
    def largest_step(self) -> int:
        """Bytes that values of a step may take: the first and the last step fit."""
        return self.values.share // _OF_SHARE

    def fits_step(self, nbytes: int) -> bool:
        """Whether values of a step may take so many bytes.

        They may while the size of the model is unknown.
        """
        return self._model_bytes == 0 or nbytes <= self.largest_step

    def fit(self, model_bytes: int) -> None:
        """Divide the budget for a model whose part in this process has at least this size."""
        if model_bytes <= self._model_bytes:
            return
        self._model_bytes = model_bytes
        #: The budget of this worker.
        self.total = self._plan.budget_of(model_bytes * self._workers) // self._workers
        self.values.share = int(STEPS_SHARE * self.total)
        self.scalars.share = int(SCALARS_SHARE * self.total)
        self.samples.share = int(SAMPLES_SHARE * self.total)
        self.statistics_share = int(STATISTICS_SHARE * self.total)
        self.incidents_share = int(INCIDENTS_SHARE * self.total)

    def look(self) -> bool:
        """As :meth:`check`, but ten times a second at most while values are saved.

        A look takes longer than writing a small step.
        """
        return (self._looks.is_due() or self.paused) and self.check()

    def check(self) -> bool:
        """Look at the free space; return whether :attr:`paused` has changed."""
        found = self._free()
        before = self.paused
        if found is None:
            self.paused = False
            return before
        self.free_bytes = found[0]
        self.paused = self.free_bytes < (self._resumes_at if self.paused else self.reserve)
        if self.paused and not before:
            self._resumes_at = _RESUME * self.reserve
        return self.paused != before

    def fill(self, nbytes: int) -> bool:
        """A step of this size did not fit on the disk: pause until two fit.

        Returns whether to pause.
        """
        found = self._free()
        self.free_bytes = 0 if found is None else found[0]
        needed = self.reserve + 2 * nbytes
        if self.free_bytes < needed:  # otherwise the file system has another limit, such as a quota
            self.paused = True
            self._resumes_at = max(_RESUME * self.reserve, self.free_bytes + 2 * nbytes)
        return self.paused

    def wrote_statistics(self, nbytes: int) -> None:
        """Statistics took so many bytes more.

        Half of what is left of their share goes to each interval.
        """
        self._statistics_used += nbytes
        while self._statistics_used > self.statistics_share * (1 - 0.5 / self.statistics_every):
            if self.statistics_every >= _LARGEST_STATISTICS_INTERVAL:
                return
            self.statistics_every *= 2

    def allows_incident(self, nbytes: int) -> bool:
        """Whether steps around an incident fit."""
        fits = self.incidents_used + nbytes <= self.incidents_share
        return fits and not (self.paused and self.free_bytes < _NO_INCIDENTS * self.reserve)

    def took_incident(self, nbytes: int) -> None:
        """So many bytes were written beside the steps of an incident."""
        self.incidents_used += nbytes

    @property
    def statistics_interval(self) -> int:
        """Statistics are written at every nth of their steps.

        The number grows as their share or the last space is used up.
        """
        rare = self.paused and self.free_bytes < _FEW_STATISTICS * self.reserve
        return self.statistics_every * (10 if rare else 1)

    def keep(self, key: StepKey) -> None:
        """Never thin a step: it belongs to an incident."""
        self.incidents_used += self.values.forget(key)
        self.scalars.forget(key)


def free_space(path: str) -> tuple[int, int] | None:
    """Return the free and the total bytes of the disk of a directory."""
    try:
        found = os.statvfs(path)
    except (OSError, AttributeError):  # not on Windows
        return None
    return found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
