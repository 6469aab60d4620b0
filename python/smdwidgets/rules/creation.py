"""Create rules from names or classes, and recreate them with changed parameters."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from smdwidgets._text import did_you_mean, shown
from smdwidgets.exceptions import InsufficientInformationForRuleInvocation, SMDebugTypeError
from smdwidgets.rules.builtin.base import BuiltinRule
from smdwidgets.rules.declared import HasParameters, parameters_of
from smdwidgets.rules.parameters import RuleParameterError
from smdwidgets.rules.registry import find_rule
from smdwidgets.rules.rule import Rule

if TYPE_CHECKING:
    from smdwidgets.trials import Trial

__all__ = ["make_rule", "recreate_rule"]


def make_rule(
    rule: str | type[Rule] | Rule,
    trial: Trial,
    parameters: Mapping[str, object] | None = None,
    *,
    may_be_incomplete: bool = False,
) -> Rule:
    """Create a rule on a trial from a name or a class.

    A rule object is returned unchanged without parameters, and recreated with them. With ``may_be_incomplete``, a
    built-in rule that lacks a required parameter is created; its attribute ``incomplete`` says what it needs.

    >>> make_rule("AllZero", trial, {"collection_names": "weights"})        # doctest: +SKIP
    AllZero(collection_names=('weights',), tensor_regex=(), threshold=100.0)
    """
    given = dict(parameters or {})
    if isinstance(rule, Rule):
        return recreate_rule(rule, given) if given else rule
    made = find_rule(rule) if isinstance(rule, str) else rule
    if not (isinstance(made, type) and issubclass(made, Rule)):
        raise SMDebugTypeError(f"invalid rule {shown(made)}; pass the name of a rule, a Rule class or a Rule object")
    if inspect.isabstract(made):
        raise SMDebugTypeError(f"cannot create rule {made.__name__}: it does not implement invoke_at_step(step)")
    if not issubclass(made, HasParameters):
        _check_arguments(made, given)
    return _create(made, trial, given, may_be_incomplete)


def recreate_rule(rule: Rule, changes: Mapping[str, object]) -> Rule:
    """Return a fresh copy of a rule with changed parameters and the same actions.

    A copy of an incomplete rule may be incomplete, too.
    """
    kind = type(rule)
    given: dict[str, Any] = {
        name: value for name in parameters_of(kind) if (value := getattr(rule, name, _MISSING)) is not _MISSING
    }
    given.update(changes)
    if not isinstance(rule, HasParameters):
        _check_arguments(kind, given)
    if rule.other_trials and "other_trials" in inspect.signature(kind).parameters:
        given.setdefault("other_trials", rule.other_trials)
    new = _create(kind, rule.base_trial, given, bool(rule.incomplete))
    new.actions = rule.actions
    return new


def _create(kind: type[Rule], trial: Trial, given: Mapping[str, Any], may_be_incomplete: bool) -> Rule:
    try:
        return kind(trial, **given)
    except InsufficientInformationForRuleInvocation:
        if not (may_be_incomplete and issubclass(kind, BuiltinRule)):
            raise
        return kind(trial, **given, may_be_incomplete=True)


_MISSING = object()


def _check_arguments(kind: type[Rule], given: Mapping[str, object]) -> None:
    arguments = inspect.signature(kind).parameters
    if any(argument.kind == argument.VAR_KEYWORD for argument in arguments.values()):
        return
    known = list(arguments)[1:]
    for name in given:
        if name not in known:
            hint = f"choose from {', '.join(known)}." if known else "it has no parameters"
            raise RuleParameterError(
                f"{kind.__name__} has no parameter {shown(name)}; {hint}{did_you_mean(name, known)}"
            )
