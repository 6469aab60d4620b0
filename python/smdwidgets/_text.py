"""Small helpers for messages: names shown safely, nearest spellings, workers in the order a person expects."""

from __future__ import annotations

import difflib
import html
import re
from collections.abc import Iterable, Sequence
from itertools import islice

#: Longer names are cut in messages: a name may come from a hostile file and hold a megabyte.
_SHOWN = 120
#: Above this many candidates a spelling is not looked for: an error must not cost seconds.
_CANDIDATES = 20_000
#: A longer name is not taken for a misspelling.
_MISSPELT = 40


def visible(text: object, limit: int | None = None, lines: bool = False) -> str:
    """Text that is only text: what would act on a terminal, or on how the text beside it is read, is spelled out.

    Control characters, marks of direction, halves of pairs and the like; ``lines`` lets line breaks pass.

    >>> visible("a\\x1b[2Jb\\u202ec")
    'a\\\\x1b[2Jb\\\\u202ec'
    """
    said = str(text)
    if limit is not None and len(said) > limit:
        said = said[: limit - 1] + "…"
    if said.isprintable():
        return said
    return "".join(
        char if char.isprintable() or (lines and char == "\n") else char.encode("unicode_escape").decode()
        for char in said
    )


def markup(text: object, limit: int | None = None) -> str:
    """Text as HTML shows it: nothing in it is an element, an entity or a mark of direction.

    >>> markup("<b>\\x1b</b>")
    '&lt;b&gt;\\\\x1b&lt;/b&gt;'
    """
    return html.escape(visible(text, limit))


def shown(name: object, limit: int = _SHOWN) -> str:
    """A name in quotes, control characters escaped, and not longer than a line.

    >>> shown("a\\nb")
    "'a\\\\nb'"
    """
    text = repr(name[: 2 * limit] if isinstance(name, str) else name)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def nearest(wrong: str, candidates: Iterable[str], n: int = 3) -> list[str]:
    """The candidates that a person most likely meant, best first.

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
        # `weight` for `Net_fc1.weight`: too short for a ratio, yet plainly meant.
        found += [name for name in known if lower in name and name not in found][: n - len(found)]
    return [known[name] for name in found]


def did_you_mean(wrong: str, candidates: Iterable[str]) -> str:
    """A sentence that names the nearest spellings, or nothing.

    >>> did_you_mean("gradient", ["losses", "gradients"])
    " Did you mean 'gradients'?"
    """
    names = [shown(name) for name in nearest(wrong, candidates)]
    if not names:
        return ""
    return f" Did you mean {names[0]}?" if len(names) == 1 else f" Did you mean {', '.join(names[:-1])} or {names[-1]}?"


def misspelling_of(name: str, known: Iterable[str]) -> str | None:
    """The known name that `name` is most likely a misspelling of; None if it looks like a name of its own.

    Stricter than `nearest`: at most two typing errors, and at most one in three characters.

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
        for candidate in islice(known, 1_000)  # a hostile file must not cost seconds
        if abs(len(candidate) - len(wrong)) <= 2
        if (errors := _typing_errors(wrong, candidate.casefold())) <= min(2, max(len(wrong), len(candidate)) // 3)
    ]
    return min(close)[1] if close else None


def _typing_errors(a: str, b: str) -> int:
    """Characters inserted, deleted, replaced or swapped with their neighbour (optimal string alignment)."""
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


_DIGITS = re.compile(r"(\d+)")


def natural(name: str) -> tuple[tuple[int, str], ...]:
    """A sort key under which ``worker_2`` comes before ``worker_10``.

    >>> sorted(["worker_10", "worker_2"], key=natural)
    ['worker_2', 'worker_10']
    """
    # Digits compare by length first and then as text, which is their numeric order without building huge integers.
    parts = _DIGITS.split(name)
    return tuple((len(part.lstrip("0")), part.lstrip("0")) if i % 2 else (-1, part) for i, part in enumerate(parts))


def listed(names: Sequence[object], limit: int = 5) -> str:
    """The first few of a list, each as visible text of a line at most, and how many more there are.

    >>> listed([1, 2, 3], 2)
    '1, 2 and 1 more'
    """
    head = ", ".join(visible(name, _SHOWN) for name in names[:limit])
    return head if len(names) <= limit else f"{head} and {len(names) - limit} more"


def byte_size(n: int) -> str:
    """A number of bytes as a person reads it.

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
