"""Decide which findings are causes, what each explains, and how sure it is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from smdwidgets._text import capitalized
from smdwidgets.diagnosis.cause_table import cause_of
from smdwidgets.diagnosis.detectors._show import ADVICE_OF_REWARDS
from smdwidgets.diagnosis.inputs import RunData
from smdwidgets.diagnosis.observations import Observation, Observations
from smdwidgets.finding import CONFIDENCES, KINDS, LEVELS, Confidence, Evidence, Finding

#: Observations that one finding shows, and rivals that it names.
MOST_EVIDENCE, MOST_RIVALS = 6, 2
#: How much earlier than its cause a symptom may begin, as a share of the run.
EARLIER = 0.1
#: The same of a loss that never falls, which is said of the whole run, although it might have fallen later.
EARLIER_WHOLE = 0.5


class Joined(NamedTuple):
    """Findings that stand on their own, and those that one of them explains."""

    causes: list[Finding]
    explained: list[Finding]


def explained(findings: Iterable[Finding], first_step: int, last_step: int, data: RunData | None = None) -> Joined:
    """Separate causes from what they explain.

    Findings of one kind are merged. A cause that an observation excludes is dropped; one that needs a symptom but has
    none, or none that is not explained yet, becomes a note. A cause explains later ones of its kinds unless they begin
    clearly before it. What speaks for and against it decides its confidence; of two causes that explain the same, the
    better supported one is the cause and the other its rival. A proof has no rivals. Another proof explains it, or a
    cause of high confidence that was not over long before. If checks watched the training, what they have not proved
    is of medium confidence at most.
    """
    merged = _merged(findings)
    observed = Observations(data, merged)
    merged = [one for one in merged if one.confidence == "proof" or not _is_excluded(one, observed)]
    merged = [_raised(one, observed) for one in _without_outdone(merged, observed)]
    causes: list[Finding] = []
    below: dict[str, Finding] = {}
    for index, finding in enumerate(merged):
        row = finding.row
        if finding.kind in below:
            continue
        # A note that begins after the cause was over is no symptom of it.
        left = {
            one.kind
            for one in merged
            if one.kind not in below and not (one.confidence == "low" and _is_past(finding, one, first_step, last_step))
        }
        is_proof = finding.confidence == "proof"
        alone = is_proof or any(observed[name].holds for name in cause_of(row.id).alone)
        if row.needs_symptom and not alone and not any(_is_symptom_of(row.id, kind) for kind in left):
            causes.append(replace(finding, level="note", confidence="low"))
            continue
        symptoms = [
            other
            for other in merged[index + 1 :]
            if other.kind not in below
            and other.kind in row.explains
            and (is_proof or other.confidence != "proof" or KINDS[other.kind].symptom or not finding.counts)
            and (finding.counts or not other.counts)
            and _follows(other, finding, first_step, last_step)
            and (is_proof or other.confidence != "proof" or not _is_past(finding, other, first_step, last_step))
        ]
        judged = _judged(finding, symptoms, observed)
        if judged.counts and judged.confidence not in ("proof", "high"):
            symptoms = [other for other in symptoms if other.confidence != "proof"]
            judged = _judged(finding, symptoms, observed)
        below |= {other.kind: other for other in symptoms}
        causes.append(judged)
    if data is not None and data.checked:
        causes = [_unproven(one) for one in causes]
    return Joined([_with_rivals(one, observed) for one in causes], list(below.values()))


def _unproven(cause: Finding) -> Finding:
    """Return a cause of a training whose checks have not proved it.

    In programs of others, what seemed sure without a proof was right less often than high confidence says.
    """
    return replace(cause, confidence="medium") if cause.confidence == "high" else cause


def with_marks(joined: Joined, marks: Iterable[Finding], first_step: int, last_step: int) -> Joined:
    """Add what stands out in a survey, and what rules found.

    A mark of the survey that a cause explains is shown below the first such cause; any other mark stands on its own. A
    rule stands on its own, because somebody asked for it.
    """
    causes, below = list(joined.causes), list(joined.explained)
    ids = {finding.id for finding in (*causes, *below)}
    by_name = {(finding.kind, name) for finding in (*causes, *below) for name in finding.names}
    for mark in marks:
        if mark.id in ids:
            continue
        index = next(
            (
                index
                for index, cause in enumerate(causes)
                if cause.counts
                and mark.source == "survey" != cause.source
                and (mark.kind in cause.row.explains or mark.kind == cause.kind)
                and _follows(mark, cause, first_step, last_step)
            ),
            None,
        )
        if index is not None:
            causes[index] = replace(causes[index], explains=(*causes[index].explains, mark.id))
            below.append(mark)
        elif (mark.kind, mark.subject) not in by_name:  # a note of the diagnosis may be about the same
            causes.append(mark)
    return Joined(causes, below)


def _follows(symptom: Finding, cause: Finding, first_step: int, last_step: int) -> bool:
    """Whether a symptom begins no earlier than shortly before its cause."""
    begin = first_step if cause.first is None else cause.first
    earlier = EARLIER_WHOLE if symptom.kind == "not_learning" else EARLIER
    return (first_step if symptom.first is None else symptom.first) >= begin - earlier * (last_step - first_step)


def _is_past(cause: Finding, symptom: Finding, first_step: int, last_step: int) -> bool:
    """Whether a cause ended clearly before a symptom began."""
    if cause.last is None or symptom.first is None:
        return False
    return symptom.first > cause.last + EARLIER * (last_step - first_step)


def _merged(findings: Iterable[Finding]) -> list[Finding]:
    """Return one finding per kind, in the order of the table of kinds.

    The gravest finding of a kind is kept; of equally grave ones, the earliest.
    """
    by_kind: dict[str, list[Finding]] = {}
    for finding in findings:
        by_kind.setdefault(finding.kind, []).append(finding)
    merged = []
    for kind in KINDS:
        same = sorted(by_kind.get(kind, ()), key=_gravity)
        if same:
            names = dict.fromkeys(name for finding in same for name in finding.names if name != same[0].subject)
            evidence = tuple(evidence for finding in same for evidence in finding.evidence)
            merged.append(replace(same[0], others=tuple(names), evidence=evidence[:MOST_EVIDENCE]))
    return merged


def _gravity(finding: Finding) -> tuple[int, int, int]:
    return LEVELS.index(finding.level), CONFIDENCES.index(finding.confidence), finding.first or 0


#: Points of a confidence, and least points of a confidence.
_POINTS: dict[Confidence, int] = {"proof": 9, "high": 2, "medium": 1, "low": 0}
_HIGH, _MEDIUM = 2, 1


def _is_symptom_of(cause: str, kind: str) -> bool:
    """Whether a kind confirms causes, or this one.

    A repeated batch is no fault until it is learned by heart.
    """
    return KINDS[kind].symptom or (cause == "same_batch" and kind in KINDS[cause].explains)


def _is_excluded(finding: Finding, observed: Observations) -> bool:
    row = cause_of(finding.kind)
    return any(observed[name].holds for name in row.excluded_by) or any(
        observed[name].holds is False for name in row.needs
    )


def _raised(finding: Finding, observed: Observations) -> Finding:
    """Return a note as a problem, if what usually follows from it is seen.

    What is seen proves the note, but not that the one follows from the other.
    """
    if finding.level != "note" or not any(observed[name].holds for name in cause_of(finding.kind).raised_by):
        return finding
    return replace(finding, level="problem", confidence="medium")


def _support(finding: Finding, observed: Observations) -> tuple[list[Observation], list[Observation]]:
    """Return what speaks for a finding, and what speaks against it."""
    row = cause_of(finding.kind)
    supports = [one for name in row.supports if (one := observed[name]).holds]
    return supports, [one for name in row.against if (one := observed[name]).holds]


def _without_outdone(merged: Sequence[Finding], observed: Observations) -> list[Finding]:
    """Leave out causes whose rival explains the same and is better supported."""

    def points(finding: Finding) -> int:
        supports, against = _support(finding, observed)
        return _POINTS[finding.confidence] + min(1, len(supports)) - 2 * len(against)

    by_kind = {one.kind: one for one in merged}
    outdone = {
        one.kind
        for one in merged
        for rival in cause_of(one.kind).rivals
        if one.confidence != "proof"
        and rival in by_kind
        and _support(one, observed)[1]
        and (rival != "not_finite" or observed["lost_without_rise"].holds)
        and one.row.explains & {rival, *by_kind[rival].row.explains} & by_kind.keys()
        and points(by_kind[rival]) > points(one)
    }
    return [one for one in merged if one.kind not in outdone]


def _judged(cause: Finding, symptoms: Sequence[Finding], observed: Observations) -> Finding:
    """Return a cause with its symptoms, level and confidence."""
    if symptoms:
        cause = replace(
            cause,
            explains=tuple(one.id for one in symptoms),
            evidence=(*cause.evidence, *(evidence for one in symptoms for evidence in one.evidence)),
        )
    supports, against = _support(cause, observed)
    said = tuple(Evidence(f"speaks against it: {one.text}") for one in against)
    cause = replace(cause, evidence=(*cause.evidence, *said))
    if cause.level == "note" or cause.confidence == "proof":
        return cause
    level = min((cause.level, *(one.level for one in symptoms)), key=LEVELS.index)
    sure = [one for one in symptoms if one.confidence != "low"]
    row, kind = cause_of(cause.kind), cause.row
    points = _POINTS[cause.confidence] + bool(supports or sure) - bool(against)
    if kind.needs_symptom and not sure and not supports and not any(observed[name].holds for name in row.alone):
        points = min(points, _MEDIUM)  # what it explains may be no symptom
    confidence: Confidence = "high" if points >= _HIGH else "medium" if points >= _MEDIUM else "low"
    if len(against) > 1 and not supports and not sure:
        confidence = "low"
    if confidence == "high" and row.sure_with and not any(observed[name].holds for name in row.sure_with):
        confidence = "medium"
    if confidence == "high" and any(observed[name].holds is None for name in row.needs):
        confidence = "medium"
    confidence = max(confidence, row.at_most, key=CONFIDENCES.index)
    return replace(cause, level=level, confidence=confidence)


def _with_rivals(cause: Finding, observed: Observations) -> Finding:
    """Return a cause with its rivals, and the test of each."""
    if not cause.counts or cause.confidence == "proof" or _has_own_advice(cause):
        return cause
    rivals = [kind for kind in cause_of(cause.kind).rivals if kind in KINDS and not _is_ruled_out(kind, observed)][
        :MOST_RIVALS
    ]
    if not rivals:
        return cause
    tests = [f"Or is it {KINDS[kind].name}? {capitalized(KINDS[kind].test)}." for kind in rivals if KINDS[kind].test]
    return replace(cause, rivals=tuple(rivals), try_=" ".join([cause.try_, *tests]))


def _has_own_advice(cause: Finding) -> bool:
    """Whether it is about a reward, whose advice and rivals are others."""
    return cause.kind == "not_learning" and cause.try_ == ADVICE_OF_REWARDS


def _is_ruled_out(kind: str, observed: Observations) -> bool:
    """Whether observations exclude a rival or speak against it."""
    row = cause_of(kind)
    against = (*row.excluded_by, *row.against)
    return any(observed[name].holds for name in against) or any(observed[name].holds is False for name in row.needs)
