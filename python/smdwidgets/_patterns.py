"""Patterns of names: which tensors, collections and runs match.

Two syntaxes, one engine:

* **Regular expressions of** ``re`` (:func:`compile_pattern`, :class:`Patterns`) for ``tensor_names(regex=...)``,
  collections and groups of runs. Collections contain look-ahead, which needs a backtracking engine.
* **Queries** (:class:`Glob`, :class:`Regex`): text with ``*``, and the regular expressions that Python and JavaScript
  understand alike. ``js/src/query/pattern.ts`` accepts the same ones. Both ignore the case of ASCII letters.

A backtracking engine takes exponential time for patterns such as ``(a|aa)+$``. Python's ``re`` has no timeout; the
``regex`` package has one. So ``re`` validates a pattern (for its well-known error messages), and ``regex`` matches it,
with a time limit. ``regex`` has additional syntax (``{e<=1}`` for fuzzy matches, ``[[:alpha:]]``). It is escaped, so
that a pattern has the same meaning as in ``re``.
"""

from __future__ import annotations

import re
import threading
import time
import warnings
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from smdwidgets._text import folded, shown
from smdwidgets.exceptions import RegexTooSlow, SMDebugValueError

if TYPE_CHECKING:
    import regex

#: Time limit in seconds for one pattern over all names of one query.
LIMIT = 2.0
#: Maximum characters of a pattern: longer ones take minutes to compile.
LONGEST = 10_000
#: Maximum parts of a pattern with repetitions expanded: ``((a{1000}){1000}){1000}`` would exhaust memory.
LARGEST = 100_000
#: Characters of a name that simple patterns search without a timeout.
_SHORT = 200
#: Maximum number of patterns in the cache.
_CACHED = 64


class Glob:
    """Literal parts that occur in a name in order, anywhere.

    >>> Glob(["layers.", ".q_proj"]).matches("model.Layers.3.q_proj.weight")
    True
    """

    def __init__(self, parts: Sequence[str]) -> None:
        self.parts = [folded(part) for part in parts if part]

    def matches(self, name: str) -> bool:
        """Return whether a name matches."""
        lower, offset = folded(name), 0
        for part in self.parts:
            index = lower.find(part, offset)
            if index < 0:
                return False
            offset = index + len(part)
        return True


class Regex:
    r"""A regular expression of a query, found anywhere in a name.

    >>> Regex(r"layers\.\d+\.(q|k)_proj$").matches("model.layers.3.K_PROJ")
    True
    """

    def __init__(self, pattern: str, offset: int = 0, limit: float = LIMIT) -> None:
        """Compile a pattern that starts at an offset of a text. Raises PatternError.

        ``limit`` is in seconds, for all names together.
        """
        self._pattern, self._limit, self._left = pattern, limit, limit
        self._compiled = _compiled_source(_Subset(pattern, offset).translate())

    def matches(self, name: str) -> bool:
        """Return whether the pattern is found in a name. Raises RegexTooSlow."""
        begin = time.monotonic()
        try:
            return _search(self._compiled, folded(name), self._left)
        except TimeoutError:
            raise RegexTooSlow(self._pattern, self._limit) from None
        finally:
            self._left -= time.monotonic() - begin


class Patterns:
    """Match names against regular expressions of ``re`` and cache the results by name.

    >>> Patterns().matching(["bias$"], ["fc1.weight", "fc1.bias"])
    {'fc1.bias'}
    """

    def __init__(self, limit: float = LIMIT) -> None:
        self._limit = limit
        self._cache: OrderedDict[str, tuple[regex.Pattern[str], dict[str, bool]]] = OrderedDict()
        self._lock = threading.Lock()

    def matching(self, patterns: Iterable[str], names: Sequence[str]) -> set[str]:
        """Return the names in which any pattern is found (``search``, not ``match``)."""
        matches: set[str] = set()
        for pattern in patterns if names else ():
            matches |= self._matching(pattern, names)
        return matches

    def _matching(self, pattern: str, names: Sequence[str]) -> set[str]:
        with self._lock:
            if pattern not in self._cache:
                self._cache[pattern] = compile_pattern(pattern), {}
            self._cache.move_to_end(pattern)
            compiled, answers = self._cache[pattern]
            while len(self._cache) > _CACHED:
                self._cache.popitem(last=False)
        deadline = time.monotonic() + self._limit
        # Of very many names, most are found without another call.
        is_simple, search = _is_simple(compiled.pattern), compiled.search
        for name in names:
            if name in answers:
                continue
            if is_simple and len(name) <= _SHORT:
                answers[name] = search(name) is not None
            else:
                try:
                    answers[name] = _search(compiled, name, deadline - time.monotonic())
                except TimeoutError:
                    raise RegexTooSlow(pattern, self._limit) from None
        return {name for name in names if answers[name]}


