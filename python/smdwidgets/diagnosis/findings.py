"""What a diagnosis consists of: candidates, evidence and findings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Severity = Literal["problem", "warning", "note"]
Confidence = Literal["high", "medium", "low"]

#: From most to least.
SEVERITIES: tuple[Severity, ...] = ("problem", "warning", "note")
CONFIDENCES: tuple[Confidence, ...] = ("high", "medium", "low")


@dataclass(frozen=True)
class Curve:
    """A few points of a series, for a small plot.

    ``begin`` and ``end`` mark the interval that the finding is about.
    """

    name: str
    steps: tuple[int, ...]
    values: tuple[float, ...]
    begin: int | None = None
    end: int | None = None


@dataclass(frozen=True)
class Evidence:
    """One fact that was read, such as ``val/loss 1.9 → 3.2``, and its curve."""

    text: str
    series: str = ""
    curve: Curve | None = None


@dataclass(frozen=True)
class Candidate:
    """What a detector sees, before causes and symptoms are distinguished.

    Attributes:
        kind: key of `causes.TAXONOMY`.
        severity: ``"problem"``, ``"warning"`` or ``"note"``.
        confidence: ``"high"`` if arithmetic proves it, ``"medium"`` for one sure source, else ``"low"``.
        onset: first step that shows it; None if that is not known.
        last: last step that shows it.
        series: names of the series or tensors, the most telling first; tensors in forward order.
        facts: values for the placeholders of the text in `words`.
        evidence: facts with their curves.
    """

    kind: str
    severity: Severity
    confidence: Confidence
    onset: int | None
    last: int | None
    series: tuple[str, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)
    evidence: tuple[Evidence, ...] = ()


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong with a run.

    Attributes:
        kind: stable identifier, such as ``"overfit"``.
        severity: ``"problem"``, ``"warning"`` or ``"note"``.
        confidence: ``"high"``, ``"medium"`` or ``"low"``.
        onset: first step that shows it, or None.
        last: last step that shows it, or None.
        series: names of the series or tensors that show it, tensors in forward order.
        evidence: what was read.
        explains: kinds of the symptoms that it explains.
        title: the fact, in one sentence.
        text: fact and probable cause.
        try_: what to try.
        url: section of the documentation.
    """

    kind: str
    severity: Severity
    confidence: Confidence
    onset: int | None
    last: int | None
    series: tuple[str, ...]
    evidence: tuple[Evidence, ...]
    explains: tuple[str, ...]
    title: str
    text: str
    try_: str
    url: str


def labelled(name: str, mode: str) -> str:
    """Return a name, followed by the mode in parentheses if there is one.

    >>> labelled("loss", ""), labelled("loss", "EVAL")
    ('loss', 'loss (EVAL)')
    """
    return f"{name} ({mode})" if mode else name


def about(one: Finding) -> str:
    """Return severity, confidence, interval and section of a finding in one line."""
    interval = "" if one.onset is None else f" · step {one.onset:,}"
    if one.onset is not None and one.last is not None and one.last > one.onset:
        interval = f" · steps {one.onset:,} to {one.last:,}"
    return f"{one.severity}, {one.confidence} confidence{interval} · {one.url}"
