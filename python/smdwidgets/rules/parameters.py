"""What a rule can be told: typed parameters, declared once, used by constructors, JSON, the command line, docs and widgets.

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
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Generic, Self, TypeVar, overload

from smdwidgets._text import did_you_mean, shown
from smdwidgets.exceptions import SMDebugValueError

__all__ = [
    "Choice",
    "Flag",
    "HasParameters",
    "Integer",
    "Numbers",
    "OptionalInteger",
    "OptionalReal",
    "Parameter",
    "Patterns",
    "Real",
    "RuleParameterError",
    "Text",
    "Words",
    "parameters_of",
]

T = TypeVar("T")


class RuleParameterError(SMDebugValueError):
    """A parameter that a rule does not have, or a value that it cannot take."""


class Parameter(Generic[T]):
    """One parameter: its type, default, limits and meaning. Reading it on a rule gives the value.

    Every value may come as a string, since rules are also made from JSON and command lines.
    """

    #: The kind of editor that suits it: "real", "integer", "flag", "text", "choice", "words", "patterns", "numbers".
    kind: ClassVar[str] = "text"

    def __init__(self, default: T, doc: str, *, unit: str = "", documented: str | None = None) -> None:
        self.default = default
        self.doc = doc
        self.unit = unit
        #: SageMaker's documented default, where ours is wider on purpose.
        self.documented = documented
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> Self | T:
        if instance is None:
            return self
        value: T = instance.__dict__.get(self.name, self.default)
        return value

    def __set__(self, instance: object, value: object) -> None:
        instance.__dict__[self.name] = self.parse(value)

    def parse(self, value: object) -> T:
        """The value meant, or `RuleParameterError`."""
        raise NotImplementedError  # pragma: no cover - every kind has its own

    def format(self, value: T) -> str:
        """The value as JSON configurations and command lines write it."""
        return str(value)

    def spec(self) -> dict[str, Any]:
        """What an editor needs to know, as plain JSON."""
        return {
            "name": self.name,
            "kind": self.kind,
            "default": self._plain(self.default),
            "text": self.format(self.default),
            "doc": self.doc,
            "unit": self.unit,
        }

    def _plain(self, value: T) -> Any:
        return list(value) if isinstance(value, tuple) else value

    def _wrong(self, value: object, expected: str) -> RuleParameterError:
        return RuleParameterError(f"{self.name or 'value'}={shown(value)} is not {expected}.")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name}={self.default!r})"


class _Bounded(Parameter[T]):
    """Numbers, with limits that are checked."""

    def __init__(
        self,
        default: T,
        doc: str,
        *,
        minimum: float | None = None,
        maximum: float | None = None,
        unit: str = "",
        documented: str | None = None,
    ) -> None:
        super().__init__(default, doc, unit=unit, documented=documented)
        self.minimum = minimum
        self.maximum = maximum

    def _within(self, value: float, given: object) -> None:
        if self.minimum is not None and value < self.minimum:
            raise self._wrong(given, f"at least {self.minimum:g}")
        if self.maximum is not None and value > self.maximum:
            raise self._wrong(given, f"at most {self.maximum:g}")

    def spec(self) -> dict[str, Any]:
        return {**super().spec(), "minimum": self.minimum, "maximum": self.maximum}

    def _number(self, value: object) -> float:
        if isinstance(value, bool) or value is None:
            raise self._wrong(value, "a number")
        try:
            number = float(value.strip().rstrip("%") if isinstance(value, str) else value)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            raise self._wrong(value, "a number") from None
        if math.isnan(number):
            raise self._wrong(value, "a number")
        self._within(number, value)
        return number

    def _whole(self, value: object) -> int:
        number = self._number(value)
        if not number.is_integer():  # also catches the infinities
            raise self._wrong(value, "a whole number")
        return int(number)


class Real(_Bounded[float]):
    """A number."""

    kind = "real"

    def parse(self, value: object) -> float:
        return self._number(value)

    def format(self, value: float) -> str:
        return repr(value)


class OptionalReal(_Bounded[float | None]):
    """A number, or None for "do not look"."""

    kind = "real"

    def parse(self, value: object) -> float | None:
        return None if _is_none(value) else self._number(value)

    def spec(self) -> dict[str, Any]:
        return {**super().spec(), "optional": True}


class Integer(_Bounded[int]):
    """A whole number; `10`, `"10"` and `"10.0"` are the same."""

    kind = "integer"

    def parse(self, value: object) -> int:
        return self._whole(value)


class OptionalInteger(_Bounded[int | None]):
    """A whole number, or None."""

    kind = "integer"

    def parse(self, value: object) -> int | None:
        return None if _is_none(value) else self._whole(value)

    def spec(self) -> dict[str, Any]:
        return {**super().spec(), "optional": True}


class Flag(Parameter[bool]):
    """Yes or no. `"True"`, `"true"`, `"1"`, `"yes"`, `"on"` and their opposites, in any case of letters."""

    kind = "flag"
    _WORDS: ClassVar[dict[str, bool]] = {
        **dict.fromkeys(("true", "1", "yes", "on", "t", "y"), True),
        **dict.fromkeys(("false", "0", "no", "off", "f", "n"), False),
    }

    def parse(self, value: object) -> bool:
        word = str(value).strip().casefold()
        if isinstance(value, bool | int | str) and word in self._WORDS:
            return self._WORDS[word]
        raise self._wrong(value, "True or False")


class Text(Parameter[str]):
    """Any text."""

    kind = "text"

    def parse(self, value: object) -> str:
        if not isinstance(value, str):
            raise self._wrong(value, "text")
        return value.strip()


class Choice(Parameter[str | None]):
    """One of some words, or None for "the best that is there"."""

    kind = "choice"

    def __init__(self, default: str | None, doc: str, *, choices: Iterable[str], documented: str | None = None) -> None:
        super().__init__(default, doc, documented=documented)
        self.choices = tuple(choices)

    def parse(self, value: object) -> str | None:
        if _is_none(value):
            return None
        word = str(getattr(value, "name", value)).strip()  # a ModeKeys member says its name
        for choice in self.choices:
            if word.casefold() == choice.casefold():
                return choice
        raise self._wrong(value, f"one of {', '.join(self.choices)} or None")

    def spec(self) -> dict[str, Any]:
        return {**super().spec(), "choices": list(self.choices), "optional": True}


class Words(Parameter[tuple[str, ...]]):
    """Several words: a list, or a text with commas between them."""

    kind = "words"

    def parse(self, value: object) -> tuple[str, ...]:
        if _is_none(value):
            return ()
        if isinstance(value, str):
            return tuple(word for part in value.split(",") if (word := part.strip()))
        if isinstance(value, Iterable):
            words = tuple(value)
            if all(isinstance(word, str) for word in words):
                return tuple(stripped for word in words if (stripped := word.strip()))
        raise self._wrong(value, "a list of names, or names with commas between them")

    def format(self, value: tuple[str, ...]) -> str:
        return ",".join(value) if value else "None"


class Patterns(Words):
    """Several regular expressions, searched for anywhere in a tensor's name.

    In a text, commas part patterns, but not those inside brackets or braces: `a{1,2},b` is two patterns.
    """

    kind = "patterns"

    def parse(self, value: object) -> tuple[str, ...]:
        patterns = (
            tuple(_split_patterns(value)) if isinstance(value, str) and not _is_none(value) else super().parse(value)
        )
        for pattern in patterns:
            try:
                re.compile(pattern)
            except (re.error, RecursionError, OverflowError) as error:
                raise self._wrong(pattern, f"a regular expression ({error})") from None
        return patterns


class Numbers(Parameter[tuple[float, ...]]):
    """Several numbers: a list, one number, or a text with commas between them."""

    kind = "numbers"

    def parse(self, value: object) -> tuple[float, ...]:
        parts: Iterable[object]
        if isinstance(value, str):
            parts = [part for part in value.split(",") if part.strip()]
        elif isinstance(value, Iterable):
            parts = value
        else:
            parts = [value]
        numbers = []
        for part in parts:
            try:
                if isinstance(part, bool):
                    raise ValueError
                numbers.append(float(part))  # type: ignore[arg-type]
            except (TypeError, ValueError):
                raise self._wrong(value, "a list of numbers") from None
        if not numbers or any(math.isnan(number) for number in numbers):
            raise self._wrong(value, "a list of numbers")
        return tuple(numbers)

    def format(self, value: tuple[float, ...]) -> str:
        return ",".join(f"{number:g}" for number in value)


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


def _is_none(value: object) -> bool:
    return value is None or (isinstance(value, str) and value.strip() in ("", "None", "null"))


def _split_patterns(text: str) -> Iterable[str]:
    """Split at commas that are not inside (), [] or {}, nor escaped."""
    depth, start, escaped = 0, 0, False
    for at, letter in enumerate(text):
        if escaped:
            escaped = False
        elif letter == "\\":
            escaped = True
        elif letter in "([{":
            depth += 1
        elif letter in ")]}":
            depth = max(depth - 1, 0)
        elif letter == "," and depth == 0:
            if part := text[start:at].strip():
                yield part
            start = at + 1
    if part := text[start:].strip():
        yield part
