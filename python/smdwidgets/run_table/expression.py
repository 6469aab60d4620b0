"""Expressions that filter runs, such as ``hparams.lr < 0.01``.

======================  =====================================================================================
``name``                a column, else a hyperparameter, else the last value of a curve; quote others: `` `val loss` ``
``min(name)`` …         ``first``, ``last``, ``min``, ``max``, ``best``, ``count`` of a curve
``== != < <= > >=``     compare; a comparison with a missing value is false
``~``                   the text matches the regular expression, anywhere
``== none``             is missing; ``!= none`` is not
``and or not ( )``      combine
``1e-3 'text' true``    numbers, text, ``true``, ``false``, ``none``
======================  =====================================================================================

The text is parsed, never executed.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from smdwidgets._text import shown
from smdwidgets.exceptions import SMDebugValueError
from smdwidgets.trials.patterns import Patterns, compile_pattern

#: Returns the value of a name; the second argument is the function that is applied to it, or None.
Lookup = Callable[[str, str | None], Any]
Predicate = Callable[[Lookup], Any]

FUNCTIONS: Final = ("first", "last", "min", "max", "best", "count")
_LONGEST = 10_000
_DEEPEST = 50
_TOKEN = re.compile(
    r"""\s*(?:
    (?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)
    | '(?P<single>[^']*)' | "(?P<double>[^"]*)" | `(?P<quoted>[^`]*)`
    | (?P<name>[^\W\d][\w./]*)
    | (?P<sign>==|!=|<=|>=|<|>|=|~|\(|\)|-|&&|\|\||!)
    )""",
    re.VERBOSE,
)
_COMPARE: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "==": operator.eq,
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


def _constant(value: Any) -> Predicate:
    return lambda lookup: value


_NONE = _constant(None)
_CONSTANTS: Final = {"true": _constant(True), "false": _constant(False), "none": _NONE}


def compile_expression(text: str) -> Predicate:
    """Parse an expression and return a function that evaluates it for one run.

    >>> fast = compile_expression("lr < 0.01 and not name ~ 'test'")
    >>> fast(lambda name, function: {"lr": 0.001, "name": "a"}[name])
    True
    """
    if not isinstance(text, str):
        raise SMDebugValueError(f"expression must be a string, got {type(text).__name__}")
    if len(text) > _LONGEST:
        raise SMDebugValueError(f"expression has {len(text):,} characters; the maximum is {_LONGEST:,}")
    parser = _Parser(text)
    found = parser.either(0)
    if parser.token is not None:
        raise parser.error(f"unexpected {parser.token.text!r}")
    return lambda lookup: bool(found(lookup))


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(self._split())
        self._next = 0
        self._patterns = Patterns()

    @property
    def token(self) -> _Token | None:
        return self._tokens[self._next] if self._next < len(self._tokens) else None

    def error(self, what: str) -> SMDebugValueError:
        at = len(self._text) if self.token is None else self.token.at
        return SMDebugValueError(f"invalid expression {shown(self._text, 200)}: {what} at character {at + 1}")

    def _split(self) -> list[_Token]:
        tokens, at, end = [], 0, len(self._text.rstrip())
        while at < end:
            match = _TOKEN.match(self._text, at)
            if match is None:
                message = f"unexpected {self._text[at : at + 1].strip() or self._text[at : at + 2]!r}"
                raise SMDebugValueError(f"invalid expression {shown(self._text, 200)}: {message} at character {at + 1}")
            kind = str(match.lastgroup)
            tokens.append(_Token(kind, match[kind], match.start(kind)))
            at = match.end()
        return tokens

    def _take(self, *texts: str) -> _Token | None:
        token = self.token
        if token is None or token.kind not in ("sign", "name") or token.text not in texts:
            return None
        self._next += 1
        return token

    def either(self, depth: int) -> Predicate:
        parts = [self._both(depth)]
        while self._take("or", "||"):
            parts.append(self._both(depth))
        return parts[0] if len(parts) == 1 else lambda lookup: any(part(lookup) for part in parts)

    def _both(self, depth: int) -> Predicate:
        parts = [self._negated(depth)]
        while self._take("and", "&&"):
            parts.append(self._negated(depth))
        return parts[0] if len(parts) == 1 else lambda lookup: all(part(lookup) for part in parts)

    def _negated(self, depth: int) -> Predicate:
        if depth > _DEEPEST:
            raise self.error("nested too deeply")
        if self._take("not", "!"):
            part = self._negated(depth + 1)
            return lambda lookup: not part(lookup)
        return self._compared(depth)

    def _compared(self, depth: int) -> Predicate:
        left = self._value(depth)
        if self._take("~"):
            token = self.token
            if token is None or token.kind not in ("single", "double"):
                raise self.error("~ needs a pattern in quotes")
            try:
                compile_pattern(token.text)
            except re.error as error:
                raise self.error(f"invalid pattern: {error}") from None
            self._next += 1
            return lambda lookup: _matches(self._patterns, token.text, left(lookup))
        sign = self._take(*_COMPARE)
        if sign is None:
            return left
        right = self._value(depth)
        compare = _COMPARE[sign.text]
        if (left is _NONE or right is _NONE) and compare in (operator.eq, operator.ne):
            return lambda lookup: bool(compare(left(lookup) is None, right(lookup) is None))
        return lambda lookup: _compare(compare, left(lookup), right(lookup))

    def _value(self, depth: int) -> Predicate:
        token = self.token
        if token is None:
            raise self.error("expected a value")
        if self._take("("):
            inner = self.either(depth + 1) if depth < _DEEPEST else None
            if inner is None or not self._take(")"):
                raise self.error("expected )" if inner else "nested too deeply")
            return inner
        if self._take("-"):
            number = self.token
            if number is None or number.kind != "number":
                raise self.error("- needs a number")
            self._next += 1
            return _constant(-float(number.text))
        self._next += 1
        if token.kind == "number":
            return _constant(float(token.text))
        if token.kind in ("single", "double"):
            return _constant(token.text)
        if token.kind == "name" and token.text.lower() in _CONSTANTS:
            return _CONSTANTS[token.text.lower()]
        if token.kind in ("name", "quoted"):
            if token.kind == "name" and token.text in FUNCTIONS and self._take("("):
                of = self.token
                if of is None or of.kind == "sign" or of.kind == "number":
                    raise self.error("expected the name of a curve")
                self._next += 1
                if not self._take(")"):
                    raise self.error("expected )")
                return lambda lookup: lookup(of.text, token.text)
            return lambda lookup: lookup(token.text, None)
        self._next -= 1
        raise self.error(f"unexpected {token.text!r}")


def _matches(patterns: Patterns, pattern: str, value: Any) -> bool:
    return value is not None and bool(patterns.matching([pattern], [str(value)]))


def _compare(compare: Callable[[Any, Any], Any], left: Any, right: Any) -> bool:
    if left is None or right is None:
        return False
    try:
        return bool(compare(left, right))
    except TypeError:
        return False  # a number and a text have no order