def _search(compiled: regex.Pattern[str], name: str, seconds: float) -> bool:
    """Return whether a pattern matches a name.

    Raises TimeoutError after some seconds.
    """
    if seconds <= 0:
        raise TimeoutError
    if len(name) <= _SHORT and _is_simple(compiled.pattern):
        return compiled.search(name) is not None
    # `concurrent` releases the GIL.
    return compiled.search(name, timeout=seconds, concurrent=True) is not None


@lru_cache(maxsize=512)
def _is_simple(source: str) -> bool:
    """Return whether few steps find a pattern in a short name.

    A timeout costs ten times as much.

    >>> _is_simple("^(?!gradient).*weight"), _is_simple("(a|aa)+$")
    (True, False)
    """
    branches, before = 0, ""
    for token in _tokens(source):
        if token in ("*", "+", "?") or _TIMES.fullmatch(token) or token.startswith("{,"):
            if before == ")":
                return False
            branches += 4 if before != "(" else 0  # two repetitions at most
        elif token == "|":
            branches += 1
        elif token[:1] == "\\" and token[1:].isdigit():  # a back reference
            return False
        before = token
    return branches <= 8


# ------------------------------------------------------------------------------------------------------- syntax of `re`


def compile_pattern(pattern: str) -> regex.Pattern[str]:
    """Compile a pattern for matching with a timeout; raise ``re.error`` like ``re``.

    >>> bool(compile_pattern("^(?!gradient).*weight").search("fc1.weight", timeout=1))
    True
    """
    if not isinstance(pattern, str):
        raise TypeError(f"regex must be a string, got {type(pattern).__name__}")
    if len(pattern) > LONGEST:
        raise SMDebugValueError(f"pattern {shown(pattern)} has {len(pattern):,} characters; the maximum is {LONGEST:,}")
    return _compiled(pattern)


def may_be_found(pattern: str, prefix: str) -> bool:
    """Whether a pattern may be found in a name that begins like this.

    >>> may_be_found("^optimizer/.+_[0-9]", "fc1_output_"), may_be_found("out.*_[0-9]", "fc1_output_")
    (False, True)
    """
    if "(?" in pattern:  # what a lookahead excludes may come later
        return True
    try:
        return compile_pattern(pattern).search(prefix, partial=True, timeout=LIMIT, concurrent=True) is not None
    except TimeoutError:
        return True


def is_found(pattern: str, name: str) -> bool:
    """Return whether a pattern is found in a name.

    Raises ``re.error`` and RegexTooSlow.

    >>> is_found("^fc[0-9]", "fc1.weight")
    True
    """
    try:
        return _search(compile_pattern(pattern), name, LIMIT)
    except TimeoutError:
        raise RegexTooSlow(pattern, LIMIT) from None


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> regex.Pattern[str]:
    with warnings.catch_warnings():
        # `re` warns that `[[` may mean a nested set in a future version.
        warnings.simplefilter("ignore", FutureWarning)
        try:
            re.compile(pattern)
            if _expanded_size(pattern) > LARGEST:
                raise OverflowError("nested repetitions are too large")
            return _compiled_source("".join(_tokens(pattern)))
        except RecursionError:
            raise SMDebugValueError(f"cannot compile pattern {shown(pattern)}: groups are nested too deeply") from None
        except OverflowError as error:
            raise SMDebugValueError(f"cannot compile pattern {shown(pattern)}: {error}") from None


@lru_cache(maxsize=256)
def _compiled_source(source: str) -> regex.Pattern[str]:
    import regex  # takes 40 ms, and most processes match no pattern

    return regex.compile(source, regex.VERSION0)


def _expanded_size(pattern: str) -> int:
    """Estimate the size of a pattern with repetitions expanded, as `regex` does.

    >>> _expanded_size("((ab){10}){10}c")
    201
    """
    outer: list[int] = []
    whole = last = 0
    for token in _tokens(pattern):
        if token == "(":
            outer.append(whole)
            whole = 0
            continue
        if token == ")" and outer:
            last = whole
            whole += outer.pop()
        elif times := _TIMES.fullmatch(token):
            whole += last * (int(times[1]) - 1)
            last *= int(times[1])
        else:
            last = 1
            whole += 1
        if whole > LARGEST:
            break
    return whole


_TIMES: Final = re.compile(r"\{(\d+)(?:,\d*)?\}")

_TOKEN: Final = re.compile(
    r"""
    \\N\{[^}]*\}          # a named character
    | \\.                 # an escape
    | \{(?:\d+(?:,\d*)?|,\d*)\}   # a repetition
    | (?P<brace>\{)       # any other brace is a literal
    | (?P<set>\[\^?\]?)   # start of a set; an immediate closing bracket is a literal
    | .
    """,
    re.VERBOSE | re.DOTALL,
)


