"""Typed parameters of rules.

A parameter is declared once, and used by constructors, JSON, the command line, docs and widgets.

>>> Real(0.5, "A share.", minimum=0.0, maximum=1.0).parse("1e-05")
1e-05
>>> Patterns((), "Names.").parse("a{1,2}, b")
('a{1,2}', 'b')
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any, ClassVar, Generic, Self, TypeVar, overload

from smdwidgets._text import shown
from smdwidgets.exceptions import SMDebugValueError

__all__ = [
    "Choice",
    "Flag",
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
]

T = TypeVar("T")


class RuleParameterError(SMDebugValueError):
    """A parameter that a rule does not have, or a value that it cannot take."""


class Parameter(Generic[T]):
    """One parameter: its type, default, limits and meaning.

    Reading it on a rule gives the value.

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
        """Return the schema that an editor needs, as plain JSON.

        Every parameter has ``name``, ``kind``, ``default``, ``text`` (the default as a string), ``doc`` and ``unit``.
        Numbers have ``minimum`` and ``maximum`` (None: no limit), choices have ``choices``. ``optional`` is there if
        None is a value.
        """
        return {
            "name": self.name,
            "kind": self.kind,
            "default": self._plain(self.default),
            "text": self.format(self.default),
            "doc": self.doc,
            "unit": self.unit,
        }

    def state(self, rule: object) -> dict[str, Any]:
        """Return the schema with the ``value`` that a rule has, as plain JSON."""
        value = getattr(rule, self.name, self.default)
        try:
            plain = self._plain(self.parse(value))
        except RuleParameterError:
            plain = str(value)  # a rule's constructor may store what it likes under the name
        return {**self.spec(), "value": plain}

    def _plain(self, value: T) -> Any:
        return [_number_or_text(one) for one in value] if isinstance(value, tuple) else _number_or_text(value)

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
            number = self._from_text(value.strip()) if isinstance(value, str) else float(value)  # type: ignore[arg-type]
        except RuleParameterError:
            raise
        except (TypeError, ValueError):
            raise self._wrong(value, "a number") from None
        if math.isnan(number):
            raise self._wrong(value, "a number")
        self._within(number, value)
        return number

    def _from_text(self, text: str) -> float:
        """Convert a text to a number.

        "1%" is 1 in a parameter whose unit is %, and 0.01 in a share from 0 to 1.
        """
        if not text.endswith("%"):
            return float(text)
        if self.unit == "%":
            return float(text[:-1])
        if self.maximum == 1 and self.minimum is not None and self.minimum >= 0:
            return float(text[:-1]) / 100
        raise self._wrong(text, "a number without a percent sign")

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
    """Yes or no.

    `"True"`, `"true"`, `"1"`, `"yes"`, `"on"` and their opposites, in any case of letters.
    """

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


def _number_or_text(value: object) -> object:
    """Replace an infinity, which JSON does not support, by its text."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


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
