"""Declare parameters of rule classes, or infer them from the constructor.

>>> class Toy(HasParameters):
...     threshold = Real(1e-7, "Smallest magnitude that does not fire.", minimum=0.0)
...     only_nan = Flag(False, "Check for NaN only.")
>>> toy = Toy()
>>> toy.set_parameters({"threshold": "1e-5", "only_nan": "True"})
>>> toy.threshold, toy.only_nan
(1e-05, True)
>>> toy.set_parameters({"treshold": 1})  # doctest: +NORMALIZE_WHITESPACE
Traceback (most recent call last):
    ...
smdwidgets.rules.parameters.RuleParameterError: Toy has no parameter 'treshold'; choose from threshold, only_nan. Did
you mean 'threshold'?
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from smdwidgets._text import did_you_mean, shown
from smdwidgets.rules.parameters import Flag, Integer, Parameter, Real, RuleParameterError, Text

__all__ = ["HasParameters", "parameters_of"]


class HasParameters:
    """Base class whose `Parameter` attributes are its parameters, in definition order."""

    _parameters: ClassVar[dict[str, Parameter[Any]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        found: dict[str, Parameter[Any]] = {}
        for base in reversed(cls.__mro__):
            found.update((name, value) for name, value in vars(base).items() if isinstance(value, Parameter))
        cls._parameters = found

    @classmethod
    def parameters(cls) -> dict[str, Parameter[Any]]:
        """Return the parameters by name, in definition order."""
        return dict(cls._parameters)

    def set_parameters(self, given: Mapping[str, object]) -> None:
        """Set the given parameters; values may be strings."""
        for name, value in given.items():
            parameter = self._parameters.get(name)
            if parameter is None:
                raise _unknown_parameter(type(self).__name__, name, self._parameters)
            try:
                parameter.__set__(self, value)
            except RuleParameterError as error:
                raise RuleParameterError(f"{type(self).__name__}.{error}") from None

    def values(self) -> dict[str, Any]:
        """Return the current value of every parameter."""
        return {name: getattr(self, name) for name in self._parameters}

    def formatted(self) -> dict[str, str]:
        """Return the current value of every parameter in configuration syntax."""
        return {name: parameter.format(getattr(self, name)) for name, parameter in self._parameters.items()}


def parameters_of(rule: type) -> dict[str, Parameter[Any]]:
    """Return a rule class's parameters, declared or inferred from its constructor.

    >>> class Mine:
    ...     def __init__(self, base_trial, limit=3.0, names="a,b"): ...
    >>> [parameter.spec()["kind"] for parameter in parameters_of(Mine).values()]
    ['real', 'text']
    """
    if issubclass(rule, HasParameters) and rule.parameters():
        return rule.parameters()
    found: dict[str, Parameter[Any]] = {}
    for name, argument in list(inspect.signature(rule).parameters.items())[1:]:
        if name in ("action_str", "other_trials") or argument.kind in (argument.VAR_POSITIONAL, argument.VAR_KEYWORD):
            continue
        found[name] = _infer_parameter(argument.default)
        found[name].name = name
    return found


def _infer_parameter(default: object) -> Parameter[Any]:
    """Infer a parameter from a constructor's default value.

    Strings are passed unchanged, because the constructor parses them.
    """
    doc = "Argument of the rule's constructor."
    if isinstance(default, bool):
        return Flag(default, doc)
    if isinstance(default, int):
        return Integer(default, doc)
    if isinstance(default, float):
        return Real(default, doc)
    return Text(default if isinstance(default, str) else "", doc)


def _unknown_parameter(owner: str, name: str, known: Iterable[str]) -> RuleParameterError:
    names = list(known)
    hint = f"choose from {', '.join(names)}." if names else "it has no parameters"
    return RuleParameterError(f"{owner} has no parameter {shown(name)}; {hint}{did_you_mean(name, names)}")
