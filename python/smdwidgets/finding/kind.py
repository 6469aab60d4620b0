"""What a kind of finding is: identifier, sentences, documentation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

__all__ = ["CONFIDENCES", "LEVELS", "PAGE", "Confidence", "Kind", "Level"]

Level = Literal["problem", "warning", "note"]
"""How grave a finding is."""

Confidence = Literal["proof", "high", "medium", "low"]
"""How sure a finding is; a proof is arithmetic without a threshold."""

LEVELS: tuple[Level, ...] = get_args(Level)
"""The levels, the gravest first."""

CONFIDENCES: tuple[Confidence, ...] = get_args(Confidence)
"""The confidences, the surest first."""

PAGE = "diagnosis.md"
"""The page of the documentation with one section per kind that a diagnosis finds."""


@dataclass(frozen=True)
class Kind:
    """One kind of finding. Templates have placeholders for the facts of a finding.

    Attributes:
        id: stable identifier, such as ``"rate_too_high"``.
        title: heading of its section in the documentation.
        name: noun phrase for lists in sentences.
        meaning: how it is recognized, and what it means.
        healthy: what healthy trainings show instead.
        advice: the cheapest test or change to try.
        test: the cheapest test that distinguishes it from its rivals, with the outcome that speaks for it.
        fact: template of the first sentence, without the full stop.
        detail: template of numbers in parentheses after the fact; may be empty.
        cause: template of the probable cause.
        try_: template of the advice for one finding; empty: ``advice``.
        level: usual level.
        explains: kinds that it explains if they begin no earlier than shortly before it.
        needs_symptom: whether it is only a note unless a symptom accompanies it.
        symptom: whether it is a symptom that confirms such a cause.
        state: word for the state in which its tensors are from its first step on, such as ``"dead"``; may be empty.
        page: page of the documentation with its section.
        frameworks: frameworks whose trainings a check judges.
    """

    id: str
    title: str
    name: str
    meaning: str
    healthy: str
    advice: str
    fact: str
    detail: str = ""
    cause: str = ""
    try_: str = ""
    level: Level = "problem"
    explains: frozenset[str] = frozenset()
    needs_symptom: bool = False
    symptom: bool = False
    test: str = ""
    state: str = ""
    page: str = PAGE
    frameworks: tuple[str, ...] = ()

    @property
    def anchor(self) -> str:
        """Anchor of its section in the documentation."""
        return self.title.lower().replace(" ", "-")

    @property
    def url(self) -> str:
        """Page and section of the documentation."""
        return f"{self.page}#{self.anchor}"
