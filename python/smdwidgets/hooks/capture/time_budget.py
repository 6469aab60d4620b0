"""The time budget of a hook: how often tensors are captured.

The seconds that the hook takes on the training's thread are measured step by step. A step at which nothing is captured
shows the floor: what a step costs whatever is captured. What other steps cost above it is that of the kinds of tensors
which they captured. A capture of a kind that costs ``c`` seconds at every ``n``-th step costs ``c / n`` a step; the
intervals are the least powers of two with which all kinds together fit. To its cost belongs what the training spends
beside its thread: the time that it waits for the writer, and the time that its device copies.

They fit if they take what the floor leaves of the share, or half of the floor, if that is more: giving up more captures
would save less than it loses. A floor that takes much of the time of a training of short steps excuses no more than a
tenth of that time. Intervals are settled again if the cost is too large, or if it would be small with
shorter ones for some time. The gap between both limits stops them from alternating.

>>> clock = iter(range(1000))
>>> budget = TimeBudget(0.01, ["activations", "weights"], free_seconds=2.0, clock=lambda: next(clock))
>>> taken = 0.0
>>> for step in range(12):
...     changed = budget.step(taken)
...     if changed:
...         print(step, {kind: budget.interval(kind) for kind in changed})
...     budget.spend("activations", 0.02)
...     budget.spend("weights", 0.002)
...     taken += 0.022
6 {'activations': 4}
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

__all__ = ["LARGEST_INTERVAL", "VALUES", "TimeBudget"]

LARGEST_INTERVAL = 1024
#: The kind whose cost is the time that the training waits for the disk.
VALUES = "values"

#: Steps that are not measured in any case, and those that are not while the training has run for less than some time:
#: compilers and allocators are busy then.
_COLD, _WARM_UP, _WARM_UP_SECONDS = 3, 20, 1.0
#: Seconds of training between two looks at the cost.
_WINDOW = 0.25
#: Above this multiple of what fits, intervals are settled again; below the other one for so many windows, too.
_TOO_MUCH, _LITTLE, _WINDOWS_LITTLE = 1.25, 0.8, 10
#: What the kinds may take of the floor, if it leaves less of the share, and of the time of the training then.
_OF_FLOOR, _OF_TRAINING = 0.5, 0.1
#: Share of the cost from which a kind is worth a longer interval.
_WORTH = 0.2
#: Seconds that a capture of a tensor costs beside what is measured for it, by which the rest of a step is divided.
_BESIDES = 10e-6
#: Weight of a new measurement, and the multiple of what is known at which it is cut: the thread was interrupted.
_LEARNING, _OUTLIER = 0.1, 4.0
_LEAST = 1e-9
#: Seconds of waiting that a short training may have.
_LEAST_WAIT = 0.5


class _Mean:
    """A mean of measurements, in which the last ones count most and outliers little."""

    __slots__ = ("count", "value")

    def __init__(self) -> None:
        self.count = 0
        self.value = 0.0

    def add(self, measured: float, times: int = 1) -> None:
        """Add the mean of so many measurements."""
        self.count += times
        if self.count > 2 and measured > _OUTLIER * self.value:
            measured = _OUTLIER * max(self.value, _LEAST)
        weight = _LEARNING if times == 1 else 1 - (1 - _LEARNING) ** times
        self.value += max(weight, times / self.count) * (measured - self.value)


class TimeBudget:
    """Adapts the intervals of several kinds of tensors.

    Args:
        share: the hook's time by the time that the training takes without it.
        ladder: the kinds; the first becomes rarer first.
        fixed: an interval that is not adapted.
        free_seconds: until the training or the hook has taken so long, nothing is adapted: a short training is captured
            whole.
        clock: returns seconds.
    """

    def __init__(
        self,
        share: float,
        ladder: Sequence[str],
        fixed: int | None = None,
        free_seconds: float = 2.0,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.share = share
        #: Number of steps between two captures, by kind; 0: never.
        self.intervals = dict.fromkeys(ladder, 1 if fixed is None else fixed)
        self._fixed = fixed is not None
        self._free_seconds = free_seconds
        self._clock = clock
        #: Seconds that were measured for each kind in this step, and how many tensors these were.
        self._spent: dict[str, float] = {}
        self._tensors: dict[str, int] = {}
        self._floor, self._training = _Mean(), _Mean()
        self._costs = {kind: _Mean() for kind in ladder}
        #: What each kind cost beside the thread: seconds of some steps, of all of them, and of a capture.
        self._beside = dict.fromkeys(ladder, 0.0)
        self._steps_beside = dict.fromkeys(ladder, 0)
        self._beside_in_all = 0.0
        self._costs_beside = {kind: _Mean() for kind in ladder}
        self._steps = 0
        #: Seconds of training that were measured, those of this window, and those that the hook has taken.
        self._trained = self._window = self._taken = 0.0
        self._little = 0
        self._knew_floor = False
        #: When this step began: clock, seconds of the hook, and what of them the training has waited.
        self._began: tuple[float, float, float] | None = None

    def interval(self, kind: str) -> int:
        """Number of steps between two captures of this kind; 0: never."""
        return self.intervals.get(kind, 1)

    @property
    def measured_share(self) -> float | None:
        """The share of the time that the hook takes, if it was measured."""
        if not self._training.count:
            return None
        return (self._floor.value + self._cost_with(self.intervals)) / max(self._training.value, _LEAST)

    @property
    def floor_share(self) -> float | None:
        """The share that a step takes at which nothing is captured, if there was one."""
        return self._floor.value / max(self._training.value, _LEAST) if self._floor.count else None

    def spend(self, kind: str, seconds: float) -> None:
        """The hook took so long for a tensor of this kind."""
        if kind in self.intervals:
            self._spent[kind] = self._spent.get(kind, 0.0) + seconds
            self._tensors[kind] = self._tensors.get(kind, 0) + 1

    def spend_beside(self, kind: str, seconds: float) -> None:
        """The training waited so long for a kind, or its device was busy."""
        if kind in self._beside:
            self._beside[kind] += seconds
            self._beside_in_all += seconds

    def step(self, hook_seconds: float, waited_seconds: float = 0.0, steps: int = 1) -> tuple[str, ...]:
        """A step begins; return the kinds whose intervals changed.

        Args:
            hook_seconds: what the hook has taken on the training's thread, in all.
            waited_seconds: what of that the training has waited.
            steps: number of steps since the last call.
        """
        now = self._clock()
        began, self._began = self._began, (now, hook_seconds, waited_seconds)
        spent, tensors = self._spent, self._tensors
        if spent:
            self._spent, self._tensors = {}, {}
        if began is None:
            return ()
        taken, waited = hook_seconds - began[1], waited_seconds - began[2]
        cost = max(taken - waited, 0.0) / steps
        other = now - began[0] - max(taken, waited)
        if other < 0 or taken < 0:  # a clock that was set back
            return ()
        self._steps += steps
        for kind in self._steps_beside:
            self._steps_beside[kind] += steps
        if self._steps <= _COLD:
            return ()
        self._trained += other
        if self._steps <= _WARM_UP and self._trained < _WARM_UP_SECONDS and not self._mostly_waits:
            return ()
        self._measure(cost, other / steps, spent, tensors, steps)
        self._taken += taken
        self._window += other + waited
        if self._window < _WINDOW:
            return ()
        return self._end_window()

    def _measure(self, cost: float, other: float, spent: dict[str, float], tensors: dict[str, int], steps: int) -> None:
        self._training.add(other, steps)
        if not spent:
            self._floor.add(cost, steps)
            return
        above = max((cost - self._floor.value) * steps, sum(spent.values()))
        weights = {kind: seconds + _BESIDES * tensors[kind] for kind, seconds in spent.items()}
        whole = sum(weights.values())
        for kind, weight in weights.items():
            self._costs[kind].add(above * weight / whole)

    def _end_window(self) -> tuple[str, ...]:
        self._window = 0.0
        for kind, interval in self.intervals.items():
            if self._steps_beside[kind] >= interval:  # else a capture would look like an outlier
                self._costs_beside[kind].add(self._beside[kind] / self._steps_beside[kind] * interval)
                self._steps_beside[kind], self._beside[kind] = 0, 0.0
        is_short = max(self._trained, self._taken) < self._free_seconds
        if self._fixed or (is_short and not self._mostly_waits):
            return ()
        floor = self._floor.value
        # Until the floor is known, it counts as that of captures.
        least = min(_OF_FLOOR * floor, _OF_TRAINING * self._training.value)
        fits = max(self.share * self._training.value - floor, least)
        if not self._knew_floor and self._floor.count > _COLD:
            self._knew_floor = True
            self._take_off(floor)
            return self._set(self._fitting(fits))
        if self._cost_with(self.intervals) > _TOO_MUCH * fits:
            return self._set(self._fitting(fits))
        shorter = self._fitting(_LITTLE * fits)
        is_little = _captures(shorter) > _captures(self.intervals)
        self._little = self._little + 1 if is_little else 0
        return self._set(shorter) if self._little >= _WINDOWS_LITTLE else ()

    @property
    def _mostly_waits(self) -> bool:
        """Whether the training has waited for longer than it trained."""
        return self._beside_in_all > max(self._trained, _LEAST_WAIT)

    def _take_off(self, floor: float) -> None:
        """Take the floor off what captures cost that were measured before it was known."""
        whole = sum(cost.value for cost in self._costs.values())
        for cost in self._costs.values():
            cost.value *= max(whole - floor, _LEAST) / max(whole, _LEAST)

    def _cost_with(self, intervals: dict[str, int]) -> float:
        """Return the seconds a step that all kinds cost with these intervals."""
        return sum(self._cost(kind) / interval for kind, interval in intervals.items() if interval)

    def _cost(self, kind: str) -> float:
        """Return the seconds that a capture of a kind costs."""
        return self._costs[kind].value + self._costs_beside[kind].value

    def _fitting(self, limit: float) -> dict[str, int]:
        """Return the least intervals with which all kinds cost no more than a limit."""
        intervals = dict.fromkeys(self.intervals, 1)
        while (total := self._cost_with(intervals)) > max(limit, _LEAST):
            kind = next(
                (
                    kind
                    for kind, interval in intervals.items()
                    if interval < LARGEST_INTERVAL and self._cost(kind) / interval >= _WORTH * total
                ),
                None,
            )
            if kind is None:
                break
            intervals[kind] *= 2
        return intervals

    def _set(self, intervals: dict[str, int]) -> tuple[str, ...]:
        changed = tuple(kind for kind, each in intervals.items() if each != self.intervals[kind])
        for kind in changed:
            self._steps_beside[kind], self._beside[kind] = 0, 0.0
        self.intervals.update(intervals)
        self._little = 0
        return changed


def _captures(intervals: dict[str, int]) -> float:
    """Return the number of captures a step."""
    return sum(1 / interval for interval in intervals.values() if interval)
