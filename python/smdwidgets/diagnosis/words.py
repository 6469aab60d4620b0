"""Texts about findings in scalars, and how a candidate's facts become sentences."""

from __future__ import annotations

from smdwidgets.diagnosis.findings import Candidate, Finding
from smdwidgets.diagnosis.tensor_words import TEXTS as TENSOR_TEXTS
from smdwidgets.diagnosis.text import Text

#: The page of the documentation with one section per kind.
PAGE = "diagnosis.md"

_SCALAR_TEXTS: dict[str, Text] = {
    "not_finite": Text(
        "`{series}` is {what} since step {onset:,}",
        "{count:,} of {total:,} values",
        "A value overflowed, or an operation such as log(0) or 0/0 is undefined.",
        "Find the first tensor that is not finite; reduce the learning rate, clip gradients, or add a small constant where "
        "a logarithm or a division is taken.",
    ),
    "overfit": Text(
        "Validation loss rises since step {onset:,}",
        "`{series}` {best:.3g} → {end:.3g}; `{training}` still falls",
        "Probably overfitting.",
        "Keep the checkpoint of step {onset:,}; try more data, augmentation or weight decay.",
    ),
}

TEXTS: dict[str, Text] = _SCALAR_TEXTS | TENSOR_TEXTS


def finding(candidate: Candidate, explains: tuple[str, ...] = ()) -> Finding:
    """Return a candidate as a finding, in words."""
    text = TEXTS[candidate.kind]
    facts = {"onset": candidate.onset, "last": candidate.last, **candidate.facts}
    title, detail, cause, advice = (part.format(**facts) for part in (text.title, text.detail, text.cause, text.advice))
    return Finding(
        kind=candidate.kind,
        severity=candidate.severity,
        confidence=candidate.confidence,
        onset=candidate.onset,
        last=candidate.last,
        series=candidate.series,
        evidence=candidate.evidence,
        explains=explains,
        title=title,
        text=f"{title}{f' ({detail})' if detail else ''}. {cause}",
        try_=advice,
        url=f"{PAGE}#{candidate.kind}",
    )
