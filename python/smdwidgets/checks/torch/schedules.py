"""Checks of schedules.

They step too often or too rarely, or follow a metric in the wrong direction.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.weak import WeakIdKeyDictionary

from smdwidgets.checks.torch.context import Context
from smdwidgets.finding import Level

__all__ = ["Schedules"]

#: Steps of a schedule within one epoch after which it is judged.
_STEPS = 8
#: The learning rate after one epoch, as a share of the first one: small, and certainly too small.
_SMALL, _NOTHING = 0.05, 1e-6
#: A step schedule falls at least this often in one epoch, and an exponential one is at least this steep.
_FALLS, _STEEP = 4, 0.985
#: Updates between which a schedule has stepped several times.
_OFTEN = 3
#: Updates between two steps of a schedule that steps rarely, and its fewest steps; schedules that are followed.
_RARELY, _RARE_STEPS, _MOST_SCHEDULES = 8, 3, 256
#: A warm-up that has not reached this share of the learning rate has not ended.
_WARM = 0.5
#: Learning rates that are certainly no factors, how exactly a rate is a square, and steps without a larger one.
_FACTOR, _EQUAL, _MANY_STEPS = 0.3, 1e-6, 256
#: Values of a metric that are looked at, the largest number of samples of which it may be a share, how exactly, and its
#: rise.
_VALUES, _MOST_SAMPLES, _EXACT, _RISE = 6, 20_000, 2e-3, 0.03
#: Ratio up to which a metric is about as large as the loss of the training.
_LIKE = 3.0


@dataclass
class _Steps:
    """The steps of a schedule in the present epoch."""

    loader: int = 0
    count: int = 0
    batches: int = 0
    updates: int = -1


@dataclass
class _Between:
    """The steps of a schedule since the last update of its optimizer."""

    updates: int = -1
    count: int = 0
    often: int = 0
    of_step: int = 0


@dataclass
class _Course:
    """The steps of a schedule in the whole training.

    The schedule may be deleted before the training ends.

    Attributes:
        length: the number of steps that it was planned with, if it is known.
        most: the learning rate without the schedule.
        updates: updates before its last step.
        begun: updates before its first step.
        rate: learning rate before the last step.
        rises: whether the learning rate has risen at each step.
        squares: number of steps with the square of the first learning rate, None once a step had a larger one.
    """

    schedule: weakref.ref[Any]
    name: str
    length: int | None
    most: float
    count: int = 0
    updates: int = 0
    rate: float = 0.0
    rises: bool = True
    squares: int | None = 0
    begun: int = 0


@dataclass
class _Followed:
    """The metric that a schedule follows, and the first learning rate."""

    rate: float
    values: list[float] = field(default_factory=list)


class Schedules:
    """Foresees what a schedule makes of the learning rate within one epoch.

    Args:
        context: what the mechanisms share.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._known: WeakIdKeyDictionary = WeakIdKeyDictionary()
        self._between: WeakIdKeyDictionary = WeakIdKeyDictionary()
        self._followed: WeakIdKeyDictionary = WeakIdKeyDictionary()
        self._courses: dict[int, _Course] = {}

    def steps(self, schedule: Any, updates: int, metric: Any) -> None:
        """A schedule is about to step.

        Args:
            schedule: the schedule.
            updates: number of updates of its optimizer.
            metric: the metric that it was given, if any.
        """
        if metric is not None and isinstance(getattr(schedule, "mode", None), str):
            self._follows(schedule, metric)
        elif self._is_often(schedule, updates):
            return
        else:
            self._count(schedule, updates)
        context = self._context
        steps: _Steps = self._known.setdefault(schedule, _Steps())
        if not context.loader or context.batches is None:
            return
        if steps.loader != context.loader or context.updates == steps.updates:  # another epoch, or no update between
            steps.loader, steps.count, steps.batches = context.loader, 0, context.loader_batches
        steps.count += 1
        steps.updates = context.updates
        if steps.count < _STEPS:
            return
        since = max(1, context.loader_batches - steps.batches)
        number = int(context.batches * (steps.count - 1) / since)  # steps of the schedule in an epoch
        share = _after(schedule, number)
        if share is not None and share <= _SMALL:
            name = type(schedule).__name__
            level: Level | None = "warning" if share > _NOTHING else None
            facts = {"what": f"{name} steps {number} times in an epoch, which leaves {share:.0e} of the learning rate"}
            context.log.say("schedule_per_batch", context.step, facts, [name], level=level)

    def _is_often(self, schedule: Any, updates: int) -> bool:
        """Whether a schedule steps several times between two updates.

        It may step at each part of a batch whose gradients are added up.
        """
        one: _Between = self._between.setdefault(schedule, _Between())
        if updates != one.updates:
            # Steps before the first update bring a schedule to where an earlier training ended.
            one.often += one.updates > 0 and one.count > 1
            one.of_step = one.count if one.count > 1 else one.of_step
            one.updates, one.count = updates, 0
        one.count += 1
        if one.often < _OFTEN or one.often < updates // 2:
            return False
        name = type(schedule).__name__
        facts = {"what": f"{name} steps {one.of_step} times between two updates"}
        self._context.log.say("schedule_per_batch", self._context.step, facts, [name], level="warning")
        return True

    def _count(self, schedule: Any, updates: int) -> None:
        """Count a step of a schedule in the whole training."""
        course = self._courses.get(id(schedule))
        if course is None or course.schedule() is not schedule:
            if course is not None:
                self._judge([course])
            elif len(self._courses) >= _MOST_SCHEDULES:
                return
            most = max(float(group.get("initial_lr", group["lr"])) for group in schedule.optimizer.param_groups)
            course = _Course(weakref.ref(schedule), type(schedule).__name__, _length(schedule), most, begun=updates)
            self._courses[id(schedule)] = course
        rate = max(float(group["lr"]) for group in schedule.optimizer.param_groups)
        course.rises = course.rises and (not course.count or rate > course.rate)
        course.rate, course.count, course.updates = rate, course.count + 1, updates
        if course.squares is not None and hasattr(schedule, "lr_lambdas"):
            square = course.most**2
            is_square = math.isclose(rate, square, rel_tol=_EQUAL)
            course.squares = None if rate > square and not is_square else course.squares + is_square
            self._squared(course, _MANY_STEPS)

    def close(self) -> None:
        """The training has ended: judge what was planned in updates and stepped in epochs."""
        courses, self._courses = self._courses, {}
        self._judge(courses.values())

    def _judge(self, courses: Iterable[_Course]) -> None:
        for one in courses:
            self._squared(one, _STEPS)
            if one.count < _RARE_STEPS or one.updates < _RARELY * one.count:
                continue
            every = one.updates / one.count
            what = f"{one.name} steps {one.count} times in {one.updates:,} updates"
            if one.length is not None and abs(one.length - one.updates) <= max(every, 0.02 * one.length):
                facts = {"what": f"{what}, and was planned with {one.length:,} steps"}
                self._context.log.say("schedule_per_epoch", self._context.step, facts, [one.name])
            # One that begins later, such as that of averaged weights, is no warm-up.
            elif one.rises and one.count > _RARE_STEPS and one.rate < _WARM * one.most and one.begun <= 2 * every:
                reached = f"its warm-up has reached {one.rate:.2g} of {one.most:.2g} when the training ends"
                facts = {"what": f"{what}: {reached}"}
                self._context.log.say("schedule_per_epoch", self._context.step, facts, [one.name], level="warning")

    def _squared(self, course: _Course, least: int) -> None:
        """Look whether the factors of a schedule are learning rates."""
        if course.squares and course.count >= least and course.most < _FACTOR:
            facts = {"schedule": course.name, "rate": course.most, "square": course.most**2}
            self._context.log.say("rate_squared", self._context.step, facts, [course.name])

    def _follows(self, schedule: Any, metric: Any) -> None:
        """Look whether a schedule minimizes an accuracy: a share of samples, which rises."""
        optimizer = schedule.optimizer
        rate = float(optimizer.param_groups[0]["lr"])
        one: _Followed = self._followed.setdefault(schedule, _Followed(rate))
        is_number = isinstance(metric, int | float | np.number)
        if not is_number and not (getattr(metric, "numel", int)() == 1 and metric.device.type == "cpu"):
            return
        one.values.append(float(metric))
        if len(one.values) < _VALUES or len(one.values) > 1000 or rate >= one.rate:
            return
        values = np.array(one.values)
        if schedule.mode != "min":
            self._maximizes(schedule, values)
            return
        values = values / 100 if values.max() > 1 else values
        if values[-1] > values[0] + _RISE and values.min() >= 0 and values.max() <= 1 and _are_shares(values):
            name = type(schedule).__name__
            facts = {
                "what": f"{name} minimizes a share of samples, which rises from {values[0]:.3g} to {values[-1]:.3g}",
                "metric": name,
            }
            self._context.log.say("metric_direction", self._context.step, facts, [name])

    def _maximizes(self, schedule: Any, values: NDArray[np.float64]) -> None:
        """Look whether a schedule maximizes a loss, which falls.

        It is about as large as that of the training.
        """
        falls = values[1:] < values[:-1]
        is_loss = values.min() > 0 and not _are_shares(values) and not _are_shares(values / 100)
        if is_loss and falls[: _VALUES - 1].all() and values[-1] / _LIKE < self._context.loss < _LIKE * values[-1]:
            name = type(schedule).__name__
            what = f"{name} maximizes a loss, which falls from {values[0]:.3g} to {values[-1]:.3g}"
            self._context.log.say("metric_direction", self._context.step, {"what": what, "metric": name}, [name])


