"""The sentence above the Run Map while no diagnosis is known."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from smdwidgets._text import capitalized, quoted
from smdwidgets.finding import Finding
from smdwidgets.survey.findings import largest_change
from smdwidgets.survey.table import SurveyTable


@dataclass(frozen=True)
class Clause:
    """A part of the sentence, with the tensor and step that it is about."""

    text: str
    tensor: str = ""
    step: int | None = None


def sentence(
    found: Sequence[Finding],
    table: SurveyTable,
    steps: Sequence[int],
    read: float = 1.0,
    others: Collection[str] = (),
) -> list[Clause]:
    """Return the parts of the sentence, in order.

    Args:
        found: findings, the most suspicious first.
        table: the records.
        steps: saved steps of the run.
        read: share of the records that was read.
        others: names in the table that are no tensors.
    """
    if not len(table):
        return []
    parts = [] if read >= 1 else [Clause(f"In the {_percent(read)} read so far: ")]
    if not found:
        return _capitalised([*parts, *_nothing(table, steps, others)])
    first = found[0]
    known = table.known()
    tensor = next((name for name in first.names if name in known), "")
    parts += [Clause(first.title, tensor, first.first), Clause(".")]
    return _capitalised([*parts, Clause(f" {len(found) - 1} more.")] if len(found) > 1 else parts)


def text(parts: Sequence[Clause]) -> str:
    """Return the whole sentence."""
    return "".join(part.text for part in parts)


def _nothing(table: SurveyTable, steps: Sequence[int], others: Collection[str]) -> list[Clause]:
    tensors = len(table.known().difference(others))
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


def _capitalised(parts: list[Clause]) -> list[Clause]:
    first = parts[0]
    return [Clause(capitalized(first.text), first.tensor, first.step), *parts[1:]]


def _percent(share: float) -> str:
    percent = 100 * share
    return f"{percent:.2g} %" if percent < 1 else f"{min(99, round(percent))} %"
