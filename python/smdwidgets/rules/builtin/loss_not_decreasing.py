"""LossNotDecreasing."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from smdwidgets.exceptions import InsufficientInformationForRuleInvocation
from smdwidgets.modes import ModeKeys
from smdwidgets.rules.builtin.base import collections_parameter, regex_parameter
from smdwidgets.rules.builtin.sequence import Rows, SequenceRule
from smdwidgets.rules.findings import number, step_text
from smdwidgets.rules.parameters import Choice, Flag, Integer, Real
from smdwidgets.rules.scalar_columns import ScalarColumns
from smdwidgets.rules.selector import Selector
from smdwidgets.rules.verdicts import Verdicts


class _History(NamedTuple):
    """Values of a loss that later ones may be compared with."""

    steps: NDArray[np.int64]
    positions: NDArray[np.int64]
    values: NDArray[np.float64]

    def then(self, *columns: NDArray[np.generic]) -> _History:
        return _History(*(np.append(mine, its) for mine, its in zip(self, columns, strict=True)))

    def before(self, positions: NDArray[np.int64]) -> NDArray[np.intp]:
        """Return the index of the latest value up to each position; -1: none."""
        return np.searchsorted(self.positions, positions, "right") - 1

    def since(self, position: int) -> _History:
        """Return the values that are needed from a position on."""
        first = max(0, int(self.before(np.array([position]))[0]))
        return _History(self.steps[first:].copy(), self.positions[first:].copy(), self.values[first:].copy())


_NO_HISTORY = _History(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))


class LossNotDecreasing(SequenceRule):
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

    def check(self) -> None:
        if self.selector.everything:
            raise InsufficientInformationForRuleInvocation(
                self.rule_name, "needs parameter collection_names or tensor_regex, or use_losses_collection=True"
            )

    @property
    def selector(self) -> Selector:
        losses = ("losses",) if self.use_losses_collection and "losses" not in self.collection_names else ()
        return Selector(self.collection_names + losses, self.tensor_regex)

    def begin(self) -> None:
        #: The mode that is judged; with losses of more modes, TRAIN replaces GLOBAL, and EVAL both.
        self._mode = ModeKeys[self.mode] if self.mode else ModeKeys.GLOBAL
        self._histories: defaultdict[tuple[str, ModeKeys], _History] = defaultdict(lambda: _NO_HISTORY)
        #: Position of the last comparison by mode; the next one is `num_steps` later.
        self._compared: dict[ModeKeys, int] = {}

    def judge_columns(self, columns: ScalarColumns, judged: Rows) -> Verdicts:
        mode_of = self._modes_at(columns)
        candidates = columns.saved.any(0) & ((mode_of == ModeKeys.GLOBAL.value) | (mode_of == columns.modes))
        #: Step and value with which the loss of a name is compared at each row; -1: none.
        earlier = np.full(columns.values.shape, -1, np.int64)
        earlier_values = np.full(columns.values.shape, np.nan)
        due_at = np.zeros(len(columns), np.int64)
        is_compared = np.zeros(len(columns), np.bool_)
        for mode in map(ModeKeys, np.unique(mode_of).tolist()):
            positions = columns.steps if mode == ModeKeys.GLOBAL else columns.mode_steps
            of_mode = candidates & judged & (mode_of == mode.value)
            for name, saved in enumerate(columns.saved):
                rows = np.flatnonzero(saved if mode == ModeKeys.GLOBAL else saved & (columns.modes == mode.value))
                history = self._histories[columns.names[name], mode]
                history = history.then(columns.steps[rows], positions[rows], columns.values[name, rows])
                here = np.flatnonzero(of_mode & saved)
                before = history.before(positions[here] - self.num_steps)
                here, before = here[before >= 0], before[before >= 0]
                earlier[name, here], earlier_values[name, here] = history.steps[before], history.values[before]
                if len(rows):
                    history = history.since(int(positions[rows[-1]]) - self.num_steps)
                self._histories[columns.names[name], mode] = history
            comparable = np.flatnonzero(of_mode & (earlier >= 0).any(0))
            last = [self._compared[mode]] if mode in self._compared else []
            compared = self._due(mode, comparable, positions[comparable].tolist())
            is_compared[compared] = True
            last_compared = np.array([*last, *positions[compared].tolist()], np.int64)
            before = np.searchsorted(last_compared, positions, "right") - 1
            due = np.append(last_compared, -self.num_steps)[before] + self.num_steps
            due_at = np.where(of_mode & (positions < due), due, due_at)
        at_fault = is_compared & (earlier >= 0) & self._at_fault(earlier_values, columns.values)

        def blame(row: int) -> None:
            for name in np.flatnonzero(earlier[:, row] >= 0).tolist():
                old, new = float(earlier_values[name, row]), float(columns.values[name, row])
                self._compare(columns.names[name], int(columns.steps[row]), int(earlier[name, row]), old, new)

        def reason(row: int) -> str:
            if not candidates[row]:
                judged_mode = ModeKeys(int(mode_of[row])).name
                return f"this is a {columns.mode(row).name} step; losses are judged at {judged_mode} steps"
            if due_at[row]:
                return f"the next comparison is due at step {due_at[row]}"
            return f"no loss was saved at least {self.num_steps} steps earlier"

        return self.verdicts(columns, at_fault.sum(0), is_compared, blame, reason)

    def _due(self, mode: ModeKeys, rows: NDArray[np.intp], positions: Sequence[int]) -> list[int]:
        """Return the rows to compare of those that can be."""
        compared = []
        place = 0
        while place < len(rows):
            if mode in self._compared:
                place = bisect_left(positions, self._compared[mode] + self.num_steps, place)
                if place == len(rows):
                    break
            self._compared[mode] = positions[place]
            compared.append(int(rows[place]))
            place += 1
        return compared

    def _at_fault(self, old: NDArray[np.float64], new: NDArray[np.float64]) -> Rows:
        """Return where `_compare` reports a finding."""
        with np.errstate(all="ignore"):
            percent = np.where(old == 0, math.inf, 100.0 * np.abs(new - old) / np.abs(old))
            changed = (new > old) & (percent > self.increase_threshold_percent)
            changed |= (new < old) & (percent < self.diff_percent)
            at_fault: Rows = ~np.isfinite(new) | (np.isfinite(old) & (changed | (new == old)))
        return at_fault

    def _modes_at(self, columns: ScalarColumns) -> NDArray[np.uint8]:
        """Return the mode that is judged at each step."""
        modes = np.full(len(columns), self._mode.value, np.uint8)
        if not self.mode:
            for mode in (ModeKeys.TRAIN, ModeKeys.EVAL):
                rows = np.flatnonzero(columns.saved.any(0) & (columns.modes == mode.value))
                if len(rows) and self._mode != ModeKeys.EVAL:
                    modes[rows[0] :] = mode.value
                    self._mode = mode
        return modes

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
