"""The grammar of queries: ``layers.*.q_proj | l2 | top 12 by change``.

``docs/query.md`` describes it. JavaScript has the same parser in ``js/src/query/``; `tests/vectors/query.json` has cases that
both pass, and a test compares both on random texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, NoReturn, Protocol

from smdwidgets.exceptions import QueryError
from smdwidgets.queries.pattern import Glob, PatternError, Regex
from smdwidgets.queries.words import SPACES, closest, folded, quoted

#: Maximum characters of a query.
LONGEST: Final = 10_000
_LARGEST: Final = 2**53 - 1
_SIGNS: Final = "<>=!"
_OPERATORS: Final = ("<", "<=", ">", ">=", "=", "!=", "==")
_MEANT: Final = {"=>": ">=", "=<": "<=", "<>": "!=", "=!": "!=", "!": "!=", "===": "=", "!==": "!="}
#: What a backslash makes literal in a glob.
_ESCAPED: Final = '|*\\"/@'
_NUMBER: Final = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)(e[+-]?[0-9]+)?")
_WHOLE: Final = re.compile(r"[0-9]+")
_INFINITE: Final = {"inf": 1.0, "+inf": 1.0, "-inf": -1.0, "infinity": 1.0, "+infinity": 1.0, "-infinity": -1.0}
_END: Final = "'|' or the end"


class Vocabulary(Protocol):
    """The words of a table that a query can use."""

    @property
    def keys(self) -> Sequence[str]:
        """Columns that can be compared and sorted by."""

    @property
    def statistics(self) -> Sequence[str]:
        """Statistics that can be chosen."""

    @property
    def views(self) -> Sequence[str]:
        """What `as` can choose."""

    @property
    def has_steps(self) -> bool:
        """Whether `steps` can choose a range."""

    @property
    def collections(self) -> Iterable[str]:
        """Names of collections."""


class Literal(NamedTuple):
    """A value to compare with: its text, and its number if it is one.

    NaN stands for a missing value.
    """

    text: str
    number: float | None


class Filter(NamedTuple):
    """Keep the rows whose key compares."""

    key: str
    operator: str
    value: Literal


class Order(NamedTuple):
    """Sort the rows, and keep the first ones.

    ``descending`` is None for the usual direction of the key, ``limit`` for all rows.
    """

    key: str
    descending: bool | None
    limit: int | None


@dataclass
class Query:
    """A parsed query."""

    #: The rows whose names match; None: all.
    pattern: Glob | Regex | None = None
    collection: str | None = None
    stages: list[Filter | Order] = field(default_factory=list)
    statistic: str | None = None
    steps: tuple[int, int | None] | None = None
    view: str | None = None


class _Token(NamedTuple):
    """``kind`` is "word", "text" (in quotes), "sign" or "dots"."""

    kind: str
    value: str
    start: int
    end: int


def parse(text: str, vocabulary: Vocabulary) -> Query:
    """Parse a query. Raises QueryError with the place of the error.

    The places count characters (code points).
    """
    return _Parser(text, vocabulary).parse()


class _Parser:
    def __init__(self, text: str, vocabulary: Vocabulary) -> None:
        self._text, self._at, self._vocabulary = text, 0, vocabulary
        self._query = Query()

    def parse(self) -> Query:
        if len(self._text) > LONGEST:
            self._fail(f"Query is longer than {LONGEST} characters.", LONGEST, len(self._text))
        self._skip()
        if self._at < len(self._text) and self._peek() != "|":
            if self._starts_stage():
                self._stage()
            else:
                self._select()
        while self._at < len(self._text):  # at a bar
            bar = self._at
            self._at += 1
            self._skip()
            if self._at == len(self._text) or self._peek() == "|":
                self._fail("Expected a stage after '|'.", bar, bar + 1)
            self._stage()
        return self._query

    # ---------------------------------------------------------------------------------------------------------- tokens

    def _fail(self, message: str, start: int, end: int, suggestion: str | None = None) -> NoReturn:
        raise QueryError(self._text, start, end, message, suggestion)

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _skip(self) -> None:
        while self._peek() in SPACES:
            self._at += 1

    def _token(self) -> _Token | None:
        """Read the next token of a stage; None at its end."""
        self._skip()
        start, char = self._at, self._peek()
        if char in ("", "|"):
            return None
        if char == '"':
            return self._quoted()
        if char in _SIGNS:
            while self._peek() and self._peek() in _SIGNS:
                self._at += 1
            return _Token("sign", self._text[start : self._at], start, self._at)
        if self._text.startswith("..", start):
            self._at += 2
            return _Token("dots", "..", start, self._at)
        while (char := self._peek()) and char not in SPACES and char not in '|"' and char not in _SIGNS:
            if self._text.startswith("..", self._at):
                break
            self._at += 1
        return _Token("word", self._text[start : self._at], start, self._at)

    def _quoted(self) -> _Token:
        start, found = self._at, []
        self._at += 1
        while (char := self._peek()) != '"':
            if not char:
                self._fail("Missing closing '\"'.", start, len(self._text))
            if char == "\\" and self._text[self._at + 1 : self._at + 2] in ('"', "\\"):
                self._at += 1
            found.append(self._peek())
            self._at += 1
        self._at += 1
        return _Token("text", "".join(found), start, self._at)

    def _ends(self, *candidates: str) -> None:
        """Fail unless the stage ends here."""
        token = self._token()
        if token is not None:
            self._fail_at(token, f"Expected {_END}, got {quoted(self._source(token))}.", candidates)

    def _source(self, token: _Token) -> str:
        return self._text[token.start : token.end]

    def _fail_at(self, token: _Token, message: str, candidates: Iterable[str] = ()) -> NoReturn:
        suggestion = closest(token.value, candidates) if token.kind == "word" else None
        self._fail(message, token.start, token.end, suggestion)

    def _expect(self, what: str, before: _Token) -> _Token:
        token = self._token()
        if token is None:
            self._fail(f"Expected {what} after {quoted(self._source(before))}.", before.end, before.end)
        return token

    # ---------------------------------------------------------------------------------------------------------- select

    def _starts_stage(self) -> bool:
        """Return whether the first part is a stage."""
        begin = self._at
        if self._peek() in ("/", "@"):
            return False
        first = self._token()
        spaced = self._peek() in SPACES
        self._skip()
        signed = self._peek() != "" and self._peek() in _SIGNS
        self._at = begin
        if first is None or first.kind not in ("word", "text"):
            return False
        if signed:
            return spaced or first.kind == "text" or self._known(first.value, self._vocabulary.keys) is not None
        return first.kind == "word" and spaced and folded(first.value) in ("top", "sort", "steps", "as")

    def _select(self) -> None:
        char = self._peek()
        if char == "/":
            self._regex()
        elif char == "@":
            self._collection()
        elif char == '"':
            self._query.pattern = Glob([self._quoted().value])
        else:
            self._glob()
        self._ends()

    def _glob(self) -> None:
        parts = [""]
        start = self._at
        end = len(self._text)
        while self._at < end and self._peek() != "|":
            char = self._peek()
            if char == "\\" and self._text[self._at + 1 : self._at + 2] in (*_ESCAPED,):
                self._at += 1
                parts[-1] += self._peek()
                start = self._at + 1
            elif char == "*":
                parts.append("")
            else:
                parts[-1] += char
            self._at += 1
        # Spaces at the end are not a part of it.
        while self._at > start and self._text[self._at - 1] in SPACES:
            self._at -= 1
            parts[-1] = parts[-1][:-1]
        self._query.pattern = Glob(parts)

    def _regex(self) -> None:
        start = self._at
        self._at += 1
        while (char := self._peek()) != "/":
            if not char:
                self._fail("Missing closing '/'.", start, len(self._text))
            self._at += 2 if char == "\\" else 1
        pattern = self._text[start + 1 : self._at]
        self._at += 1
        if not pattern:
            self._fail("Invalid regular expression: it is empty.", start, self._at)
        try:
            self._query.pattern = Regex(pattern, start + 1)
        except PatternError as error:
            self._fail(f"Invalid regular expression: {error.reason}.", error.start, error.end)

    def _collection(self) -> None:
        at = self._at
        self._at += 1
        token = self._token() if self._peek() not in SPACES else None
        if token is None or token.kind not in ("word", "text"):
            self._fail("Expected the name of a collection after '@'.", at + 1, at + 1)
        names = [*self._vocabulary.collections]
        known = self._known(token.value, names)
        if known is None:
            self._fail_at(token, f"Unknown collection {quoted(token.value)}.", names)
        self._query.collection = known

    # ---------------------------------------------------------------------------------------------------------- stages

    @staticmethod
    def _known(word: str, names: Sequence[str]) -> str | None:
        """Return the name that a word means: the same one, or one of another case."""
        if word in names:
            return word
        lower = folded(word)
        return next((name for name in names if folded(name) == lower), None)

    def _stage(self) -> None:
        first = self._token()
        assert first is not None
        if first.kind not in ("word", "text"):
            self._fail(f"Expected a stage, got {quoted(first.value)}.", first.start, first.end)
        begin = self._at
        second = self._token()
        if second is not None and second.kind == "sign":
            self._filter(first, second)
            return
        self._at = begin
        vocabulary = self._vocabulary
        word = folded(first.value) if first.kind == "word" else ""
        if word == "top":
            self._top(first)
        elif word == "sort":
            self._sort(first, None)
        elif word == "steps" and vocabulary.has_steps:
            self._steps(first)
        elif word == "as" and vocabulary.views:
            self._as(first)
        elif word and (statistic := self._known(first.value, vocabulary.statistics)):
            if self._query.statistic is not None:
                self._fail_at(first, f"Two statistics: '{self._query.statistic}' and '{statistic}'.")
            self._query.statistic = statistic
            self._ends()
        elif self._known(first.value, vocabulary.keys) is not None:
            found = self._expect("an operator such as '<'", first)
            self._fail(f"Expected an operator such as '<', got {quoted(self._source(found))}.", found.start, found.end)
        else:
            self._fail_at(first, f"Unknown word {quoted(first.value)}.", self._words())

    def _words(self) -> list[str]:
        vocabulary = self._vocabulary
        stages = ["top", "sort", *(["steps"] if vocabulary.has_steps else []), *(["as"] if vocabulary.views else [])]
        return [*stages, *vocabulary.statistics, *vocabulary.keys]

    def _key(self, before: _Token) -> str:
        return self._key_of(self._expect("a key", before))

    def _key_of(self, token: _Token) -> str:
        known = self._known(token.value, self._vocabulary.keys) if token.kind in ("word", "text") else None
        if known is None:
            self._fail_at(token, f"Unknown key {quoted(self._source(token))}.", self._vocabulary.keys)
        return known

    def _filter(self, first: _Token, sign: _Token) -> None:
        key = self._key_of(first)
        if sign.value not in _OPERATORS:
            self._fail(f"Unknown operator {quoted(sign.value)}.", sign.start, sign.end, _MEANT.get(sign.value))
        operator = "=" if sign.value == "==" else sign.value
        token = self._expect("a value", sign)
        if token.kind not in ("word", "text"):
            self._fail(f"Expected a value, got {quoted(token.value)}.", token.start, token.end)
        value = Literal(token.value, _number(token.value) if token.kind == "word" else None)
        if operator not in ("=", "!="):
            if value.number is None:
                self._fail(f"'{operator}' needs a number, got {quoted(self._source(token))}.", token.start, token.end)
            if value.number != value.number:
                self._fail(f"'{operator}' cannot compare with nan; use = or !=.", token.start, token.end)
        self._query.stages.append(Filter(key, operator, value))
        self._ends()

    def _top(self, first: _Token) -> None:
        token = self._expect("a number", first)
        count = _whole(token)
        if not count:
            self._fail(f"'top' needs a whole number from 1, got {quoted(self._source(token))}.", token.start, token.end)
        self._sort(token, count)

    def _sort(self, before: _Token, count: int | None) -> None:
        by = self._expect("'by'", before)
        if by.kind != "word" or folded(by.value) != "by":
            self._fail_at(by, f"Expected 'by', got {quoted(self._source(by))}.", ["by"])
        key = self._key(by)
        begin = self._at
        token = self._token()
        direction = folded(token.value) if token is not None and token.kind == "word" else ""
        if direction not in ("asc", "desc"):
            self._at = begin
        self._query.stages.append(Order(key, {"asc": False, "desc": True}.get(direction), count))
        self._ends("asc", "desc")

    def _steps(self, first: _Token) -> None:
        if self._query.steps is not None:
            self._fail_at(first, "'steps' is given twice.")
        token = self._expect("a range such as '10 .. 20'", first)
        low = None if token.kind == "dots" else self._step(token)
        dots = token if low is None else self._expect("'..'", token)
        if dots.kind != "dots":
            self._fail(f"Expected '..', got {quoted(self._source(dots))}.", dots.start, dots.end)
        begin = self._at
        last = self._token()
        if last is None:
            if low is None:
                self._fail("Expected a step after '..'.", dots.end, dots.end)
            self._at = begin
        high = None if last is None else self._step(last)
        if low is not None and last is not None and high is not None and high < low:
            self._fail(f"Empty range: {low} is after {high}.", token.start, last.end)
        self._query.steps = (low or 0, high)
        self._ends()

    def _step(self, token: _Token) -> int:
        step = _whole(token)
        if step is None:
            self._fail(
                f"'steps' needs whole numbers from 0, got {quoted(self._source(token))}.", token.start, token.end
            )
        return step

    def _as(self, first: _Token) -> None:
        if self._query.view is not None:
            self._fail_at(first, "'as' is given twice.")
        views = self._vocabulary.views
        token = self._expect(f"one of {', '.join(views)}", first)
        known = self._known(token.value, views) if token.kind == "word" else None
        if known is None:
            message = f"Unknown view {quoted(self._source(token))}; choose from {', '.join(views)}."
            self._fail_at(token, message, views)
        self._query.view = known
        self._ends()


def _number(word: str) -> float | None:
    lower = folded(word)
    if lower in _INFINITE:
        return _INFINITE[lower] * float("inf")
    if lower == "nan":
        return float("nan")
    return float(lower) if _NUMBER.fullmatch(lower) else None


def _whole(token: _Token) -> int | None:
    """Return a whole number that JavaScript can represent, or None."""
    if token.kind != "word" or not _WHOLE.fullmatch(token.value):
        return None
    digits = token.value.lstrip("0") or "0"
    number = int(digits) if len(digits) <= 16 else _LARGEST + 1
    return number if number <= _LARGEST else None