def _tokens(pattern: str) -> Iterator[str]:
    """Yield the tokens of a pattern; escape literals that `regex` would interpret."""
    offset, inside = 0, False
    while offset < len(pattern):
        token = _TOKEN.match(pattern, offset)
        assert token is not None  # the last alternative matches any character
        text = token.group()
        offset = token.end()
        if not inside:
            inside = token.group("set") is not None
            yield "\\{" if token.group("brace") else text
        elif text.startswith("["):
            # Within a set, `re` treats an opening bracket as a literal.
            offset = token.start() + 1
            yield "\\["
        elif text.startswith("{") and len(text) > 1:
            offset = token.start() + 1
            yield "{"
        else:
            inside = text != "]"
            yield text


# ---------------------------------------------------------------------------------------------------- syntax of queries

#: Maximum depth of groups, repetitions of one part, and parts with repetitions expanded.
_DEEPEST, _MOST_TIMES, _MOST_PARTS = 50, 1_000, 2_000
_LAST = 0x10FFFF

Ranges = tuple[tuple[int, int], ...]

_CLASSES: Final[dict[str, Ranges]] = {
    "d": ((48, 57),),
    "w": ((48, 57), (65, 90), (95, 95), (97, 122)),
    "s": ((9, 13), (32, 32)),
}
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r"}
_WORD: Final = "[0-9A-Za-z_]"
#: Assertions as `regex` has them.
_ASSERTIONS: Final = {
    "^": r"\A",
    "$": r"\Z",
    "b": f"(?:(?<={_WORD})(?!{_WORD})|(?<!{_WORD})(?={_WORD}))",
    "B": f"(?:(?<={_WORD})(?={_WORD})|(?<!{_WORD})(?!{_WORD}))",
}


class PatternError(Exception):
    """A regular expression of a query is invalid."""

    def __init__(self, start: int, end: int, reason: str) -> None:
        super().__init__(reason)
        self.start, self.end, self.reason = start, end, reason


class _Part(NamedTuple):
    """The translation of a part, and its number of parts after expansion."""

    source: str
    size: int
    is_assertion: bool = False


