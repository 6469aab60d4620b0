"""Traits of version 0.1.0 that ``query`` has replaced, for one release."""

from __future__ import annotations

import re
import sys
import warnings
from typing import Any

REPLACED = ("filter", "filter_kind")


def query_of(text: str, kind: str = "fuzzy") -> str:
    r"""Return the query that selects about the same names as a filter did.

    A filter of several words selected the names that have all of them in any order, a query those that have them in this order.

    >>> query_of("layers.3 q_proj"), query_of("a|b"), query_of("^fc/", "regex"), query_of("/^fc/")
    ('layers.3*q_proj', 'a\\|b', '/^fc\\//', '/^fc/')
    """
    text = text.strip()
    if kind != "regex" and (found := re.fullmatch(r"/(.+?)/?", text)):
        text, kind = found[1], "regex"
    if not text:
        return ""
    if kind == "regex":
        return "/" + re.sub(r"(\\.)|/", lambda found: found[1] or r"\/", text) + "/"
    return "*".join(re.sub(r'([|*\\"/@])', r"\\\1", word) for word in text.split())


def _warn(name: str) -> None:
    message = f"the trait {name!r} will be removed; use 'query', such as query=\"layers.*.weight\""
    # At the user's line, which is the first one outside of the package.
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).startswith("smdwidgets."):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, DeprecationWarning, stacklevel=level)


def take_replaced(state: dict[str, Any]) -> None:
    """Replace the old traits in the arguments of a widget."""
    given = {name: state.pop(name) for name in REPLACED if name in state}
    if given:
        _warn(next(iter(given)))
        state.setdefault("query", query_of(given.get("filter", ""), given.get("filter_kind", "fuzzy")))


class ReplacedTraits:
    """The old traits as attributes."""

    query: str
    _old = ("", "fuzzy")

    @property
    def filter(self) -> str:
        """Deprecated: ``query`` has replaced it."""
        _warn("filter")
        return self._old[0]

    @filter.setter
    def filter(self, text: str) -> None:
        _warn("filter")
        self._old = (text, self._old[1])
        self.query = query_of(*self._old)

    @property
    def filter_kind(self) -> str:
        """Deprecated: a regular expression in a ``query`` is between slashes."""
        _warn("filter_kind")
        return self._old[1]

    @filter_kind.setter
    def filter_kind(self, kind: str) -> None:
        _warn("filter_kind")
        self._old = (self._old[0], kind)
        if self._old[0]:
            self.query = query_of(*self._old)
