"""Diagnosis: what was found, what was judged, and what could not be judged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from smdwidgets._text import listed, visible
from smdwidgets.diagnosis.cause_table import READS
from smdwidgets.diagnosis.causes import Joined, with_marks
from smdwidgets.diagnosis.coverage import Coverage
from smdwidgets.diagnosis.kinds import NOT_JUDGED
from smdwidgets.diagnosis.page import page
from smdwidgets.finding import Finding, about, labelled, ordered

if TYPE_CHECKING:
    import pandas

#: Kind of what is no series.
TENSOR = "tensor"
#: Characters per line of the text form.
_WIDTH = 100
#: Notes and gaps that the short text shows.
_SHOWN_NOTES, _SHOWN_GAPS = 2, 2


class Judged(NamedTuple):
    """A series that was judged.

    Attributes:
        name: the tag, or the name of the tensor.
        kind: what it measures, or ``"tensor"``; give another with ``diagnose(run, kinds={name: kind})``.
        role: training, validation, or empty; of a tensor ``"weight"``, ``"gradient"`` and the like.
        points: number of values.
        partner: training series that a validation series was compared with, such as ``"loss (TRAIN)"`` if its name is
            ambiguous.
        superseded: values that a restart made void, or that were written again.
        mode: mode of the series, if series of other modes have the same name.
    """

    name: str
    kind: str
    role: str = ""
    points: int = 0
    partner: str = ""
    superseded: int = 0
    mode: str = ""

    def __str__(self) -> str:
        about = [f"{self.role} {self.kind}".strip(), f"{self.points:,} values"]
        about += [f"compared with {self.partner}"] if self.partner else []
        about += [f"{self.superseded:,} superseded"] if self.superseded else []
        return f"{labelled(self.name, self.mode)}: {', '.join(about)}"


class Unjudged(NamedTuple):
    """A series that was not judged, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class Diagnosis:
    """What is wrong with a run, returned by :func:`smdwidgets.diagnose`.

    Iterating over it yields the findings; it is true if there are any.

    Attributes:
        run: path of the run.
        findings: causes and other findings that count, in the order of `smdwidgets.finding.ordered`.
        notes: findings of low confidence, and what is worth knowing but no fault, in the same order.
        explained: what follows from the findings and notes, which name them in ``explains``.
        judged: the series and tensors that were judged.
        unjudged: the others, each with the reason.
        steps: first and last step.
        coverage: what could be judged, and what could not be because it was not recorded.
        withdrawn: findings of an earlier diagnosis of the same live run that no longer hold.
    """

    run: str
    findings: tuple[Finding, ...] = ()
    notes: tuple[Finding, ...] = ()
    explained: tuple[Finding, ...] = ()
    judged: tuple[Judged, ...] = ()
    unjudged: tuple[Unjudged, ...] = ()
    steps: tuple[int, int] = (0, 0)
    coverage: Coverage = field(default=Coverage())
    withdrawn: tuple[Finding, ...] = field(default=())
    forward: Mapping[str, int] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, joined: Joined, run: str = "", *, forward: Mapping[str, int], **rest: Any) -> Diagnosis:
        """Return a diagnosis of findings that were joined."""
        listed = ordered(joined.causes, forward)
        counting = sum(finding.counts for finding in listed)
        below = tuple(ordered(joined.explained, forward))
        return cls(run, tuple(listed[:counting]), tuple(listed[counting:]), below, forward=forward, **rest)

    def with_marks(self, marks: Iterable[Finding]) -> Diagnosis:
        """Return the diagnosis joined with findings of a survey and of rules."""
        joined = with_marks(Joined([*self.listed], [*self.explained]), marks, *self.steps)
        other = Diagnosis.of(joined, forward=self.forward)
        return replace(self, findings=other.findings, notes=other.notes, explained=other.explained)

    @property
    def listed(self) -> tuple[Finding, ...]:
        """Findings and notes: the list that every display shows."""
        return *self.findings, *self.notes

    def consequences(self, finding: Finding) -> str:
        """Return a sentence with what a finding explains; empty if it explains nothing.

        >>> Diagnosis("").consequences(Finding("spike", "note", "low"))
        ''
        """
        below = {one.id: one for one in self.explained}
        names = dict.fromkeys(below[id].row.name for id in finding.explains if id in below)
        return f"It explains: {'; '.join(names)}." if names else ""

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def __len__(self) -> int:
        return len(self.findings)

    def __bool__(self) -> bool:
        return bool(self.findings)

    @property
    def can_tell(self) -> bool:
        """Whether there was anything to judge."""
        return bool(self.judged or self.findings)

    @property
    def summary(self) -> str:
        """The number of findings, or why the run cannot be judged, in one sentence.

        Without a finding, a value that is not finite comes first.

        >>> Diagnosis("runs/mlp").summary
        'Cannot tell: the run has no scalars.'
        """
        if self.findings:
            count = len(self.findings)
            return f"{count} finding{'s' if count > 1 else ''} in {self._extent()}."
        lost = next((note for note in self.notes if note.kind == "not_finite" and note.confidence == "proof"), None)
        return self._nothing() if lost is None else f"{lost.title}. {self._nothing('else', 'more')}"

    def _nothing(self, other: str = "wrong", more: str = "") -> str:
        """Return that nothing was seen, or why that is not known."""
        if not self.judged:
            return f"Cannot tell{more and f' {more}'}: {self._reason()}."
        seen = f"Nothing {other} seen in {self._extent()}"
        if not self.coverage.learning:
            return f"{seen}; learning not judged: no loss, metric or reward with 10 values."
        return f"{seen} ({len(self.coverage.checks)} of {len(READS)} checks)."

    def _extent(self) -> str:
        tensors = sum(one.kind == TENSOR for one in self.judged)
        # A value that is not finite is seen in short series, too, which are not judged otherwise.
        count = f"{len(self.judged or self.unjudged) - tensors:,} series" + (
            f" and {tensors:,} tensor{'s' if tensors > 1 else ''}" if tensors else ""
        )
        return f"{count}, steps {self.steps[0]:,} to {self.steps[1]:,}"

    def _reason(self) -> str:
        if not self.unjudged:
            return "the run has no scalars"
        reasons = self._reasons()
        # Why each of them has no direction says less than that none has one.
        plain = [name for reason in NOT_JUDGED.values() for name in reasons.pop(reason, [])]
        parts = [f"{reason} ({_few(names)})" for reason, names in reasons.items()]
        parts += [f"no loss, metric or reward among {len(plain):,} series ({_few(plain)})"] if plain else []
        return "; ".join(parts)

    def _reasons(self) -> dict[str, list[str]]:
        reasons: dict[str, list[str]] = {}
        for one in self.unjudged:
            reasons.setdefault(one.reason, []).append(one.name)
        return reasons

    def not_judged(self) -> str:
        """Return one sentence about the series that were not judged; empty if all were."""
        if not self.unjudged or not self.judged:
            return ""
        counts = ", ".join(f"{len(names)} × {reason}" for reason, names in self._reasons().items())
        return f"Not judged: {counts}."

    def __repr__(self) -> str:
        return self.text()

    def text(self, notes: bool = False, width: int = _WIDTH) -> str:
        """Return the diagnosis as lines of text.

        Args:
            notes: also show all notes, and what kind each series was taken for.
            width: longest line, in columns.
        """

        def lines_of(prefix: str, text: str) -> list[str]:
            return _lines(prefix, text, width)

        lines = lines_of("", self.summary)
        for number, one in enumerate(self.findings, 1):
            text = f"{one.text} {self.consequences(one)}".strip()
            lines += ["", *lines_of(f"{number}. ", text), *lines_of("   Try: ", one.try_), *lines_of("   ", about(one))]
        for one in self.withdrawn:
            lines += ["", *lines_of("Withdrawn: ", f"{one.title}.")]
        for one in self.notes[: None if notes else _SHOWN_NOTES]:
            lines += ["", *lines_of("Note: ", one.text if notes else f"{one.title}.")]
        if notes:
            lines += ["", "Judged:", *(f"   {visible(one)}" for one in self.judged)] if self.judged else []
            lines += ["", "Not recorded:", *(f"   {gap}" for gap in self.coverage.gaps)] if self.coverage.gaps else []
        hidden = 0 if notes else len(self.notes) - _SHOWN_NOTES
        rest = [f"{hidden} more note{'s' if hidden > 1 else ''}: --notes or text(notes=True)."] if hidden > 0 else []
        rest += [self.not_judged()] if self.not_judged() else []
        # Silence must say what it does not cover.
        rest += [] if notes or self.findings else self.coverage.gaps[:_SHOWN_GAPS]
        return "\n".join([*lines, *([""] if rest and len(lines) > 1 else []), *lines_of("", " ".join(rest))])

    def to_json(self) -> dict[str, Any]:
        """Return the diagnosis as JSON-serializable objects.

        >>> Diagnosis("runs/mlp").to_json()["findings"]
        []
        """
        lists = {name: getattr(self, name) for name in ("findings", "notes", "explained", "withdrawn")}
        return {
            "run": self.run,
            "summary": self.summary,
            "can_tell": self.can_tell,
            "steps": list(self.steps),
            **{name: [one.to_json() for one in findings] for name, findings in lists.items()},
            "judged": [one._asdict() for one in self.judged],
            "unjudged": [one._asdict() for one in self.unjudged],
            "checks": list(self.coverage.checks),
            "not_recorded": list(self.coverage.gaps),
        }

    def to_pandas(self) -> pandas.DataFrame:
        """Return findings and notes as a DataFrame, one row each. Requires pandas."""
        import pandas

        columns = [
            "id",
            "kind",
            "level",
            "confidence",
            "subject",
            "first",
            "last",
            "title",
            "text",
            "try_",
            "source",
            "url",
        ]
        rows = [[getattr(one, column) for column in columns] for one in self.listed]
        return pandas.DataFrame(rows, columns=columns)

    def _repr_html_(self) -> str:
        findings = [(one, self.consequences(one)) for one in self.findings]
        judged = [str(one) for one in self.judged]
        return page(self.summary, findings, self.withdrawn, self.notes, judged, self.not_judged())


def _few(names: Iterable[str]) -> str:
    return listed(list(dict.fromkeys(names)), 3)


def _lines(prefix: str, text: str, width: int) -> list[str]:
    """Wrap a text; continuation lines are indented like the prefix."""
    import textwrap

    return textwrap.wrap(
        visible(text), width, initial_indent=prefix, subsequent_indent=" " * len(prefix), break_on_hyphens=False
    )
