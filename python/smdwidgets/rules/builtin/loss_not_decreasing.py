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
    """Detect a loss that does not fall or does not fall enough.

    At most every `num_steps` steps, compares each loss with its value at the latest saved step that is at least
    `num_steps` earlier. Fires when any loss

    - fell by less than `diff_percent` percent,
    - stayed exactly the same,
    - rose by more than `increase_threshold_percent` percent (a smaller rise counts as noise),
    - is NaN or infinite.

    Percentages are relative to the magnitude of the earlier loss, so that negative losses work. If the earlier loss is
    zero, any rise fires. An earlier loss that is NaN or infinite is not compared. Losses are scalars; other selected
    tensors are ignored. Workers are averaged.

    `diff_percent` is the minimum fall, as SageMaker documents it. Its published tests of 2019 use it as a tolerance
    instead: with 20, a loss of 0.30 that was 0.30 before does not fire. The two contradict each other; here such a loss
    fires.

    If `mode` is None, judges EVAL steps if any losses were saved in EVAL so far, else TRAIN steps, else all steps. With
    a mode, steps are mode steps. The collection `losses` is selected unless `use_losses_collection` is False.

    With the default parameters, the rule fires on most healthy runs, because a noisy loss does not fall in every ten
    steps. `diagnose` compares trends with the noise of the loss.

    What to do: first check the learning rate, which can be too large or too small. Then check whether gradients reach
    the weights (WeightUpdateRatio), then the labels.
    """

    collections = {"losses": {"save_interval": "500"}}

    collection_names = collections_parameter()
    tensor_regex = regex_parameter()
    use_losses_collection = Flag(True, "Also select the collection `losses`.")
    num_steps = Integer(10, "Minimum distance between compared steps and between comparisons.", minimum=1)
    diff_percent = Real(0.1, "Minimum fall.", minimum=0.0, maximum=100.0, unit="%")
    increase_threshold_percent = Real(5.0, "Maximum rise.", minimum=0.0, maximum=100.0, unit="%")
    mode = Choice(None, "Mode whose steps are judged.", choices=("TRAIN", "EVAL", "GLOBAL"), documented="GLOBAL")

    def __init__(self, base_trial: Trial, *args: object, **given: Any) -> None:
        super().__init__(base_trial, *args, **given)
        self._modes = ModeOfLosses()
        #: Ascending steps of past comparisons by mode; the next comparison is `num_steps` later.
        self._compared: dict[ModeKeys, array[int]] = {}

    def check(self) -> None:
        if self.selector.everything:
            raise InsufficientInformationForRuleInvocation(
                self.rule_name, "needs parameter collection_names or tensor_regex, or use_losses_collection=True"
            )

    @property
    def selector(self) -> Selector:
        losses = ("losses",) if self.use_losses_collection and "losses" not in self.collection_names else ()
        return Selector(self.collection_names + losses, self.tensor_regex)

    def needs(self) -> list[Need]:
        return [loss_need(self.selector)]

    def judge(self, step: int) -> None:
        measurements = self.measurements
        self.required_table(loss_need(self.selector), step)
        mode = ModeKeys[self.mode] if self.mode else self._modes.at(measurements, self.selector, step)
        if mode != ModeKeys.GLOBAL and measurements.mode(step) != mode:
            raise NothingToJudge(
                f"this is a {measurements.mode(step).name} step; losses are judged at {mode.name} steps"
            )
        at = measurements.position(step, mode)
        compared = self._compared.setdefault(mode, array("q"))
        place = bisect_left(compared, at)
        due = (compared[place - 1] if place else at - self.num_steps) + self.num_steps
        if at < due:
            raise NothingToJudge(f"the next comparison is due at step {due}")
        now = losses_at(measurements, self.selector, step)
        earlier = self._earlier(set(now), step, at, mode)
        if not earlier:
            raise NothingToJudge(f"no loss was saved at least {self.num_steps} steps earlier")
        if at not in compared[place : place + 1]:
            compared.insert(place, at)
        for name, (before, old) in earlier.items():
            self._compare(name, step, before, old, now[name])

    def _earlier(self, names: set[str], step: int, at: int, mode: ModeKeys) -> dict[str, tuple[int, float]]:
        """Return, per loss, the latest step at least `num_steps` earlier and its value."""
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
            self.blame(name, step, percent, limit, f"rose by {number(percent)} %, {change}; limit {number(limit)} %")
        elif new < old and percent < self.diff_percent:
            limit = self.diff_percent
            self.blame(name, step, percent, limit, f"fell by {number(percent)} %, {change}; minimum {number(limit)} %")
