"""Text helpers for messages: escaping, spelling suggestions, natural sorting."""

from __future__ import annotations

import difflib
import html
import math
import re
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import islice

#: Maximum characters of a name in a message. A name may come from an untrusted file.
_SHOWN = 120
#: Maximum characters of a name in a sentence of a finding.
_QUOTED = 160
#: Maximum number of candidates for a suggestion, so that an error does not take seconds.
_CANDIDATES = 20_000
#: Maximum characters of a name that is checked for misspellings.
_MISSPELT = 40
_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}


class ShownAsText:
    """A result that a prompt and a notebook show as its text.

    A data class that inherits it has ``repr=False``.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


def visible(text: object, limit: int | None = None, lines: bool = False) -> str:
    """Escape characters that are not printable.

    These include control characters, text direction marks and lone surrogates. ``lines`` keeps line breaks; ``limit``
    truncates the text.

    >>> visible("a\\x1b[2Jb\\u202ec")
    'a\\\\x1b[2Jb\\\\u202ec'
    """
    content = str(text)
    if limit is not None and len(content) > limit:
        content = content[: limit - 1] + "…"
    if content.isprintable():
        return content
    return "".join(
        char if char.isprintable() or (lines and char == "\n") else char.encode("unicode_escape").decode()
        for char in content
    )


def quoted(name: str) -> str:
    """Return a name between backquotes, escaped.

    The middle of a very long name is left out: its start says whether it is a gradient.

    >>> quoted("gradient/fc1.weight")
    '`gradient/fc1.weight`'
    """
    if len(name) > _QUOTED:
        name = f"{name[: _QUOTED // 3]}…{name[_QUOTED // 3 - _QUOTED + 1 :]}"
    escaped = visible(name).replace("`", "'")
    return f"`{escaped}`"


def underlined(text: str, start: int, end: int, width: int = 100) -> tuple[str, str]:
    """Return the part of a text around a place, and a line of ``^`` below it.

    >>> print("\\n".join(underlined("a | tpo 3", 4, 7)))
    a | tpo 3
        ^^^
    """
    begin = max(0, min(start - width // 2, len(text) - width))
    part = text[begin : begin + width]
    cells = [visible(char) for char in part]
    columns = [sum(map(_columns, cell)) for cell in cells]
    dots = "…" if begin else ""
    before = len(dots) + sum(columns[: start - begin])
    marked = max(1, sum(columns[start - begin : end - begin]))
    line = dots + "".join(cells) + ("…" if begin + width < len(text) else "")
    return line, " " * before + "^" * marked


def _columns(char: str) -> int:
    """Return the width of a character in a terminal."""
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def markup(text: object, limit: int | None = None) -> str:
    """Escape text for HTML, including characters that are not printable.

    >>> markup("<b>\\x1b</b>")
    '&lt;b&gt;\\\\x1b&lt;/b&gt;'
    """
    return html.escape(visible(text, limit))


def capitalized(text: str) -> str:
    """Return a text as a sentence begins.

    >>> capitalized("skip this batch; keep `lr`")
    'Skip this batch; keep `lr`'
    """
    return text[:1].upper() + text[1:]


def json_number(value: float) -> float | str:
    """Return a number as JSON has it; NaN and infinities are strings.

    >>> json_number(0.5), json_number(float("nan"))
    (0.5, 'nan')
    """
    return value if math.isfinite(value) else str(value)


def shown(name: object, limit: int = _SHOWN) -> str:
    """Return a quoted, escaped and truncated name.

    >>> shown("a\\nb")
    "'a\\\\nb'"
    """
    text = repr(name[: 2 * limit] if isinstance(name, str) else name)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def nearest(wrong: str, candidates: Iterable[str], n: int = 3) -> list[str]:
    """Return the most similar candidates, best first.

    >>> nearest("gradient", ["losses", "gradients"])
    ['gradients']
    """
    if len(wrong) > _SHOWN:
        return []
    known: dict[str, str] = {}
    for candidate in candidates:
        if len(candidate) <= _SHOWN:
            known.setdefault(candidate.casefold(), candidate)
        if len(known) > _CANDIDATES:
            break
    lower = wrong.casefold()
    found = difflib.get_close_matches(lower, known, n, 0.6)
    if len(found) < n and lower:
        # Substrings such as `weight` of `Net_fc1.weight`, whose similarity ratio is too low.
        found += [name for name in known if lower in name and name not in found][: n - len(found)]
    return [known[name] for name in found]


def did_you_mean(wrong: str, candidates: Iterable[str]) -> str:
    """Return a sentence with the most similar candidates, or an empty string.

    >>> did_you_mean("gradient", ["losses", "gradients"])
    " Did you mean 'gradients'?"
    """
    names = [shown(name) for name in nearest(wrong, candidates)]
    if not names:
        return ""
    return f" Did you mean {names[0]}?" if len(names) == 1 else f" Did you mean {', '.join(names[:-1])} or {names[-1]}?"


def misspelling_of(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that `name` probably misspells, or None.

    Stricter than `nearest`: allows at most two typing errors, and at most one in three characters.

    >>> misspelling_of("weigths", ["weights", "biases"])
    'weights'
    >>> misspelling_of("my_weights", ["weights", "biases"]) is None
    True
    """
    wrong = name.casefold()
    if len(wrong) > _MISSPELT:
        return None
    close = [
        (errors, candidate)
        for candidate in islice(known, 1_000)  # bounds the time for untrusted files
        if abs(len(candidate) - len(wrong)) <= 2
        if (errors := typing_errors(wrong, candidate.casefold())) <= min(2, max(len(wrong), len(candidate)) // 3)
    ]
    return min(close)[1] if close else None


def folded(text: str) -> str:
    """Return the text with ASCII letters in lower case.

    >>> folded("ÀB")
    'Àb'
    """
    return text.lower() if text.isascii() else text.translate(_LOWER)


def typing_errors(a: str, b: str) -> int:
    """Return the optimal string alignment distance."""
    before: list[int] = []
    last = list(range(len(b) + 1))
    for i, char in enumerate(a, 1):
        row = [i]
        for j, other in enumerate(b, 1):
            cost = min(last[j] + 1, row[-1] + 1, last[j - 1] + (char != other))
            if i > 1 and j > 1 and char == b[j - 2] and a[i - 2] == other:
                cost = min(cost, before[j - 2] + 1)
            row.append(cost)
        before, last = last, row
    return last[-1]


_DIGITS, _ASCII_DIGITS = re.compile(r"\d+"), re.compile(r"[0-9]+")
_BEYOND_16_BITS = re.compile("[\U00010000-\U0010ffff]")


@lru_cache(maxsize=16384)
def natural(name: str) -> str:
    """Return a natural sort key: ``worker_2`` sorts before ``worker_10``.

    >>> sorted(["worker_10", "worker_2"], key=natural)
    ['worker_2', 'worker_10']
    """
    # A string compares faster than a tuple of parts.
    return _DIGITS.sub(_length_first, name)


def _length_first(digits: re.Match[str]) -> str:
    """Return digits after their number, which gives numeric order.

    Before both is what is smaller than any letter.
    """
    significant = digits[0].lstrip("0")
    return f"\0{chr(min(len(significant), sys.maxunicode))}{significant}"


def natural_key(text: str) -> str:
    """Return the sort key of names on a page.

    Digits compare as one number, other characters by their UTF-16 code.

    >>> sorted(["w10", "w2", "w.1"], key=natural_key)
    ['w.1', 'w2', 'w10']
    """
    if not text.isascii():
        text = _BEYOND_16_BITS.sub(_in_two_units, text)
    return _ASCII_DIGITS.sub(_as_number, text)


def _in_two_units(character: re.Match[str]) -> str:
    """Return the two UTF-16 codes of a character."""
    high, low = divmod(ord(character[0]) - 0x10000, 0x400)
    return f"{chr(0xD800 + high)}{chr(0xDC00 + low)}"


def _as_number(digits: re.Match[str]) -> str:
    """Return digits after their number, which gives numeric order.

    Before both is the place of digits among characters.
    """
    return f"0{_length_first(digits)[1:]}"


def listed(names: Sequence[object], limit: int = 5) -> str:
    """Join the first names of a list and append the number of omitted ones.

    >>> listed([1, 2, 3], 2)
    '1, 2 and 1 more'
    """
    head = ", ".join(visible(name, _SHOWN) for name in names[:limit])
    return head if len(names) <= limit else f"{head} and {len(names) - limit} more"


def byte_size(n: int) -> str:
    """Format a number of bytes.

    >>> byte_size(15_200_000)
    '15.2 MB'
    """
    if n < 1000:
        return f"{n} B"
    size = float(n)
    for unit in ("kB", "MB", "GB", "TB"):
        size /= 1000
        if size < 999.95:
            return f"{size:.1f} {unit}"
    return f"{size / 1000:.1f} PB"
