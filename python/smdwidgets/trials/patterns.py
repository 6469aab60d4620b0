"""Patterns from others, bounded in time.

Collection files bring patterns of their own, with look-ahead, which only a backtracking engine can run; and such an engine
can be led into years of work by ``(a+)+$``. Python's ``re`` can't be stopped once it has begun. The ``regex`` package can:
it looks at a clock while it matches. So ``re`` says whether a pattern is one (its errors are what people know), and ``regex``
matches it.

``regex`` gives a few more characters a meaning (``{e<=1}`` for fuzzy matches, ``[[:alpha:]]``); they are escaped, so that a
pattern means here what it means in ``re``.
"""

from __future__ import annotations

import re
import threading
import time
import warnings
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence

import regex

from smdwidgets._text import shown
from smdwidgets.exceptions import RegexTooSlow, SMDebugValueError

#: Seconds that one pattern may take over all names of one question.
LIMIT = 2.0
#: Characters of a pattern: a longer one takes minutes to compile.
LONGEST = 10_000
#: Parts of a pattern whose repetitions are written out: ``((a{1000}){1000}){1000}`` would take all memory.
LARGEST = 100_000
#: Patterns whose answers are kept.
_KEPT = 64


class Patterns:
    """Which names match a pattern, remembered: a question about a grown list of names costs only the new ones.

    >>> Patterns().matching(["bias$"], ["fc1.weight", "fc1.bias"])
    {'fc1.bias'}
    """

    def __init__(self, limit: float = LIMIT) -> None:
        self._limit = limit
        self._known: OrderedDict[str, tuple[regex.Pattern[str], dict[str, bool]]] = OrderedDict()
        self._lock = threading.Lock()

    def matching(self, patterns: Iterable[str], names: Sequence[str]) -> set[str]:
        """The names in which any of the patterns is found (``search``, not ``match``)."""
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
                    # `concurrent` lets other threads run meanwhile.
                    answers[name] = compiled.search(name, timeout=left, concurrent=True) is not None
                except TimeoutError:
                    raise RegexTooSlow(pattern, self._limit) from None
        return {name for name in names if answers[name]}


def compile_pattern(pattern: str) -> regex.Pattern[str]:
    """The pattern, to be run with a time limit. Raises ``re.error`` where ``re`` would.

    >>> bool(compile_pattern("^(?!gradient).*weight").search("fc1.weight", timeout=1))
    True
    """
    if not isinstance(pattern, str):
        raise TypeError(f"A regex is a string, not {type(pattern).__name__}.")
    if len(pattern) > LONGEST:
        raise SMDebugValueError(
            f"A pattern of {len(pattern):,} characters, {shown(pattern)}: {LONGEST:,} are the most."
        )
    with warnings.catch_warnings():
        # `re` warns of `[[`, which may one day mean a nested set; it does not yet.
        warnings.simplefilter("ignore", FutureWarning)
        try:
            re.compile(pattern)
            if _written_out(pattern) > LARGEST:
                raise OverflowError("its repetitions within repetitions are too many")
            return regex.compile(_as_re_means_it(pattern), regex.VERSION0)
        except RecursionError:
            raise SMDebugValueError(f"The pattern {shown(pattern)} can't be used: its groups are too deep.") from None
        except OverflowError as error:
            raise SMDebugValueError(f"The pattern {shown(pattern)} can't be used: {error}.") from None


def _written_out(pattern: str) -> int:
    """About how many parts a pattern has once its repetitions are written out, which is what `regex` does with them.

    >>> _written_out("((ab){10}){10}c")
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
    \\N\{[^}]*\}          # a character by its name
    | \\.                 # an escape
    | \{(?:\d+(?:,\d*)?|,\d*)\}   # a repetition
    | (?P<brace>\{)       # any other brace stands for itself
    | (?P<set>\[\^?\]?)   # a set begins; a bracket that closes at once belongs to it
    | .
    """,
    re.VERBOSE | re.DOTALL,
)


def _tokens(pattern: str) -> Iterator[str]:
    """The parts of a pattern that mean something as they stand; what stands for itself is escaped where `regex` differs."""
    at, inside = 0, False
    while at < len(pattern):
        token = _TOKEN.match(pattern, at)
        assert token is not None  # the last alternative takes any character
        text = token.group()
        at = token.end()
        if not inside:
            inside = token.group("set") is not None
            yield "\\{" if token.group("brace") else text
        elif text.startswith("["):
            # In a set of `re` a bracket stands for itself.
            at = token.start() + 1
            yield "\\["
        elif text.startswith("{") and len(text) > 1:
            at = token.start() + 1
            yield "{"
        else:
            inside = text != "]"
            yield text


def _as_re_means_it(pattern: str) -> str:
    return "".join(_tokens(pattern))
