"""Words of a query: case, white space, escaping and suggestions.

JavaScript has the same functions in ``js/src/query/words.ts``. They depend on no Unicode table, so that both give equal
results.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from smdwidgets._text import folded, typing_errors

#: White space: that of JavaScript's ``\s``.
SPACES: Final = frozenset(
    "\t\n\v\f\r \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
)
#: Maximum characters of a word in a message, and of a word that is checked for misspellings.
_SHOWN = 40
#: Maximum number of candidates of a suggestion.
_CANDIDATES = 1_000
#: Words of other tools.
_SYNONYMS: Final = {
    "norm": "l2",
    "rms": "size",
    "not_finite": "nonfinite",
    "nan": "nonfinite",
    "limit": "top",
    "head": "top",
    "order": "sort",
    "&&": "and",
    "!": "not",
}


def quoted(word: str) -> str:
    """Return a word for a message: in quotes, shortened and escaped.

    >>> quoted("a\\u202eb")
    "'a\\\\u202eb'"
    """
    short = word if len(word) <= _SHOWN else f"{word[: _SHOWN - 1]}…"
    return "'" + "".join(f"\\u{ord(char):04x}" if _is_hidden(ord(char)) else char for char in short) + "'"


def _is_hidden(code: int) -> bool:
    """Return whether a character is to be escaped.

    These are controls, direction marks, characters without width, and halves of pairs.
    """
    return (
        code < 0x20
        or 0x7F <= code <= 0x9F
        or code in (0xAD, 0x061C, 0xFEFF)
        or 0x200B <= code <= 0x200F
        or 0x2028 <= code <= 0x202E
        or 0x2060 <= code <= 0x2069
        or 0xD800 <= code <= 0xDFFF
    )


def closest(word: str, candidates: Iterable[str]) -> str | None:
    """Return the candidate that a word probably misspells, or None.

    At most two typing errors, and at most one in three characters; the first of equally close ones.

    >>> closest("tpo", ["sort", "top"]), closest("rms", ["size"]), closest("x", ["top"])
    ('top', 'size', None)
    """
    wrong = folded(word)
    known = list(candidates)[:_CANDIDATES]
    if _SYNONYMS.get(wrong) in known:
        return _SYNONYMS[wrong]
    if len(wrong) > _SHOWN:
        return None
    best, fewest = None, 3
    for candidate in known:
        longer = max(len(wrong), len(candidate))
        allowed = min(2, longer // 3, fewest - 1)
        if (
            abs(len(wrong) - len(candidate)) <= allowed
            and (errors := typing_errors(wrong, folded(candidate))) <= allowed
        ):
            best, fewest = candidate, errors
    return best
