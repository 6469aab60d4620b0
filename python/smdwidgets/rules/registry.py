"""Which rules there are: the built-in ones, and classes of one's own.

>>> find_rule("VanishingGradient").__name__
'VanishingGradient'
>>> find_rule("VanishingGradients")
Traceback (most recent call last):
    ...
smdwidgets.rules.registry.UnknownRule: There is no rule 'VanishingGradients'. Did you mean 'VanishingGradient'? smdwidgets.rules.BUILTIN lists all.
"""

from __future__ import annotations

import inspect
from typing import Any

from smdwidgets._text import did_you_mean, shown
from smdwidgets.exceptions import SMDebugValueError
from smdwidgets.rules.builtin import BUILTIN
from smdwidgets.rules.declared import parameters_of
from smdwidgets.rules.rule import Rule

__all__ = ["UnknownRule", "describe", "find_rule", "own_rules", "rule_classes"]


class UnknownRule(SMDebugValueError):
    """No rule of this name is built in or defined."""


def own_rules() -> dict[str, type[Rule]]:
    """Rule classes of one's own that were defined in this session: not abstract, the latest of each name."""
    found: dict[str, type[Rule]] = {}
    todo: list[type[Rule]] = list(Rule.__subclasses__())
    while todo:
        each = todo.pop(0)
        todo += each.__subclasses__()
        if not inspect.isabstract(each) and not each.__module__.startswith("smdwidgets."):
            found[each.__name__] = each
    return found


def rule_classes() -> dict[str, type[Rule]]:
    """Every rule that can be named: one's own come before built-in ones of the same name."""
    return {**BUILTIN, **own_rules()}


def find_rule(name: str) -> type[Rule]:
    """The rule of a name. `UnknownRule` names the nearest ones."""
    known = rule_classes()
    if name not in known:
        raise UnknownRule(
            f"There is no rule {shown(name)}.{did_you_mean(name, known)} smdwidgets.rules.BUILTIN lists all."
        )
    return known[name]


def describe(rule: type[Rule]) -> dict[str, Any]:
    """A rule class as editors and lists need it: its name, its purpose in a line, its documentation and its parameters."""
    doc = inspect.cleandoc(rule.__doc__ or "")
    return {
        "name": rule.__name__,
        "builtin": BUILTIN.get(rule.__name__) is rule,
        "summary": doc.splitlines()[0] if doc else "",
        "help": doc,
        "parameters": [parameter.spec() for parameter in parameters_of(rule).values()],
    }
