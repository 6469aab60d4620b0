"""LossNotDecreasing."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from smdwidgets.exceptions import InsufficientInformationForRuleInvocation
from smdwidgets.modes import ModeKeys
from smdwidgets.rules.builtin.base import (
    BuiltinRule,
    NothingToJudge,
    collections_parameter,
    no_tensor_message,
    regex_parameter,
)
from smdwidgets.rules.findings import Finding, number, step_text
from smdwidgets.rules.loss_columns import LossColumns
from smdwidgets.rules.losses import ModeOfLosses, loss_need, losses_at
from smdwidgets.rules.parameters import Choice, Flag, Integer, Real
from smdwidgets.rules.selector import Selector
from smdwidgets.rules.tables import Need
from smdwidgets.rules.verdicts import Outcome, Verdicts

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
            raise NothingToJudge(self._other_mode(measurements.mode(step), mode))
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
        for name in now:
            if name in earlier:
                self._compare(name, step, *earlier[name], now[name])

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

    @property
    def columns_selector(self) -> Selector:
        return self.selector

    def judge_columns(self, columns: LossColumns, first: int, end: int) -> Verdicts | None:
        mode_of = self._modes_at(columns)
        candidates = columns.saved.any(0) & ((mode_of == ModeKeys.GLOBAL.value) | (mode_of == columns.modes))
        #: The row with which the loss of a name is compared at each row; -1: none.
        earlier = np.full((len(columns.names), end), -1)
        compared_rows: list[int] = []
        for number_of_mode in np.unique(mode_of[first:end]).tolist():
            mode = ModeKeys(number_of_mode)
            positions = columns.steps if mode == ModeKeys.GLOBAL else columns.mode_steps
            judged = np.flatnonzero(candidates[first:end] & (mode_of[first:end] == number_of_mode)) + first
            same = np.ones(len(columns.steps), np.bool_) if mode == ModeKeys.GLOBAL else columns.modes == number_of_mode
            for name, saved in enumerate(columns.saved):
                rows = np.flatnonzero(saved & same)
                here = judged[saved[judged]]
                before = np.searchsorted(positions[rows], positions[here] - self.num_steps, "right") - 1
                earlier[name, here] = np.where(before < 0, -1, rows[before]) if len(rows) else -1
            judged = judged[(earlier[:, judged] >= 0).any(0)]
            compared_rows += self._due(mode, judged, positions[judged].tolist())
        at = np.array(compared_rows, np.intp)
        numbers = np.arange(len(columns.names))[:, None]
        fired = (earlier[:, at] >= 0) & self._found(columns.values[numbers, earlier[:, at]], columns.values[:, at])
        outcomes = np.full(end, Outcome.SKIPPED, np.uint8)
        counts = np.zeros(end, np.int64)
        counts[at] = fired.sum(0)
        outcomes[at] = np.where(counts[at], Outcome.FIRED, Outcome.PASSED)

        def findings(row: int) -> list[Finding]:
            row += first
            self.findings = []
            if counts[row]:
                for name in np.flatnonzero(earlier[:, row] >= 0).tolist():
                    before = int(earlier[name, row])
                    old, new = float(columns.values[name, before]), float(columns.values[name, row])
                    self._compare(columns.names[name], int(columns.steps[row]), int(columns.steps[before]), old, new)
            return self.findings

        def reason(row: int) -> str:
            row += first
            if not columns.saved[:, row].any():
                return no_tensor_message(self.selector)
            mode = ModeKeys(int(mode_of[row]))
            if not candidates[row]:
                return self._other_mode(columns.mode(row), mode)
            compared = self._compared.get(mode, array("q"))
            position = int((columns.steps if mode == ModeKeys.GLOBAL else columns.mode_steps)[row])
            place = bisect_left(compared, position)
            if place and position < compared[place - 1] + self.num_steps:
                return f"the next comparison is due at step {compared[place - 1] + self.num_steps}"
            return f"no loss was saved at least {self.num_steps} steps earlier"

        return Verdicts(outcomes[first:end], counts[first:end], reason, findings)

    def _due(self, mode: ModeKeys, rows: NDArray[np.intp], positions: Sequence[int]) -> list[int]:
        """Return the rows to compare of those that can be, and note their positions."""
        compared = self._compared.setdefault(mode, array("q"))
        found = []
        at = 0
        while at < len(rows):
            position = positions[at]
            place = bisect_left(compared, position)
            due = compared[place - 1] + self.num_steps if place else position
            if position < due:
                at = bisect_left(positions, due, at)
                continue
            if position not in compared[place : place + 1]:
                compared.insert(place, position)
            found.append(int(rows[at]))
            at += 1
        return found

    def _found(self, old: NDArray[np.float64], new: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return where `_compare` has a finding."""
        with np.errstate(all="ignore"):
            percent = np.where(old == 0, math.inf, 100.0 * np.abs(new - old) / np.abs(old))
            changed = (new > old) & (percent > self.increase_threshold_percent)
            changed |= (new < old) & (percent < self.diff_percent)
            found: NDArray[np.bool_] = ~np.isfinite(new) | (np.isfinite(old) & (changed | (new == old)))
        return found

    def _modes_at(self, columns: LossColumns) -> NDArray[np.uint8]:
        """Return the mode that is judged at each step, as `ModeOfLosses`."""
        if self.mode:
            return np.full(len(columns.steps), ModeKeys[self.mode].value, np.uint8)
        modes = np.full(len(columns.steps), ModeKeys.GLOBAL.value, np.uint8)
        some = columns.saved.any(0)
        first: dict[ModeKeys, int] = {}
        for mode in (ModeKeys.TRAIN, ModeKeys.EVAL):
            rows = np.flatnonzero(some & (columns.modes == mode.value))
            if len(rows):
                first[mode] = int(columns.steps[rows[0]])
                modes[rows[0] :] = mode.value
        self._modes.continue_from(int(columns.steps[-1]), first)
        return modes

    @staticmethod
    def _other_mode(mode: ModeKeys, judged: ModeKeys) -> str:
        return f"this is a {mode.name} step; losses are judged at {judged.name} steps"

    def _compare(self, name: str, step: int, before: int, old: float, new: float) -> None:
        if not math.isfinite(new):
            self.blame(
                name, step, new, None, f"is {number(new)} ({number(old)} at {step_text(self.base_trial, before)})"
            )
            return
        if not math.isfinite(old):
            return
        if new == old:
            change = self._change(before, old, new)
            self.blame(name, step, 0.0, self.diff_percent, f"stayed the same, {change}")
            return
        percent = 100.0 * abs(new - old) / abs(old) if old else math.inf
        if new > old and percent > self.increase_threshold_percent:
            limit, change = self.increase_threshold_percent, self._change(before, old, new)
            self.blame(name, step, percent, limit, f"rose by {number(percent)} %, {change}; limit {number(limit)} %")
        elif new < old and percent < self.diff_percent:
            limit, change = self.diff_percent, self._change(before, old, new)
            self.blame(name, step, percent, limit, f"fell by {number(percent)} %, {change}; minimum {number(limit)} %")

    def _change(self, before: int, old: float, new: float) -> str:
        return f"from {number(old)} at {step_text(self.base_trial, before)} to {number(new)}"
