"""Diagnosis: what was found, what was judged, and what could not be judged."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from smdwidgets._text import listed, visible
from smdwidgets.diagnosis.findings import Finding, about, labelled
from smdwidgets.diagnosis.page import page

if TYPE_CHECKING:
    import pandas

#: Kind of what is no series.
TENSOR = "tensor"
#: Characters per line of the text form.
_WIDTH = 100


class Judged(NamedTuple):
    """A series that was judged.

    Attributes:
        name: the tag, or the name of the tensor.
        kind: what it measures, or ``"tensor"``; give another with ``diagnose(run, kinds={name: kind})``.
        role: training, validation, or empty; of a tensor ``"weight"``, ``"gradient"`` and the like.
        points: number of values.
        partner: training series that a validation series was compared with, such as ``"loss (TRAIN)"`` if its name is ambiguous.
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
        findings: at most three findings of medium or high confidence, problems first.
        notes: findings of low confidence, and what is worth knowing but no fault.
        judged: the series and tensors that were judged.
        unjudged: the others, each with the reason.
        steps: first and last step.
        withdrawn: findings of an earlier diagnosis of the same live run that no longer hold.
    """

    run: str
    findings: tuple[Finding, ...] = ()
    notes: tuple[Finding, ...] = ()
    judged: tuple[Judged, ...] = ()
    unjudged: tuple[Unjudged, ...] = ()
    steps: tuple[int, int] = (0, 0)
    withdrawn: tuple[Finding, ...] = field(default=())

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
        """One sentence: the number of findings, or why the run cannot be judged.

        >>> Diagnosis("runs/mlp").summary
        'Cannot tell: the run has no scalars.'
        """
        if self.findings:
            count = len(self.findings)
            return f"{count} finding{'s' if count > 1 else ''} in {self._extent()}."
        if not self.judged:
            return f"Cannot tell: {self._reason()}."
        return f"Nothing wrong seen in {self._extent()}."

    def _extent(self) -> str:
        tensors = sum(one.kind == TENSOR for one in self.judged)
        count = f"{len(self.judged) - tensors:,} series" + (
            f" and {tensors:,} tensor{'s' if tensors > 1 else ''}" if tensors else ""
        )
        return f"{count}, steps {self.steps[0]:,} to {self.steps[1]:,}"

    def _reason(self) -> str:
        if not self.unjudged:
            return "the run has no scalars"
        reasons = self._reasons()
        return "; ".join(f"{reason} ({listed(list(dict.fromkeys(names)), 3)})" for reason, names in reasons.items())

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

    def _series(self) -> list[str]:
        return [str(one) for one in self.judged]

    def __repr__(self) -> str:
        return self.text()

    def text(self, notes: bool = False) -> str:
        """Return the diagnosis as lines of text.

        Notes also state what kind each series was taken for.
        """
        lines = [self.summary]
        for number, one in enumerate(self.findings, 1):
            lines += ["", *_lines(f"{number}. ", one.text), *_lines("   Try: ", one.try_), f"   {about(one)}"]
        for one in self.withdrawn:
            lines += ["", *_lines("Withdrawn: ", f"{one.title}.")]
        if notes:
            for one in self.notes:
                lines += ["", *_lines("Note: ", one.text)]
            lines += ["", "Judged:", *(f"   {visible(one)}" for one in self.judged)] if self.judged else []
        rest = [] if notes or not self.notes else [f"{len(self.notes)} note{'s' if len(self.notes) > 1 else ''}."]
        rest += [self.not_judged()] if self.not_judged() else []
        return "\n".join([*lines, *([""] if rest and len(lines) > 1 else []), *_lines("", " ".join(rest))])

    def to_json(self) -> dict[str, Any]:
        """Return the diagnosis as JSON-serializable objects.

        >>> Diagnosis("runs/mlp").to_json()["findings"]
        []
        """
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self), allow_nan=True))
        plain |= {"summary": self.summary, "can_tell": self.can_tell}
        plain["judged"] = [one._asdict() for one in self.judged]
        plain["unjudged"] = [one._asdict() for one in self.unjudged]
        return plain

    def to_pandas(self) -> pandas.DataFrame:
        """Return findings and notes as a DataFrame, one row each. Requires pandas."""
        import pandas

        columns = ["kind", "severity", "confidence", "onset", "last", "series", "title", "text", "try_", "url"]
        rows = [[getattr(one, column) for column in columns] for one in (*self.findings, *self.notes)]
        return pandas.DataFrame(rows, columns=columns)

    def _repr_html_(self) -> str:
        return page(self.summary, self.findings, self.withdrawn, self.notes, self._series(), self.not_judged())


def _lines(prefix: str, text: str) -> list[str]:
    """Wrap a text; continuation lines are indented like the prefix."""
    import textwrap

    return textwrap.wrap(
        visible(text), _WIDTH, initial_indent=prefix, subsequent_indent=" " * len(prefix), break_on_hyphens=False
    )
