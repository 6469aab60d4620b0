"""LossNotDecreasing."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from typing import TYPE_CHECKING, Any

from smdwidgets.exceptions import InsufficientInformationForRuleInvocation
from smdwidgets.modes import ModeKeys
from smdwidgets.rules.builtin.base import BuiltinRule, NothingToJudge, collections_parameter, regex_parameter
from smdwidgets.rules.findings import number
from smdwidgets.rules.losses import ModeOfLosses, loss_need, losses_at
from smdwidgets.rules.parameters import Choice, Flag, Integer, Real
from smdwidgets.rules.selector import Selector
from smdwidgets.rules.tables import Need

if TYPE_CHECKING:
    from smdwidgets.trials import Trial


class LossNotDecreasing(BuiltinRule):
    """The loss does not fall, or not enough.

    At most every `num_steps` the loss is compared with that of the newest saved step at least `num_steps` earlier. Any one
    loss tensor is enough to fire:

    - it fell, by less than `diff_percent` percent,
    - it stayed exactly the same,
    - it rose, by more than `increase_threshold_percent` percent (a smaller rise counts as noise),
    - it is NaN or infinite.

    Percentages are of the earlier loss's magnitude, so that negative losses work; from an earlier loss of zero any rise fires. An
    earlier loss that was NaN or infinite is not compared with. Losses are single numbers; other tensors that the selectors
    find are left alone; workers are averaged.

    `diff_percent` is the fall that is asked for, as SageMaker documents it. Its published tests of 2019 use it as a tolerance instead (with
    20, a loss of 0.30 that was 0.30 before does not fire); the two can't both hold, and here such a loss fires.

    `mode` None judges the steps of EVAL if losses were saved in some so far, else those of TRAIN, else all. In a mode, steps
    are that mode's own count. Collection `losses` is looked at unless `use_losses_collection` is False.

    What to do: the learning rate first (both ways), then whether gradients reach the weights (WeightUpdateRatio), then the labels.
    """

    collections = {"losses": {"save_interval": "500"}}

    collection_names = collections_parameter()
    tensor_regex = regex_parameter()
    use_losses_collection = Flag(True, "Look at collection `losses` too.")
    num_steps = Integer(10, "Smallest distance between the steps compared, and between comparisons.", minimum=1)
    diff_percent = Real(0.1, "Smallest fall that is enough.", minimum=0.0, maximum=100.0, unit="%")
    increase_threshold_percent = Real(5.0, "Largest rise that is tolerated.", minimum=0.0, maximum=100.0, unit="%")
    mode = Choice(None, "The mode whose steps are judged.", choices=("TRAIN", "EVAL", "GLOBAL"), documented="GLOBAL")

    def __init__(self, base_trial: Trial, *args: object, **given: Any) -> None:
        super().__init__(base_trial, *args, **given)
        self._modes = ModeOfLosses()
        #: Steps at which something was compared, by mode, ascending: the next comparison is `num_steps` later.
        self._compared: dict[ModeKeys, array[int]] = {}

    def check(self) -> None:
        if self.selector.everything:
            raise InsufficientInformationForRuleInvocation(
                self.rule_name, "give collection_names= or tensor_regex=, or leave use_losses_collection True."
            )

    @property
    def selector(self) -> Selector:
        losses = ("losses",) if self.use_losses_collection and "losses" not in self.collection_names else ()
        return Selector(self.collection_names + losses, self.tensor_regex)

    def needs(self) -> list[Need]:
        return [loss_need(self.selector)]

    def judge(self, step: int) -> None:
        measurements = self.measurements
        self.look(loss_need(self.selector), step)
        mode = ModeKeys[self.mode] if self.mode else self._modes.at(measurements, self.selector, step)
        if mode != ModeKeys.GLOBAL and measurements.mode(step) != mode:
            raise NothingToJudge(f"a step of {measurements.mode(step).name}; losses of {mode.name} are judged")
        at = measurements.position(step, mode)
        compared = self._compared.setdefault(mode, array("q"))
        place = bisect_left(compared, at)
        due = (compared[place - 1] if place else at - self.num_steps) + self.num_steps
        if at < due:
            raise NothingToJudge(f"the next comparison is due at step {due}")
        now = losses_at(measurements, self.selector, step)
        earlier = self._earlier(set(now), step, at, mode)
        if not earlier:
            raise NothingToJudge(f"no loss was saved {self.num_steps} steps earlier or more")
        if at not in compared[place : place + 1]:
            compared.insert(place, at)
        for name, (before, old) in earlier.items():
            self._compare(name, step, before, old, now[name])

    def _earlier(self, names: set[str], step: int, at: int, mode: ModeKeys) -> dict[str, tuple[int, float]]:
        """For each loss the newest step at least `num_steps` earlier, and the loss there."""
        found: dict[str, tuple[int, float]] = {}
        measurements = self.measurements
        for before in measurements.earlier_steps(step, None if mode == ModeKeys.GLOBAL else mode):
            if measurements.position(before, mode) > at - self.num_steps:
                continue
            if not names.intersection(measurements.names(self.selector, before)):
                continue
            losses = losses_at(measurements, self.selector, before)
            found.update((name, (before, losses[name])) for name in names & losses.keys())
            names = names - losses.keys()
            if not names:
                break
        return found

    def _compare(self, name: str, step: int, before: int, old: float, new: float) -> None:
        if not math.isfinite(new):
            self.blame(name, step, new, None, f"is {number(new)} ({number(old)} at step {before})")
            return
        if not math.isfinite(old):
            return
        change = f"from {number(old)} at step {before} to {number(new)}"
        if new == old:
            self.blame(name, step, 0.0, self.diff_percent, f"stayed the same, {change}")
            return
        percent = 100.0 * abs(new - old) / abs(old) if old else math.inf
        if new > old and percent > self.increase_threshold_percent:
            limit = self.increase_threshold_percent
            self.blame(
                name, step, percent, limit, f"rose by {number(percent)} %, {change}; {number(limit)} % is tolerated"
            )
        elif new < old and percent < self.diff_percent:
            limit = self.diff_percent
            self.blame(
                name, step, percent, limit, f"fell by {number(percent)} %, {change}; {number(limit)} % is asked for"
            )