def _are_shares(values: Any) -> bool:
    """Whether numbers are shares of one number of samples, which losses are not."""
    different = np.unique(values)[:16]
    if len(different) < _VALUES - 1:
        return False
    counts = np.outer(np.arange(10, _MOST_SAMPLES), different)
    return bool((np.abs(counts - np.round(counts)) < _EXACT).all(axis=1).any())


def _length(schedule: Any) -> int | None:
    """Return the number of steps that a schedule was planned with, or None if unknown."""
    for name in ("total_steps", "T_max", "total_iters"):
        if isinstance(length := getattr(schedule, name, None), int) and length > 0:
            return length
    return None


def _after(schedule: Any, number: int) -> float | None:
    """Return the factor of the rate after some steps, or None if unknown."""
    name, gamma = type(schedule).__name__, getattr(schedule, "gamma", None)
    if not isinstance(gamma, float) or not 0 < gamma < 1:
        return None
    if name == "ExponentialLR" and gamma <= _STEEP:
        return float(gamma**number)
    if name == "StepLR" and isinstance(size := getattr(schedule, "step_size", None), int) and size > 0:
        falls = number // size
        return float(gamma**falls) if falls >= _FALLS else None
    milestones = getattr(schedule, "milestones", None)
    if name == "MultiStepLR" and milestones and max(milestones) <= number / 2:
        return float(gamma ** sum(milestones.values()))
    return None
