"""Rules that a hook evaluates on the statistics of each step, as they are made.

They run on the writer's thread, so they find a problem within a step, and cost the training no time. A rule that raises
is switched off.

>>> import numpy as np
>>> from smdwidgets.hooks.capture.captured import StepStatistics
>>> rule = Threshold("l2", above=100.0, tensors="^gradient/")
>>> rule
Threshold('l2', above=100.0, tensors='^gradient/')
>>> rule(7, StepColumns([StepStatistics(["gradient/w", "w"], {"l2": np.array([250.0, 900.0])})]))
"l2 of 'gradient/w' = 250, above 100"
"""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from smdwidgets._patterns import Patterns, compile_pattern
from smdwidgets._text import shown, visible
from smdwidgets.anomalies import Episodes
from smdwidgets.exceptions import SMDebugTypeError, SMDebugValueError
from smdwidgets.hooks.capture.captured import StepKey
from smdwidgets.hooks.incidents.step_columns import COLUMNS, StepColumns
from smdwidgets.hooks.incidents.triggers import Cause
from smdwidgets.incident import Trigger
from smdwidgets.modes import ModeKeys
from smdwidgets.stop import request_stop

__all__ = ["SourceRule", "SourceRules", "Threshold"]

logger = logging.getLogger("smdwidgets.hooks")

#: Names of actions, and what they do.
ACTIONS: Final = {
    "dump": "write the steps in memory",
    "stop": "stop the training at its next step",
    "warn": "log a warning",
}


class RuleAction(Protocol):
    """An action of a rule, such as those of `smdwidgets.rules`."""

    def run(self, rule: str, step: int, message: str, run: str | None) -> None:
        """Run the action."""


#: What a rule does when it fires: the name of an action, a function of (rule, step, message), or an action of
#: `smdwidgets.rules`.
ActionLike = str | Callable[[str, int, str], object] | RuleAction
#: A rule: returns a message if it fires at a step, else None.
SourceRule = Callable[[int, StepColumns], "str | None"]


class Threshold:
    """Fires when a statistic of a tensor is above or below a limit.

    Args:
        column: the statistic: ``count``, ``nan``, ``neg_inf``, ``pos_inf``, ``not_finite``, ``zeros``, ``min``,
            ``max``, ``abs_max``, ``mean``, ``std``, ``l1``, ``l2``, ``update`` (norm of the change since the last
            saved step), ``update_ratio`` (relative to the norm of the tensor), ``saturated`` or ``subnormal``
            (elements of a type of 8 or 4 bits at the ends of its range).
        above: the rule fires if the statistic is greater.
        below: the rule fires if the statistic is less.
        tensors: pattern of names, matched with ``re.search``; default: all tensors.
        steps: number of steps in a row at which the limit must be passed.
        actions: what to do: ``"dump"`` (write the steps in memory), ``"stop"`` (stop the training), ``"warn"``, a
            function of (rule, step, message), or an action of `smdwidgets.rules`.
        name: name of the rule in messages.

    A hook evaluates it: ``Hook(out_dir, rules=[Threshold("l2", above=100.0, tensors="^gradient/")])``.
    """

    def __init__(
        self,
        column: str,
        *,
        above: float | None = None,
        below: float | None = None,
        tensors: str = "",
        steps: int = 1,
        actions: ActionLike | Iterable[ActionLike] = ("dump",),
        name: str = "",
    ) -> None:
        if column not in COLUMNS:
            raise SMDebugValueError(f"invalid column {shown(column)}; choose from {', '.join(COLUMNS)}")
        if above is None and below is None:
            raise SMDebugValueError("a Threshold needs above= or below=")
        if steps < 1:
            raise SMDebugValueError(f"steps must be at least 1, got {steps}")
        self.column, self.above, self.below, self.steps = column, above, below, steps
        self.tensors = tensors
        try:
            compile_pattern(tensors)
        except re.error as error:
            raise SMDebugValueError(f"invalid pattern {shown(tensors)} of tensors: {error}") from None
        self._patterns = Patterns()
        self.actions = checked_actions(actions)
        self.name = name or repr(self)
        #: The tensor and value of the latest firing.
        self.trigger: Trigger | None = None
        self._selected: tuple[tuple[str, ...], NDArray[np.intp]] = ((), np.zeros(0, np.intp))
        #: Number of steps in a row at which each tensor was beyond the limit.
        self._in_a_row: dict[str, int] = {}

    def __call__(self, step: int, statistics: StepColumns) -> str | None:
        """Return a message if the rule fires at a step, else None."""
        names = statistics.names
        if names != self._selected[0]:
            matches = self._patterns.matching((self.tensors,), names)
            self._selected = names, np.flatnonzero([name in matches for name in names])
        at = self._selected[1]
        values = statistics[self.column][at]
        beyond = np.zeros(len(at), bool)
        for bound, compare in ((self.above, np.greater), (self.below, np.less)):
            if bound is not None:
                beyond |= compare(values, bound)
        if self.steps > 1:
            before, self._in_a_row = self._in_a_row, {}
            for each in np.flatnonzero(beyond).tolist():
                name = names[at[each]]
                self._in_a_row[name] = before.get(name, 0) + 1
                beyond[each] = self._in_a_row[name] >= self.steps
        if not beyond.any():
            return None
        first = int(np.flatnonzero(beyond)[0])
        value = float(values[first])
        name = names[at[first]]
        self.trigger = Trigger(name, self.column, value)
        limit = f"above {self.above:g}" if self.above is not None and value > self.above else f"below {self.below:g}"
        more = f" (and {int(beyond.sum()) - 1} more tensors)" if beyond.sum() > 1 else ""
        return f"{self.column} of {shown(name)} = {value:.6g}, {limit}{more}"

    def __repr__(self) -> str:
        given = [f"{name}={getattr(self, name)!r}" for name in ("above", "below") if getattr(self, name) is not None]
        given += [f"tensors={self.tensors!r}"] if self.tensors else []
        given += [f"steps={self.steps}"] if self.steps > 1 else []
        return f"Threshold({', '.join([repr(self.column), *given])})"


