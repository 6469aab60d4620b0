"""Search tensor names with a regular expression, bounded in time."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence

from smdwidgets._text import shown
from smdwidgets.exceptions import RegexTooSlow, SMDebugValueError
from smdwidgets.trials.patterns import LIMIT, compile_pattern

MOST_MATCHES = 10_000
"""Matches in one answer. The total is exact."""


def search_names(
    pattern: str,
    names: Sequence[str],
    cancelled: Callable[[], bool] = lambda: False,
    *,
    limit: float = LIMIT,
) -> tuple[list[list[int]], int]:
    """Find the first match of a pattern in each name, ignoring case.

    Args:
        pattern: regular expression in the syntax of :mod:`re`.
        names: names to search.
        cancelled: checked before each name; the search stops when it returns True.
        limit: seconds for the whole search.

    Returns:
        ``[index, start, end]`` for the first :data:`MOST_MATCHES` matching names, and the number of matching names. ``start`` and
        ``end`` are UTF-16 offsets, which JavaScript strings use.

    Raises:
        SMDebugValueError: the pattern is invalid.
        RegexTooSlow: the search exceeds the limit.

    >>> search_names("BIAS$", ["fc1.weight", "fc1.bias"])
    ([[1, 4, 8]], 1)
    """
    try:
        compile_pattern(pattern)
        compiled = compile_pattern(f"(?i){pattern}")
    except re.error as error:
        raise SMDebugValueError(f"invalid pattern {shown(pattern)}: {error}") from None
    matches: list[list[int]] = []
    total = 0
    deadline = time.monotonic() + limit
    for index, name in enumerate(names):
        if cancelled():
            break
        try:
            # A timeout of zero means none. `concurrent` releases the GIL.
            found = compiled.search(name, timeout=max(deadline - time.monotonic(), 1e-6), concurrent=True)
        except TimeoutError:
            raise RegexTooSlow(pattern, limit) from None
        if found is None:
            continue
        total += 1
        if total <= MOST_MATCHES:
            matches.append([index, _utf16_length(name[: found.start()]), _utf16_length(name[: found.end()])])
    return matches, total


def _utf16_length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2
