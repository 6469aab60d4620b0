"""The grammar of queries: ``layers.*.q_proj | l2 | top 12 by change``.

``docs/query.md`` describes it. JavaScript has the same parser in ``js/src/query/``; `tests/vectors/query.json` has
cases that both pass, and a test compares both on random texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, NoReturn, Protocol

from smdwidgets._patterns import Glob, PatternError, Regex
from smdwidgets._text import folded
from smdwidgets.exceptions import QueryError
from smdwidgets.queries.words import SPACES, closest, quoted

#: Maximum characters of a query.
LONGEST: Final = 10_000
_LARGEST: Final = 2**53 - 1
#: Depth of groups and negations.
_DEEPEST: Final = 50
#: Characters of a tag such as that of ``min(tag)``.
_LONGEST_TAG: Final = 200
_SIGNS: Final = "<>=!~"
_QUOTES: Final = "\"'`"
_OPERATORS: Final = ("<", "<=", ">", ">=", "=", "!=", "==", "~")
_MEANT: Final = {"=>": ">=", "=<": "<=", "<>": "!=", "=!": "!=", "!": "!=", "===": "=", "!==": "!="}
#: What a backslash makes literal in a glob.
_ESCAPED: Final = '|*\\"/@'
_NUMBER: Final = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)(e[+-]?[0-9]+)?")
_WHOLE: Final = re.compile(r"[0-9]+")
_INFINITE: Final = {"inf": 1.0, "+inf": 1.0, "-inf": -1.0, "infinity": 1.0, "+infinity": 1.0, "-infinity": -1.0}
_MISSING: Final = ("nan", "none")
_END: Final = "'|' or the end"
_STAGES: Final = ("top", "sort", "steps", "as")


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

    def is_text(self, key: str) -> bool:
        """Return whether a column has strings, in which patterns can be found."""


class Literal(NamedTuple):
    """A value to compare with: its text, and its number if it is one.

    NaN stands for a missing value.
    """

    text: str
    number: float | None


class Names(NamedTuple):
    """The rows in whose names a pattern is found.

    ``start`` and ``end`` are those of the pattern in the query.
    """

    pattern: Glob | Regex
    start: int
    end: int


class Members(NamedTuple):
    """The rows of a collection."""

    collection: str


class Comparison(NamedTuple):
    """The rows whose key compares, and the place of the value in the query.

    The value of the operator ``~`` is a pattern.
    """

    key: str
    operator: str
    value: Literal | Glob | Regex
    start: int
    end: int


class Combination(NamedTuple):
    """Conditions that are combined by ``and``, ``or`` or ``not``.

    ``not`` has a single part.
    """

    word: str
    parts: tuple[Condition, ...]


Condition = Names | Members | Comparison | Combination


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

    stages: list[Condition | Order] = field(default_factory=list)
    statistic: str | None = None
    steps: tuple[int, int | None] | None = None
    view: str | None = None

    def conditions(self) -> Iterator[Names | Members | Comparison | Order]:
        """Yield the stages, with the parts of combinations, in the order of the text."""
        parts = [*reversed(self.stages)]
        while parts:
            part = parts.pop()
            if isinstance(part, Combination):
                parts += reversed(part.parts)
            else:
                yield part


class _Token(NamedTuple):
    """``kind`` is "word", "text" (in quotes), "sign", "dots" or "parenthesis"."""

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
        #: Open groups.
        self._groups = 0

    def parse(self) -> Query:
        if len(self._text) > LONGEST:
            self._fail(f"Query is longer than {LONGEST} characters.", LONGEST, len(self._text))
        self._skip()
        if self._at < len(self._text) and self._peek() != "|":
            if self._starts_stage():
                self._stage()
            else:
                self._filter(names=True)
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

    def _keyword(self, *words: str) -> str:
        """Read one of these words; return "" if there is none.

        A word ends at a space, a parenthesis or a bar.
        """
        self._skip()
        for word in words:
            end = self._at + len(word)
            if folded(self._text[self._at : end]) == word and self._text[end : end + 1] in (*SPACES, *"()|", ""):
                self._at = end
                return word
        return ""

    def _token(self) -> _Token | None:
        """Read the next token of a stage; None at its end."""
        self._skip()
        start, char = self._at, self._peek()
        if char in ("", "|"):
            return None
        if char in _QUOTES:
            return self._quoted()
        if char in "()":
            self._at += 1
            return _Token("parenthesis", char, start, self._at)
        if char in _SIGNS:
            while self._peek() and self._peek() in _SIGNS:
                self._at += 1
            return _Token("sign", self._text[start : self._at], start, self._at)
        if self._text.startswith("..", start):
            self._at += 2
            return _Token("dots", "..", start, self._at)
        letters = []
        while (char := self._peek()) and char not in SPACES and char not in '|")' and char not in _SIGNS:
            if self._text.startswith("..", self._at):
                break
            letters.append((self._tag() if char == "(" else None) or char)
            self._at += 1
        return _Token("word", "".join(letters), start, self._at)

    def _tag(self) -> str | None:
        """Read the parenthesis of ``min(tag)`` without quotes; None if it is not closed."""
        letters, depth, index = [], 0, self._at
        while index < min(len(self._text), self._at + _LONGEST_TAG):
            char = self._text[index]
            if char == "|":
                return None
            if char in _QUOTES:
                end = self._text.find(char, index + 1, self._at + _LONGEST_TAG)
                if end < 0:
                    return None
                letters.append(self._text[index + 1 : end])
                index = end
            else:
                letters.append(char)
                depth += (char == "(") - (char == ")")
            if depth == 0:
                self._at = index
                return "".join(letters)
            index += 1
        return None

    def _quoted(self) -> _Token:
        start, quote, letters = self._at, self._peek(), []
        self._at += 1
        while (char := self._peek()) != quote:
            if not char:
                self._fail(f"Missing closing '{quote}'.", start, len(self._text))
            if char == "\\" and self._text[self._at + 1 : self._at + 2] in (quote, "\\"):
                self._at += 1
            letters.append(self._peek())
            self._at += 1
        self._at += 1
        return _Token("text", "".join(letters), start, self._at)

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

    # ------------------------------------------------------------------------------------------------------ conditions

    def _filter(self, names: bool) -> None:
        self._query.stages.append(self._condition(0, names))
        self._ends("and", "or")

    def _condition(self, depth: int, names: bool) -> Condition:
        """Read a condition.

        ``depth`` is that of groups and negations, ``names`` whether a pattern of names can be a part.
        """
        return self._combined("or", depth, lambda: self._combined("and", depth, lambda: self._part(depth, names)))

    def _combined(self, word: str, depth: int, read: Callable[[], Condition]) -> Condition:
        parts = [read()]
        while self._keyword(word):
            self._operand(word)
            parts.append(read())
        return parts[0] if len(parts) == 1 else Combination(word, tuple(parts))

    def _operand(self, before: str) -> None:
        """Fail if no part of a condition follows a word."""
        begin = self._at
        self._skip()
        if self._peek() in ("", "|", ")"):
            self._fail(f"Expected a condition after '{before}'.", begin, begin)

    def _part(self, depth: int, names: bool) -> Condition:
        self._skip()
        start = self._at
        negated = bool(self._keyword("not"))
        if not negated and self._peek() != "(":
            return self._comparison() if not names or self._starts_comparison() else self._names()
        if depth == _DEEPEST:
            self._fail("Conditions are nested too deeply.", start, start + 1)
        if negated:
            self._operand("not")
            return Combination("not", (self._part(depth + 1, names),))
        self._at += 1
        self._operand("(")
        self._groups += 1
        inner = self._condition(depth + 1, names)
        self._groups -= 1
        self._skip()
        if self._peek() != ")":
            if self._at < len(self._text) and self._peek() != "|":
                self._ends("and", "or")
            self._fail("Missing closing ')'.", start, start + 1)
        self._at += 1
        return inner

    def _lookahead(self) -> tuple[_Token | None, bool, bool]:
        """Return the next token, whether a space follows it, and whether an operator does.

        Nothing is read.
        """
        begin = self._at
        if self._peek() in ("/", "@"):
            return None, False, False
        first = self._token()
        spaced = self._peek() in SPACES
        self._skip()
        signed = self._peek() != "" and self._peek() in _SIGNS
        self._at = begin
        return (first, spaced, signed) if first is not None and first.kind in ("word", "text") else (None, False, False)

    def _starts_stage(self) -> bool:
        """Return whether the first part is a stage other than a condition."""
        first, spaced, signed = self._lookahead()
        return first is not None and first.kind == "word" and spaced and not signed and folded(first.value) in _STAGES

    def _starts_comparison(self) -> bool:
        first, spaced, signed = self._lookahead()
        if first is None or not signed:
            return False
        return spaced or first.kind == "text" or self._named(first.value, self._vocabulary.keys) is not None

    def _names(self) -> Condition:
        if self._peek() == "@":
            return self._collection()
        start = self._at
        pattern = self._glob() if self._peek() not in "/" + _QUOTES else self._pattern()
        return Names(pattern, start, self._at)

    def _pattern(self) -> Glob | Regex:
        """Read a regular expression, a text in quotes, or a word."""
        if self._peek() == "/":
            return self._regex()
        token = self._token()
        assert token is not None
        if token.kind not in ("word", "text"):
            self._fail(f"Expected a pattern, got {quoted(token.value)}.", token.start, token.end)
        return Glob([token.value] if token.kind == "text" else token.value.split("*"))

    def _glob(self) -> Glob:
        """Read text up to a bar, ``and``, ``or``, or the parenthesis that closes a group."""
        parts, start, depth = [""], self._at, 0
        while (char := self._peek()) not in ("", "|"):
            if char == "\\" and self._text[self._at + 1 : self._at + 2] in (*_ESCAPED,):
                self._at += 1
                parts[-1] += self._peek()
                start = self._at + 1
            elif char == "*":
                parts.append("")
            elif (char in SPACES and self._text[self._at - 1] not in SPACES and self._ends_glob()) or (
                char == ")" and self._groups and depth == 0
            ):
                break
            else:
                depth += (char == "(") - (char == ")" and depth > 0)
                parts[-1] += char
            self._at += 1
        # Spaces at the end are not a part of it.
        while self._at > start and self._text[self._at - 1] in SPACES:
            self._at -= 1
            parts[-1] = parts[-1][:-1]
        return Glob(parts)

    def _ends_glob(self) -> bool:
        begin = self._at
        word = self._keyword("and", "or")
        self._at = begin
        return bool(word)

    def _regex(self) -> Regex:
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
            return Regex(pattern, start + 1)
        except PatternError as error:
            self._fail(f"Invalid regular expression: {error.reason}.", error.start, error.end)

    def _collection(self) -> Members:
        start = self._at
        self._at += 1
        token = self._token() if self._peek() not in SPACES else None
        if token is None or token.kind not in ("word", "text"):
            self._fail("Expected the name of a collection after '@'.", start + 1, start + 1)
        names = [*self._vocabulary.collections]
        name = self._named(token.value, names)
        if name is None:
            self._fail_at(token, f"Unknown collection {quoted(token.value)}.", names)
        return Members(name)

    def _comparison(self) -> Comparison:
        first = self._token()
        assert first is not None
        key = self._key_of(first)
        sign = self._expect("an operator such as '<'", first)
        if sign.kind != "sign":
            self._fail(f"Expected an operator such as '<', got {quoted(self._source(sign))}.", sign.start, sign.end)
        if sign.value not in _OPERATORS:
            self._fail(f"Unknown operator {quoted(sign.value)}.", sign.start, sign.end, _MEANT.get(sign.value))
        operator = "=" if sign.value == "==" else sign.value
        begin = self._at
        token = self._expect("a pattern" if operator == "~" else "a value", sign)
        if operator == "~":
            if not self._vocabulary.is_text(key):
                self._fail(f"'~' needs strings, and {quoted(key)} has numbers.", sign.start, sign.end, "=")
            self._at = begin
            self._skip()
            return Comparison(key, operator, self._pattern(), token.start, self._at)
        if token.kind not in ("word", "text"):
            self._fail(f"Expected a value, got {quoted(token.value)}.", token.start, token.end)
        value = Literal(token.value, _number(token.value) if token.kind == "word" else None)
        if operator not in ("=", "!="):
            if value.number is None:
                self._fail(f"'{operator}' needs a number, got {quoted(self._source(token))}.", token.start, token.end)
            if value.number != value.number:
                self._fail(f"'{operator}' cannot compare with nan; use = or !=.", token.start, token.end)
        return Comparison(key, operator, value, token.start, token.end)

    # ---------------------------------------------------------------------------------------------------------- stages

    @staticmethod
    def _named(word: str, names: Sequence[str]) -> str | None:
        """Return the name that a word means: the same one, or one of another case."""
        if word in names:
            return word
        lower = folded(word)
        return next((name for name in names if folded(name) == lower), None)

    def _stage(self) -> None:
        begin = self._at
        negated = bool(self._keyword("not"))
        _, _, signed = self._lookahead()
        if negated or signed or self._peek() == "(":
            self._at = begin
            self._filter(names=False)
            return
        first = self._token()
        assert first is not None
        if first.kind not in ("word", "text"):
            self._fail(f"Expected a stage, got {quoted(first.value)}.", first.start, first.end)
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
        elif word and (statistic := self._named(first.value, vocabulary.statistics)):
            if self._query.statistic is not None:
                self._fail_at(first, f"Two statistics: '{self._query.statistic}' and '{statistic}'.")
            self._query.statistic = statistic
            self._ends()
        elif self._named(first.value, vocabulary.keys) is not None:
            token = self._expect("an operator such as '<'", first)
            self._fail(f"Expected an operator such as '<', got {quoted(self._source(token))}.", token.start, token.end)
        else:
            self._fail_at(first, f"Unknown word {quoted(first.value)}.", self._words())

    def _words(self) -> list[str]:
        vocabulary = self._vocabulary
        stages = ["top", "sort", *(["steps"] if vocabulary.has_steps else []), *(["as"] if vocabulary.views else [])]
        return [*stages, "not", *vocabulary.statistics, *vocabulary.keys]

    def _key(self, before: _Token) -> str:
        return self._key_of(self._expect("a key", before))

    def _key_of(self, token: _Token) -> str:
        known = self._named(token.value, self._vocabulary.keys) if token.kind in ("word", "text") else None
        if known is None:
            self._fail_at(token, f"Unknown key {quoted(self._source(token))}.", self._vocabulary.keys)
        return known

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
        known = self._named(token.value, views) if token.kind == "word" else None
        if known is None:
            message = f"Unknown view {quoted(self._source(token))}; choose from {', '.join(views)}."
            self._fail_at(token, message, views)
        self._query.view = known
        self._ends()


def _number(word: str) -> float | None:
    lower = folded(word)
    if lower in _INFINITE:
        return _INFINITE[lower] * float("inf")
    if lower in _MISSING:
        return float("nan")
    return float(lower) if _NUMBER.fullmatch(lower) else None


def _whole(token: _Token) -> int | None:
    """Return a whole number that JavaScript can represent, or None."""
    if token.kind != "word" or not _WHOLE.fullmatch(token.value):
        return None
    digits = token.value.lstrip("0") or "0"
    number = int(digits) if len(digits) <= 16 else _LARGEST + 1
    return number if number <= _LARGEST else None
