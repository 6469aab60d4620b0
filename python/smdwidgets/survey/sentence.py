"""The sentence above the Run Map: what stands out, and what came before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from smdwidgets.survey.findings import MapFinding, largest_change, near, quoted
from smdwidgets.survey.table import SurveyTable

#: Characters of a sentence; what does not fit is left out.
LONGEST = 200


@dataclass(frozen=True)
class Clause:
    """A part of the sentence, with the tensor and step that it is about."""

    text: str
    tensor: str = ""
    step: int | None = None


def sentence(found: Sequence[MapFinding], table: SurveyTable, steps: Sequence[int], read: float = 1.0) -> list[Clause]:
    """Return the parts of the sentence, in order.

    Args:
        found: findings, the most suspicious first.
        table: the records.
        steps: saved steps of the run.
        read: share of the records that was read.
    """
    if not len(table):
        return []
    parts = [] if read >= 1 else [Clause(f"In the {_percent(read)} read so far: ")]
    if not found:
        return _capitalised([*parts, *_nothing(table, steps)])
    worst = found[0]
    starts = "trouble starts" if worst.kind != "surprise" else "a change stands out"
    parts += [Clause(f"{starts} {worst.when}: "), _link(worst), Clause(".")]
    before = _before(worst, found, steps)
    if before is not None:
        second = [Clause(f" Before that, {before.when}: "), _link(before), Clause(".")]
        parts += second if _length([*parts, *second]) <= LONGEST else []
    others = len(found) - 1 - (before is not None and any(part.text.startswith(" Before") for part in parts))
    more = Clause(f" {others} more finding{'' if others == 1 else 's'}.")
    return _capitalised([*parts, more] if others and _length([*parts, more]) <= LONGEST else parts)


def text(parts: Sequence[Clause]) -> str:
    """Return the whole sentence."""
    return "".join(part.text for part in parts)


def _nothing(table: SurveyTable, steps: Sequence[int]) -> list[Clause]:
    tensors = len(table.names())
    nouns = "tensor" if tensors == 1 else "tensors", "step" if len(steps) == 1 else "steps"
    parts = [Clause(f"nothing stands out in {tensors:,} {nouns[0]} and {len(steps):,} {nouns[1]}.")]
    largest = largest_change(table)
    if largest is not None:
        name, change, step = largest
        parts += [
            Clause(" Largest change: "),
            Clause(f"{quoted(name)}, {change}, step {step:,}", name, step),
            Clause("."),
        ]
    return parts


def _link(finding: MapFinding) -> Clause:
    return Clause(finding.fact, finding.tensors[0] if finding.tensors else "", finding.first)


def _before(worst: MapFinding, found: Sequence[MapFinding], steps: Sequence[int]) -> MapFinding | None:
    """Return the earliest finding shortly before the worst one."""
    ranks = {step: rank for rank, step in enumerate(steps)}
    end = ranks.get(worst.first, len(steps))
    earlier = [
        one for one in found if one.first < worst.first and end - ranks.get(one.first, -len(steps)) <= near(len(steps))
    ]
    return min(earlier, key=lambda one: one.first, default=None)


def _capitalised(parts: list[Clause]) -> list[Clause]:
    first = parts[0]
    return [Clause(first.text[:1].upper() + first.text[1:], first.tensor, first.step), *parts[1:]]


def _length(parts: Sequence[Clause]) -> int:
    return len(text(parts))


def _percent(share: float) -> str:
    percent = 100 * share
    return f"{percent:.2g} %" if percent < 1 else f"{min(99, round(percent))} %"