class SourceRules:
    """The rules of a hook.

    Args:
        rules: the rules, which are called with a step and its statistics.
        run: directory of the run.
        report: logs a failure once, given its kind and a message, and notes it in the run.
    """

    def __init__(self, rules: Iterable[SourceRule], run: str, report: Callable[[str, str], object]) -> None:
        self._rules = [checked_rule(rule) for rule in rules]
        self._run = run
        self._report = report
        self._episodes: defaultdict[tuple[int, ModeKeys], Episodes] = defaultdict(Episodes)

    def __len__(self) -> int:
        return len(self._rules)

    def judge(self, key: StepKey, statistics: StepColumns) -> list[Cause]:
        """Evaluate every rule, run the actions of those that fire.

        Return why steps are to be written.
        """
        causes: list[Cause] = []
        for rule in list(self._rules):
            name = _name(rule)
            try:
                message = rule(key[0], statistics)
            except Exception as error:
                self._rules.remove(rule)
                self._report(
                    f"rule {name}",
                    f"rule {name} raised {type(error).__name__}: {visible(error, 300)}; it is switched off",
                )
                continue
            if message and self._episodes[id(rule), key[1]].push(key[0]):
                causes += self._act(rule, name, key[0], str(message))
        return causes

    def _act(self, rule: SourceRule, name: str, step: int, message: str) -> list[Cause]:
        causes = []
        for action in getattr(rule, "actions", ("dump",)):
            if action == "dump":
                causes.append(Cause(f"{name}: {message}", getattr(rule, "trigger", None)))
                continue
            try:
                self._run_action(action, name, step, message)
            except Exception as error:
                self._report(
                    f"action of {name}",
                    f"an action of rule {name} raised {type(error).__name__}: {visible(error, 300)}",
                )
        return causes

    def _run_action(self, action: ActionLike, name: str, step: int, message: str) -> None:
        if action == "stop":
            request_stop(self._run, reason=message, by=name, step=step)
        elif action == "warn":
            logger.warning("rule %s fired at step %d: %s", visible(name, 200), step, visible(message, 2000))
        elif callable(run := getattr(action, "run", None)):
            run(name, step, message, self._run)
        elif callable(action):
            action(name, step, message)


def checked_actions(actions: Any) -> tuple[ActionLike, ...]:
    """Return actions as a tuple, or raise if one of them is no action."""
    single = isinstance(actions, str) or callable(actions) or hasattr(actions, "run")
    found = (actions,) if single else tuple(actions)
    for action in found:
        if isinstance(action, str) and action not in ACTIONS:
            raise SMDebugValueError(f"invalid action {shown(action)}; choose from {', '.join(ACTIONS)}")
        if not (isinstance(action, str) or callable(action) or hasattr(action, "run")):
            raise SMDebugTypeError(f"an action is a name, a function or an Action, not {type(action).__name__}")
    return found


def checked_rule(rule: object) -> SourceRule:
    """Return a rule, or raise if it cannot be called."""
    if isinstance(rule, type) or not callable(rule):
        raise SMDebugTypeError(
            f"a rule of a hook is a Threshold or a function of (step, statistics), not {shown(rule)}; evaluate other rules on a "
            "trial"
        )
    return rule


def _name(rule: SourceRule) -> str:
    return visible(getattr(rule, "name", None) or getattr(rule, "__name__", None) or type(rule).__name__, 200)
