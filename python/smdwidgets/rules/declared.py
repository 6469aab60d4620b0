"""Classes that declare their parameters, and what can be told of the parameters of those that do not.

>>> class Toy(HasParameters):
...     threshold = Real(1e-7, "Smallest magnitude that is still alive.", minimum=0.0)
...     only_nan = Flag(False, "Look for NaN only.")
>>> toy = Toy()
>>> toy.set_parameters({"threshold": "1e-5", "only_nan": "True"})
>>> toy.threshold, toy.only_nan
(1e-05, True)
>>> toy.set_parameters({"treshold": 1})
Traceback (most recent call last):
    ...
smdwidgets.rules.parameters.RuleParameterError: Toy has no parameter 'treshold'. Did you mean 'threshold'? It has: threshold, only_nan.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from smdwidgets._text import did_you_mean, shown
from smdwidgets.rules.parameters import Flag, Integer, Parameter, Real, RuleParameterError, Text

__all__ = ["HasParameters", "parameters_of"]


class HasParameters:
    """A class whose `Parameter` attributes are its parameters, in the order written."""

    _parameters: ClassVar[dict[str, Parameter[Any]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        found: dict[str, Parameter[Any]] = {}
        for base in reversed(cls.__mro__):
            found.update((name, value) for name, value in vars(base).items() if isinstance(value, Parameter))
        cls._parameters = found

    @classmethod
    def parameters(cls) -> dict[str, Parameter[Any]]:
        """The parameters by name, in their documented order."""
        return dict(cls._parameters)

    def set_parameters(self, given: Mapping[str, object]) -> None:
        """Set those given; values may be strings."""
        for name, value in given.items():
            parameter = self._parameters.get(name)
            if parameter is None:
                raise _unknown(type(self).__name__, name, self._parameters)
            try:
                parameter.__set__(self, value)
            except RuleParameterError as error:
                raise RuleParameterError(f"{type(self).__name__}.{error}") from None

    def values(self) -> dict[str, Any]:
        """Every parameter's present value."""
        return {name: getattr(self, name) for name in self._parameters}

    def formatted(self) -> dict[str, str]:
        """Every parameter's present value as configurations write it."""
        return {name: parameter.format(getattr(self, name)) for name, parameter in self._parameters.items()}


def parameters_of(rule: type) -> dict[str, Parameter[Any]]:
    """A rule class's parameters: those it declares, else what the arguments of its constructor tell.

    >>> class Mine:
    ...     def __init__(self, base_trial, limit=3.0, names="a,b"): ...
    >>> [parameter.spec()["kind"] for parameter in parameters_of(Mine).values()]
    ['real', 'text']
    """
    if issubclass(rule, HasParameters) and rule._parameters:
        return rule.parameters()
    found: dict[str, Parameter[Any]] = {}
    for name, argument in list(inspect.signature(rule).parameters.items())[1:]:
        if name in ("action_str", "other_trials") or argument.kind in (argument.VAR_POSITIONAL, argument.VAR_KEYWORD):
            continue
        found[name] = _guess(argument.default)
        found[name].name = name
    return found


def _guess(default: object) -> Parameter[Any]:
    """The parameter that a constructor's default value suggests. Its own code parses, so text passes as it is."""
    doc = "An argument of the rule's constructor."
    if isinstance(default, bool):
        return Flag(default, doc)
    if isinstance(default, int):
        return Integer(default, doc)
    if isinstance(default, float):
        return Real(default, doc)
    return Text(default if isinstance(default, str) else "", doc)


def _unknown(owner: str, name: str, known: Iterable[str]) -> RuleParameterError:
    names = list(known)
    there = f" It has: {', '.join(names)}." if names else " It takes none."
    return RuleParameterError(f"{owner} has no parameter {shown(name)}.{did_you_mean(name, names)}{there}")