class _Subset:
    """Validates a regular expression of a query, and translates it for `regex`."""

    def __init__(self, pattern: str, offset: int) -> None:
        self._pattern, self._offset, self._next = pattern, offset, 0

    def translate(self) -> str:
        part = self._alternatives(0)
        if self._next < len(self._pattern):
            raise self._error(self._next, "')' without '('; write \\) for the character")
        if part.size > _MOST_PARTS:
            raise self._error(0, "the pattern is too large", len(self._pattern))
        return part.source

    def _error(self, start: int, reason: str, end: int | None = None) -> PatternError:
        return PatternError(self._offset + start, self._offset + (start + 1 if end is None else end), reason)

    def _peek(self, length: int = 1) -> str:
        return self._pattern[self._next : self._next + length]

    def _alternatives(self, depth: int) -> _Part:
        parts = [self._sequence(depth)]
        while self._peek() == "|":
            self._next += 1
            parts.append(self._sequence(depth))
        if len(parts) == 1:
            return parts[0]
        return _Part(f"(?:{'|'.join(part.source for part in parts)})", 1 + sum(part.size for part in parts))

    def _sequence(self, depth: int) -> _Part:
        parts: list[_Part] = []
        while self._next < len(self._pattern) and self._peek() not in "|)":
            parts.append(self._repeated(self._atom(depth)))
        return _Part("".join(part.source for part in parts), 1 + sum(part.size for part in parts))

    def _repeated(self, part: _Part) -> _Part:
        start = self._next
        char = self._peek()
        if char not in ("*", "+", "?", "{"):
            return part
        if part.is_assertion:
            raise self._error(start, "nothing to repeat")
        self._next += 1
        least, most = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(char) or self._times(start)
        if self._peek() == "?":
            self._next += 1  # whether the shortest or the longest match is found makes no difference
        if self._peek() in ("*", "+", "?", "{"):
            raise self._error(self._next, "nothing to repeat")
        size = 1 + part.size * (least + 1 if most is None else most)
        source = part.source if part.size == 1 else f"(?:{part.source})"
        return _Part(f"{source}{{{least},{'' if most is None else most}}}", size)

    def _times(self, start: int) -> tuple[int, int | None]:
        low = self._digits()
        comma = self._peek() == ","
        self._next += comma
        high = self._digits() if comma else low
        if not low or self._peek() != "}":
            raise self._error(start, "invalid repetition; write \\{ for the character")
        self._next += 1
        numbers = [int(digits[:8]) for digits in (low, high) if digits]
        if max(numbers) > _MOST_TIMES:
            raise self._error(start, f"more than {_MOST_TIMES} repetitions", self._next)
        if numbers[0] > numbers[-1]:
            raise self._error(start, "minimum of a repetition exceeds its maximum", self._next)
        return numbers[0], numbers[1] if len(numbers) > 1 else None

    def _digits(self) -> str:
        begin = self._next
        while "0" <= self._peek() <= "9":
            self._next += 1
        return self._pattern[begin : self._next].lstrip("0") or self._pattern[begin : self._next][:1]

    def _atom(self, depth: int) -> _Part:
        start = self._next
        char = self._peek()
        self._next += 1
        if char == "(":
            return self._group(start, depth)
        if char == "[":
            return self._set(start)
        if char == "\\":
            escaped = self._escaped(start, inside=False)
            return escaped if isinstance(escaped, _Part) else _set_of(escaped)
        if char == ".":
            return _Part("(?s:.)", 1)
        if char in "^$":
            return _Part(_ASSERTIONS[char], 1, is_assertion=True)
        if char in "*+?":
            raise self._error(start, "nothing to repeat")
        if char in "{}]":
            raise self._error(start, f"write \\{char} for the character")
        return _set_of(((ord(char), ord(char)),))

    def _group(self, start: int, depth: int) -> _Part:
        if depth >= _DEEPEST:
            raise self._error(start, "groups are nested too deeply")
        if self._peek() == "?":
            if self._peek(2) != "?:":
                raise self._error(start, "look-around, flags and named groups are not supported", self._next + 1)
            self._next += 2
        part = self._alternatives(depth + 1)
        if self._peek() != ")":
            raise self._error(start, "'(' without ')'; write \\( for the character")
        self._next += 1
        return part

    def _escaped(self, start: int, inside: bool) -> Ranges | _Part:
        """Return the characters or the assertion of an escape, whose backslash was read."""
        char = self._peek()
        self._next += 1
        if not char:
            raise self._error(start, "nothing after the backslash")
        if char.isascii() and char.lower() in _CLASSES:
            ranges = _CLASSES[char.lower()]
            return ranges if char.islower() else _complement(ranges)
        if char in "bB" and not inside:
            return _Part(_ASSERTIONS[char], 1, is_assertion=True)
        if char.isascii() and char.isalnum() and char not in _CONTROLS:
            raise self._error(start, f"escape '\\{char}' is not supported", self._next)
        code = ord(_CONTROLS.get(char, char))
        return ((code, code),)

    def _set(self, start: int) -> _Part:
        negated = self._peek() == "^"
        self._next += negated
        ranges: list[tuple[int, int]] = []
        if self._peek() == "]":
            raise self._error(start, "empty set; write \\] for the character", self._next + 1)
        while self._peek() != "]":
            begin = self._next
            is_class, first = self._member(start)
            if not is_class and self._peek() == "-" and self._peek(2) not in ("-", "-]"):
                self._next += 1
                is_class, last = self._member(start)
                if is_class or last < first:
                    raise self._error(begin, "invalid range", self._next)
                first = ((first[0][0], last[0][1]),)
            ranges += first
        self._next += 1
        return _set_of(tuple(ranges), negated)

    def _member(self, start: int) -> tuple[bool, Ranges]:
        """Return the next part of a set: whether it is a class, and its characters."""
        begin, char = self._next, self._peek()
        if not char:
            raise self._error(start, "'[' without ']'; write \\[ for the character")
        self._next += 1
        if char != "\\":
            return False, ((ord(char), ord(char)),)
        is_class = self._peek().lower() in _CLASSES and self._peek().isascii()
        ranges = self._escaped(begin, inside=True)
        assert not isinstance(ranges, _Part)
        return is_class, ranges


def _complement(ranges: Ranges) -> Ranges:
    gaps, begin = [], 0
    for low, high in ranges:  # sorted, and apart from each other
        gaps.append((begin, low - 1))
        begin = high + 1
    return (*gaps, (begin, _LAST))


def _set_of(ranges: Ranges, negated: bool = False) -> _Part:
    """Return a set of characters, with ASCII letters in both cases."""
    if len(ranges) == 1 and ranges[0][0] == ranges[0][1] and not negated:
        return _Part(f"\\U{ord(folded(chr(ranges[0][0]))):08x}", 1)
    both = list(ranges)
    for low, high in ranges:
        for first, last, shift in ((65, 90, 32), (97, 122, -32)):
            begin, end = max(low, first), min(high, last)
            if begin <= end:
                both.append((begin + shift, end + shift))
    members = "".join(f"\\U{low:08x}-\\U{high:08x}" for low, high in dict.fromkeys(both))
    return _Part(f"[{'^' if negated else ''}{members}]", 1)
