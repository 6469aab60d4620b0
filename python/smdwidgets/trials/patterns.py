"""Match untrusted patterns with a time limit.

Collection files contain patterns with look-ahead, which need a backtracking engine. Such an engine takes exponential time
for patterns such as ``(a+)+$``. Python's ``re`` has no timeout; the ``regex`` package has one. So ``re`` validates a pattern
(for its well-known error messages), and ``regex`` matches it.

``regex`` has additional syntax (``{e<=1}`` for fuzzy matches, ``[[:alpha:]]``). It is escaped, so that a pattern has the
same meaning as in ``re``.
"""

from __future__ import annotations

import re
import threading
import time
import warnings
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from smdwidgets._text import shown
from smdwidgets.exceptions import RegexTooSlow, SMDebugValueError

if TYPE_CHECKING:
    import regex

#: Time limit in seconds for one pattern over all names of one query.
LIMIT = 2.0
#: Maximum characters of a pattern: longer ones take minutes to compile.
LONGEST = 10_000
#: Maximum parts of a pattern with repetitions expanded: ``((a{1000}){1000}){1000}`` would exhaust memory.
LARGEST = 100_000
#: Maximum number of patterns in the cache.
_KEPT = 64


class Patterns:
    """Match names against patterns and cache the results by name.

    >>> Patterns().matching(["bias$"], ["fc1.weight", "fc1.bias"])
    {'fc1.bias'}
    """

    def __init__(self, limit: float = LIMIT) -> None:
        self._limit = limit
        self._known: OrderedDict[str, tuple[regex.Pattern[str], dict[str, bool]]] = OrderedDict()
        self._lock = threading.Lock()

    def matching(self, patterns: Iterable[str], names: Sequence[str]) -> set[str]:
        """Return the names in which any pattern is found (``search``, not ``match``)."""
        found: set[str] = set()
        for pattern in patterns if names else ():
            found |= self._one(pattern, names)
        return found

    def _one(self, pattern: str, names: Sequence[str]) -> set[str]:
        with self._lock:
            if pattern not in self._known:
                self._known[pattern] = compile_pattern(pattern), {}
            self._known.move_to_end(pattern)
            compiled, answers = self._known[pattern]
            while len(self._known) > _KEPT:
                self._known.popitem(last=False)
        until = time.monotonic() + self._limit
        for name in names:
            if name not in answers:
                left = until - time.monotonic()
                try:
                    if left <= 0:
                        raise TimeoutError
                    # `concurrent` releases the GIL.
                    answers[name] = compiled.search(name, timeout=left, concurrent=True) is not None
                except TimeoutError:
                    raise RegexTooSlow(pattern, self._limit) from None
        return {name for name in names if answers[name]}


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


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> regex.Pattern[str]:
    import regex  # takes 40 ms, and most processes match no pattern

    with warnings.catch_warnings():
        # `re` warns that `[[` may mean a nested set in a future version.
        warnings.simplefilter("ignore", FutureWarning)
        try:
            re.compile(pattern)
            if _expanded_size(pattern) > LARGEST:
                raise OverflowError("nested repetitions are too large")
            return regex.compile(_escape_for_regex(pattern), regex.VERSION0)
        except RecursionError:
            raise SMDebugValueError(f"cannot compile pattern {shown(pattern)}: groups are nested too deeply") from None
        except OverflowError as error:
            raise SMDebugValueError(f"cannot compile pattern {shown(pattern)}: {error}") from None


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


_TIMES = re.compile(r"\{(\d+)(?:,\d*)?\}")

_TOKEN = re.compile(
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
    at, inside = 0, False
    while at < len(pattern):
        token = _TOKEN.match(pattern, at)
        assert token is not None  # the last alternative matches any character
        text = token.group()
        at = token.end()
        if not inside:
            inside = token.group("set") is not None
            yield "\\{" if token.group("brace") else text
        elif text.startswith("["):
            # Within a set, `re` treats an opening bracket as a literal.
            at = token.start() + 1
            yield "\\["
        elif text.startswith("{") and len(text) > 1:
            at = token.start() + 1
            yield "{"
        else:
            inside = text != "]"
            yield text


def _escape_for_regex(pattern: str) -> str:
    return "".join(_tokens(pattern))
