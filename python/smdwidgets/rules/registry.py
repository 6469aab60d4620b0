"""Registry of rules: built-in rules and user-defined classes.

>>> find_rule("VanishingGradient").__name__
'VanishingGradient'
>>> find_rule("VanishingGradients")  # doctest: +NORMALIZE_WHITESPACE
Traceback (most recent call last):
    ...
smdwidgets.rules.registry.UnknownRule: unknown rule 'VanishingGradients'. Did you mean 'VanishingGradient'?
`smdwidgets check --list` lists the built-in rules
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
    """Raised when no built-in or user-defined rule has the given name."""


def own_rules() -> dict[str, type[Rule]]:
    """Return the user-defined rule classes of this process by name.

    Abstract classes are omitted. Of several classes with one name, the latest is returned.
    """
    found: dict[str, type[Rule]] = {}
    todo: list[type[Rule]] = list(Rule.__subclasses__())
    while todo:
        each = todo.pop(0)
        todo += each.__subclasses__()
        if not inspect.isabstract(each) and not each.__module__.startswith("smdwidgets."):
            found[each.__name__] = each
    return found


def rule_classes() -> dict[str, type[Rule]]:
    """Return all rule classes by name; user-defined rules override built-in ones."""
    return {**BUILTIN, **own_rules()}


def find_rule(name: str) -> type[Rule]:
    """Return the rule class of a name.

    Raises:
        UnknownRule: there is no such rule; the message suggests similar names.
    """
    known = rule_classes()
    if name not in known:
        raise UnknownRule(
            f"unknown rule {shown(name)}.{did_you_mean(name, known)} `smdwidgets check --list` lists the built-in rules"
        )
    return known[name]


def describe(rule: type[Rule]) -> dict[str, Any]:
    """Describe a rule class for editors and lists: name, summary, help and parameters."""
    doc = inspect.cleandoc(rule.__doc__ or "")
    return {
        "name": rule.__name__,
        "builtin": BUILTIN.get(rule.__name__) is rule,
        "summary": doc.splitlines()[0] if doc else "",
        "help": doc,
        "parameters": [parameter.spec() for parameter in parameters_of(rule).values()],
    }
