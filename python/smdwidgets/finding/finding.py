"""What checks, rules, triggers, diagnosis and survey report: one finding."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, get_args

from smdwidgets._text import capitalized, visible
from smdwidgets.finding.kind import CONFIDENCES, LEVELS, Confidence, Kind, Level
from smdwidgets.finding.kinds import KINDS, kind_of

__all__ = ["SOURCES", "Curve", "Evidence", "Finding", "Source", "about", "labelled", "ordered", "plain_number"]

Source = Literal["check", "rule", "trigger", "diagnosis", "survey", "replay", "reference"]
"""What reports a finding."""

SOURCES: tuple[Source, ...] = get_args(Source)
"""All sources."""

#: Characters of a name or value in a sentence.
_LONGEST_FACT = 200


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
    """One observation, such as ``val/loss 1.9 → 3.2``, and where to see it.

    Attributes:
        text: what was observed.
        subject: name of the tensor or series; empty if it is about the run.
        step: global step; None if it is about many steps.
        value: the observed value.
        limit: the limit that the value passed.
        worker: worker that saved it; empty if all agree.
        curve: a few points around it.

    >>> print(Evidence("mean |g| = 3.2e-09 is below 1e-07", "gradient/fc1.weight", 20, 3.2e-9, 1e-7))
    gradient/fc1.weight: mean |g| = 3.2e-09 is below 1e-07
    """

    text: str
    subject: str = ""
    step: int | None = None
    value: float | None = None
    limit: float | None = None
    worker: str = ""
    curve: Curve | None = None

    def __str__(self) -> str:
        subject = f"{self.subject} of {self.worker}" if self.subject and self.worker else self.subject
        text = visible(self.text, 2000)
        return f"{visible(subject, _LONGEST_FACT)}: {text}" if subject else text

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object; NaN and infinities, which JSON lacks, become strings."""
        curve = self.curve
        plain: dict[str, Any] = {
            "text": self.text,
            "subject": self.subject,
            "step": self.step,
            "value": plain_number(self.value),
            "limit": plain_number(self.limit),
            "worker": self.worker,
        }
        if curve is not None:
            values = [plain_number(value) for value in curve.values]
            plain["curve"] = {**asdict(curve), "steps": list(curve.steps), "values": values}
        return plain

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Evidence:
        """Return the evidence of a JSON object."""
        curve = content.get("curve")
        values = {**content, "value": _number(content.get("value")), "limit": _number(content.get("limit"))}
        if curve is not None:
            points = tuple(float(value) for value in curve["values"])
            values["curve"] = Curve(curve["name"], tuple(curve["steps"]), points, curve["begin"], curve["end"])
        return cls(**values)


