"""For the API pages: examples that stand in a docstring without a heading become code."""

from __future__ import annotations

import textwrap
from typing import Any

from griffe import Extension, Object


def fenced(text: str) -> str:
    """The text, with each paragraph that starts with a prompt fenced as a Python session."""
    parts: list[str] = []
    session = False
    for line in textwrap.dedent(text).split("\n"):
        begins, blank = line.startswith(">>> "), not line.strip()
        if begins and not session:
            parts.append("```pycon")
            session = True
        elif blank and session:
            parts.append("```")
            session = False
        parts.append(line)
    if session:
        parts.append("```")
    return "\n".join(parts)


class Doctests(Extension):
    """Applies `fenced` to every docstring."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Called for each object when it has been read."""
        if obj.docstring:
            obj.docstring.value = fenced(obj.docstring.value)
