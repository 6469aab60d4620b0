"""The form of a text about a kind of finding."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Text:
    """What is said about a kind of finding.

    Each part has placeholders for facts of the candidate.

    Attributes:
        title: the fact, one sentence without a full stop.
        detail: numbers behind it, in parentheses after the title; may be empty.
        cause: the probable cause, one or two sentences; never a cause as fact that was not proved.
        advice: what to try.
    """

    title: str
    detail: str
    cause: str
    advice: str
