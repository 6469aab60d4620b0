"""Making rules from names, classes and parameters, and making them anew with other parameters."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from smdwidgets._text import did_you_mean, shown
from smdwidgets.exceptions import SMDebugTypeError
from smdwidgets.rules.declared import HasParameters, parameters_of
from smdwidgets.rules.parameters import RuleParameterError
from smdwidgets.rules.registry import find_rule
from smdwidgets.rules.rule import Rule

if TYPE_CHECKING:
    from smdwidgets.trials import Trial

__all__ = ["make_rule", "remade"]


def make_rule(rule: str | type[Rule] | Rule, trial: Trial, parameters: Mapping[str, object] | None = None) -> Rule:
    """A rule on a trial, from its name, its class, or itself (then parameters make it anew).

    >>> make_rule("AllZero", trial, {"collection_names": "weights"})        # doctest: +SKIP
    AllZero(collection_names=('weights',), tensor_regex=(), threshold=100.0)
    """
    given = dict(parameters or {})
    if isinstance(rule, Rule):
        return remade(rule, given) if given else rule
    made = find_rule(rule) if isinstance(rule, str) else rule
    if not (isinstance(made, type) and issubclass(made, Rule)):
        raise SMDebugTypeError(f"{shown(made)} is no rule: give a name, a Rule class, or a Rule.")
    if inspect.isabstract(made):
        raise SMDebugTypeError(f"{made.__name__} can't be run: it has no invoke_at_step(step).")
    if not issubclass(made, HasParameters):
        _check_arguments(made, given)
    return made(trial, **given)  # type: ignore[arg-type]


def remade(rule: Rule, changes: Mapping[str, object]) -> Rule:
    """The same rule without memory of what it has seen, some parameters changed. Its actions stay."""
    kind = type(rule)
    given: dict[str, Any] = {
        name: value for name in parameters_of(kind) if (value := getattr(rule, name, _NOT_KEPT)) is not _NOT_KEPT
    }
    given.update(changes)
    if not isinstance(rule, HasParameters):
        _check_arguments(kind, given)
    if rule.other_trials and "other_trials" in inspect.signature(kind).parameters:
        given.setdefault("other_trials", rule.other_trials)
    new = kind(rule.base_trial, **given)
    new.actions = rule.actions
    return new


_NOT_KEPT = object()


def _check_arguments(kind: type[Rule], given: Mapping[str, object]) -> None:
    arguments = inspect.signature(kind).parameters
    if any(argument.kind == argument.VAR_KEYWORD for argument in arguments.values()):
        return
    known = list(arguments)[1:]
    for name in given:
        if name not in known:
            there = f" It has: {', '.join(known)}." if known else " It takes none."
            raise RuleParameterError(
                f"{kind.__name__} has no parameter {shown(name)}.{did_you_mean(name, known)}{there}"
            )