@dataclass(frozen=True, repr=False)
class Finding:
    """One thing that is wrong with a run, or stands out in it.

    Attributes:
        kind: identifier of a row of the table of kinds, such as ``"overfit"``.
        level: ``"problem"``, ``"warning"`` or ``"note"``.
        confidence: ``"proof"`` (arithmetic, no threshold), ``"high"``, ``"medium"`` or ``"low"``.
        subject: name of the tensor, series or rule that shows it best; empty if it is about the run.
        first: first step that shows it, or None.
        last: last step that shows it, or None.
        rank: rank of the worker that shows it first.
        title: the fact, in one sentence without a full stop.
        text: the fact, its numbers and its probable cause.
        try_: the cheapest test or change to try.
        evidence: what was observed.
        explains: ids of findings that follow from it. They are shown below it.
        rivals: kinds of other causes within reach; the table of kinds has the test of each.
        source: what reported it.
        incident: step of the incident that recorded it, or None.
        others: names of other tensors or series that show it, the most telling first.

    >>> facts = {"tensor": "fc2.weight", "saves": 100}
    >>> finding = Finding.of("frozen", "problem", "proof", 0, 990, ["fc2.weight"], facts)
    >>> finding
    Finding('frozen:fc2.weight:0', problem, proof: The weights of `fc2.weight` never change)
    >>> Finding.from_json(finding.to_json()) == finding
    True
    """

    kind: str
    level: Level
    confidence: Confidence
    subject: str = ""
    first: int | None = None
    last: int | None = None
    rank: int = 0
    title: str = ""
    text: str = ""
    try_: str = ""
    evidence: tuple[Evidence, ...] = ()
    explains: tuple[str, ...] = ()
    rivals: tuple[str, ...] = ()
    source: Source = "diagnosis"
    incident: int | None = None
    others: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        kind_of(self.kind)
        for kind in self.rivals:
            kind_of(kind)
        _check("level", self.level, LEVELS)
        _check("confidence", self.confidence, CONFIDENCES)
        _check("source", self.source, SOURCES)

    @classmethod
    def of(
        cls,
        kind: str,
        level: Level,
        confidence: Confidence,
        first: int | None,
        last: int | None,
        names: Sequence[str],
        facts: Mapping[str, Any] | None = None,
        evidence: Sequence[Evidence] = (),
        *,
        rank: int = 0,
        source: Source = "diagnosis",
        incident: int | None = None,
    ) -> Finding:
        """Return a finding whose sentences are those of its kind, filled with facts.

        Args:
            kind: identifier of the kind.
            level: ``"problem"``, ``"warning"`` or ``"note"``.
            confidence: ``"proof"``, ``"high"``, ``"medium"`` or ``"low"``.
            first: first step that shows it.
            last: last step that shows it.
            names: names of the tensors or series, the most telling first.
            facts: values of the placeholders in the sentences of the kind.
            evidence: what was observed.
            rank: rank of the worker that shows it first.
            source: what reports it.
            incident: step of the incident that recorded it.
        """
        row = kind_of(kind)
        words = {
            key: visible(fact, _LONGEST_FACT) if isinstance(fact, str) else fact for key, fact in (facts or {}).items()
        }
        words = {"first": first or 0, "last": last, **words}
        title, detail, cause, advice = (
            part.format(**words) for part in (row.fact, row.detail, row.cause, row.try_ or capitalized(row.advice))
        )
        text = f"{title}{f' ({detail})' if detail else ''}.{f' {cause}' if cause else ''}"
        return cls(
            kind,
            level,
            confidence,
            names[0] if names else "",
            first,
            last,
            rank,
            title,
            text,
            advice,
            tuple(evidence),
            source=source,
            incident=incident,
            others=tuple(names[1:]),
        )

    @property
    def id(self) -> str:
        """Stable identifier: kind, subject and first step."""
        return f"{self.kind}:{self.subject}:{'' if self.first is None else self.first}"

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all tensors or series that show it, the most telling first."""
        return (self.subject, *self.others) if self.subject else self.others

    @property
    def row(self) -> Kind:
        """The row of its kind in the table of kinds."""
        return KINDS[self.kind]

    @property
    def url(self) -> str:
        """Section of the documentation."""
        return self.row.url

    @property
    def counts(self) -> bool:
        """Whether it counts as a finding; otherwise it is a note."""
        return self.level != "note" and self.confidence != "low"

    def __str__(self) -> str:
        return visible(self.title)

    def __repr__(self) -> str:
        return f"Finding({self.id!r}, {self.level}, {self.confidence}: {self})"

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object; NaN and infinities, which JSON lacks, become strings."""
        plain = {one.name: getattr(self, one.name) for one in fields(self)}
        plain = {key: list(value) if isinstance(value, tuple) else value for key, value in plain.items()}
        plain["try"] = plain.pop("try_")
        plain["evidence"] = [one.to_json() for one in self.evidence]
        return {"id": self.id, **plain, "url": self.url}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Finding:
        """Return the finding of a JSON object that `to_json` returned.

        Raises:
            ValueError: a field is missing or has an invalid value.
        """
        try:
            values = {one.name: content["try" if one.name == "try_" else one.name] for one in fields(cls)}
            values = {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
            values["evidence"] = tuple(Evidence.from_json(one) for one in values["evidence"])
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a finding in JSON: {error!r}") from None
        return cls(**values)


def ordered(findings: Iterable[Finding], forward: Mapping[str, int] | None = None) -> list[Finding]:
    """Return findings in the order in which every list shows them.

    Findings come before notes, causes before what they explain, then by confidence, first step, and the order of their
    subjects in the forward pass.

    Args:
        findings: the findings.
        forward: place of each tensor in the forward pass.
    """
    places, kinds = forward or {}, list(KINDS)

    def key(finding: Finding) -> tuple[Any, ...]:
        place = places.get(finding.subject, len(places))
        first = -1 if finding.first is None else finding.first
        return (
            not finding.counts,
            CONFIDENCES.index(finding.confidence),
            first,
            place,
            kinds.index(finding.kind),
            finding.id,
        )

    return sorted(findings, key=key)


def about(finding: Finding) -> str:
    """Return level, confidence, interval and the command that explains a finding."""
    interval = "" if finding.first is None else f" · step {finding.first:,}"
    if finding.first is not None and finding.last is not None and finding.last > finding.first:
        interval = f" · steps {finding.first:,} to {finding.last:,}"
    certainty = "proof" if finding.confidence == "proof" else f"{finding.confidence} confidence"
    return f"{finding.level}, {certainty}{interval} · smdwidgets explain {finding.kind}"


def labelled(name: str, mode: str) -> str:
    """Return a name, followed by the mode in parentheses if there is one.

    >>> labelled("loss", ""), labelled("loss", "EVAL")
    ('loss', 'loss (EVAL)')
    """
    return f"{name} ({mode})" if mode else name


def plain_number(value: float | None) -> float | str | None:
    """Return a number as JSON, which has no NaN and no infinities.

    >>> plain_number(0.5), plain_number(float("-inf"))
    (0.5, '-Infinity')
    """
    if value is None or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def _check(field_name: str, value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise ValueError(f"invalid {field_name} {value!r}; choose from {', '.join(allowed)}")
