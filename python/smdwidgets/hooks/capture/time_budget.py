"""The time budget of a hook: how often tensors are captured.

Every window of a second or more gives one measurement: the seconds that the hook took on the training's thread, by kind
of tensor, and the seconds that the training took without it. If the share is too large in three windows, the interval
of one kind doubles: of the first in the ladder that costs enough to matter. If the share would be small enough with the
last doubling undone, for ten windows, it is undone. The gap between both limits stops the intervals from alternating.

A part of the cost, the floor, is that of every step, whatever is captured. No interval changes it. The tensors get what
the floor leaves of the share, but at least as much as the floor: to capture less would save less than half of the cost.

>>> budget = TimeBudget(0.01, ["activations", "weights"], free_seconds=0.0, warm_up=0)
>>> def second(activations, weights):
...     budget.spend("activations", activations)
...     budget.spend("weights", weights)
...     return budget.window(activations + weights, 1.0)
>>> [second(0.03, 0.03) for _ in range(3)]
[None, None, 'activations']
>>> budget.interval("activations"), budget.interval("weights")
(2, 1)
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

__all__ = ["LARGEST_INTERVAL", "TimeBudget"]

LARGEST_INTERVAL = 1024

#: Seconds of a window at least.
_WINDOW = 1.0
#: Weight of a new measurement in the smoothed logarithm of the share.
_SMOOTHING = 0.2
#: Above this multiple of the share for so many windows, an interval doubles.
_TOO_MUCH, _WINDOWS_TOO_MUCH = 1.25, 3
#: Below this multiple for so many windows, the last doubling is undone.
_LITTLE, _WINDOWS_LITTLE = 0.8, 10
#: Share of the cost from which a kind is worth doubling.
_WORTH = 0.2
#: A tensor's share of what the hook took besides is at most this multiple of the seconds that were measured for it.
_BESIDES = 4
#: Weight of a new window in the estimate of that multiple, and the part by which what is captured must vary for one.
_LEARNING, _VARIES = 0.1, 0.1
_LEAST = 1e-9


class _Floor:
    """Divides the cost of a window into that of tensors and that of every step.

    The cost of tensors is a multiple of what was measured for them. It is the slope by which the cost follows what was
    measured; until that varies, all is taken for the cost of tensors, up to a bound.
    """

    def __init__(self) -> None:
        self._windows = 0
        self._slope = float(1 + _BESIDES)
        self._measured = self._cost = self._variance = self._covariance = 0.0

    def divide(self, measured: float, cost: float) -> float:
        """Return the multiple for a window with these seconds a step."""
        self._windows += 1
        weight = max(_LEARNING, 1 / self._windows)
        off, off_cost = measured - self._measured, cost - self._cost
        self._measured += weight * off
        self._cost += weight * off_cost
        self._variance = (1 - weight) * (self._variance + weight * off * off)
        self._covariance = (1 - weight) * (self._covariance + weight * off * off_cost)
        most = min(cost / max(measured, _LEAST), 1 + _BESIDES)
        if self._variance > (_VARIES * self._measured) ** 2:
            self._slope = self._covariance / self._variance
        return max(min(self._slope, most), 1.0)


class TimeBudget:
    """Adapts the intervals of several kinds of tensors.

    Args:
        share: the hook's time by the time that the training takes without it.
        ladder: the kinds; the first becomes rarer first.
        fixed: an interval that is not adapted.
        warm_up: number of first steps that are not measured, because compilers and allocators are busy then.
        free_seconds: as long as the hook has taken less than this in all, nothing is adapted: a short training is
            captured whole.
        clock: returns seconds.
    """

    def __init__(
        self,
        share: float,
        ladder: Sequence[str],
        fixed: int | None = None,
        warm_up: int = 20,
        free_seconds: float = 20.0,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.share = share
        self._ladder = tuple(ladder)
        self._intervals = dict.fromkeys(self._ladder, 1 if fixed is None else fixed)
        self._fixed = fixed is not None
        self._warm_up = warm_up
        self._free_seconds = free_seconds
        self._clock = clock
        self._doubled: list[str] = []
        #: Seconds by kind in this window, and smoothed seconds per window.
        self._spent = dict.fromkeys(self._ladder, 0.0)
        self._costs = dict.fromkeys(self._ladder, 0.0)
        self._count = dict.fromkeys(self._ladder, 0)
        self._log_share: float | None = None
        self._floor = _Floor()
        self._too_much = self._little = 0
        self._total = 0.0
        self._steps = 0
        #: When this window began: clock, seconds of the hook, number of steps.
        self._began: tuple[float, float, int] | None = None

    def interval(self, kind: str) -> int:
        """Number of steps between two captures of this kind; 0: never."""
        return self._intervals.get(kind, 1)

    @property
    def measured_share(self) -> float | None:
        """The smoothed share of the time, if it was measured."""
        return None if self._log_share is None else math.exp(self._log_share)

    def spend(self, kind: str, seconds: float) -> None:
        """The hook took so long for tensors of this kind."""
        if kind in self._spent:
            self._spent[kind] += seconds
            self._count[kind] += 1

    def step(self, hook_seconds: float) -> str | None:
        """A step begins; return the kind whose interval changed, or None.

        ``hook_seconds``: what the hook has taken on the training's thread, in all.
        """
        self._steps += 1
        now = self._clock()
        if self._steps <= self._warm_up + 1 or self._began is None:
            self._began = now, hook_seconds, self._steps
            self._spent = dict.fromkeys(self._ladder, 0.0)
            self._count = dict.fromkeys(self._ladder, 0)
            return None
        since, before, first = self._began
        wall = now - since
        # A window without a capture, or with one too many, would mislead.
        if 0 <= wall < _WINDOW or self._steps - first < max(self._intervals.values(), default=1):
            return None
        self._began = now, hook_seconds, self._steps
        if wall < 0:  # a clock that was set back
            return None
        cost = hook_seconds - before
        return self.window(cost, wall - cost)

    def window(self, hook_seconds: float, other_seconds: float) -> str | None:
        """A window has ended; return the kind whose interval changed, or None."""
        other = max(other_seconds, _LEAST)
        spent = self._take_spent(hook_seconds, other)
        self._total += hook_seconds
        measured = math.log(max(hook_seconds / other, _LEAST))
        first = self._log_share is None
        weight = 1.0 if first else _SMOOTHING
        self._log_share = measured if first else (1 - weight) * (self._log_share or 0.0) + weight * measured
        for kind, seconds in spent.items():
            self._costs[kind] += weight * (seconds / other - self._costs[kind])
        if self._fixed:
            return None
        adaptable = sum(self._costs.values())
        floor = max(math.exp(self._log_share) - adaptable, 0.0)
        limit = max(self.share - floor, floor)
        self._too_much = self._too_much + 1 if adaptable > _TOO_MUCH * limit else 0
        last = self._doubled[-1] if self._doubled else None
        undone = adaptable + (self._costs[last] if last is not None else 0.0)
        self._little = self._little + 1 if last is not None and undone < _LITTLE * limit else 0
        if self._too_much >= _WINDOWS_TOO_MUCH and self._total >= self._free_seconds:
            return self._change(self._worth_doubling(), 2.0)
        if self._little >= _WINDOWS_LITTLE and last is not None:
            self._doubled.pop()
            return self._change(last, 0.5, undo=True)
        return None

    def _take_spent(self, hook_seconds: float, other_seconds: float) -> dict[str, float]:
        """Return the seconds by kind in this window.

        What the hook took besides for tensors, such as calls of its callbacks, is divided among them by their number.
        """
        spent, self._spent = self._spent, dict.fromkeys(self._ladder, 0.0)
        count, self._count = self._count, dict.fromkeys(self._ladder, 0)
        measured = sum(spent.values())
        multiple = self._floor.divide(measured / other_seconds, hook_seconds / other_seconds)
        besides = (multiple - 1) * measured / max(sum(count.values()), 1)
        return {kind: seconds + min(besides * count[kind], _BESIDES * seconds) for kind, seconds in spent.items()}

    def _worth_doubling(self) -> str | None:
        """The first kind of the ladder that costs a notable part, or None."""
        costs = {kind: self._costs[kind] for kind in self._ladder if 0 < self._intervals[kind] < LARGEST_INTERVAL}
        total = sum(costs.values())
        return next((kind for kind, cost in costs.items() if cost > _LEAST and cost >= _WORTH * total), None)

    def _change(self, kind: str | None, factor: float, undo: bool = False) -> str | None:
        self._too_much = self._little = 0
        if kind is None:
            return None
        if not undo:
            self._doubled.append(kind)
        self._intervals[kind] = int(self._intervals[kind] * factor)
        # The next windows measure the new interval; until then, expect what it should cost.
        cost, share = self._costs[kind], math.exp(self._log_share or 0.0)
        self._costs[kind] = cost / factor
        self._log_share = math.log(max(share + cost / factor - cost, share / 2, _LEAST))
        return kind
