"""Kinds of findings: their order from cause to symptom, and what each explains."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from smdwidgets.diagnosis.findings import CONFIDENCES, SEVERITIES, Candidate


@dataclass(frozen=True)
class Cause:
    """The place of a kind among causes and symptoms.

    Attributes:
        kind: stable identifier, also the anchor of its section in the documentation.
        explains: kinds that it explains if they begin no earlier than shortly before it.
        needs_symptom: whether it is dropped unless a symptom accompanies it.
        symptom: whether it is a symptom that lets such a cause stand.
    """

    kind: str
    explains: frozenset[str] = frozenset()
    needs_symptom: bool = False
    symptom: bool = False


_UNSTABLE = frozenset(
    {"exploding", "spike", "saturated", "dead", "not_finite", "one_class", "diverged", "not_learning", "collapsed"}
)
#: What values that are not finite spread to.
_POISONED = frozenset(
    {"not_finite", "diverged", "not_learning", "one_class", "spike", "dead", "saturated", "exploding"}
)
_STARVED = frozenset({"vanishing", "one_class", "not_learning", "rate_too_low"})

#: From cause to symptom. A finding removes later ones that it explains.
_ORDER = (
    Cause("input_not_finite", _POISONED),
    Cause("input_not_scaled", _UNSTABLE | {"rate_too_high", "vanishing"}, needs_symptom=True),
    Cause("workers_apart", frozenset({"not_learning", "diverged", "overfit"})),
    Cause("same_batch", frozenset({"overfit", "labels_unrelated", "gradients_add_up"})),
    Cause("loss_sign", _UNSTABLE | {"rate_too_high"}, needs_symptom=True),
    Cause("gradients_add_up", _UNSTABLE | {"rate_too_high"}, needs_symptom=True),
    Cause("bad_batch", _UNSTABLE | {"rate_too_high"}, needs_symptom=True),
    Cause("exploding", frozenset({"rate_too_high", "spike", "not_finite", "diverged", "not_learning"}), symptom=True),
    Cause("decay_too_strong", _STARVED, needs_symptom=True),
    Cause("rate_rise", _UNSTABLE | {"rate_too_high", "vanishing"}, needs_symptom=True),
    Cause("rate_too_high", _UNSTABLE | {"vanishing", "rate_too_low", "rate_zero"}, needs_symptom=True),
    Cause("spike", symptom=True),
    Cause("saturated", _STARVED, symptom=True),
    Cause("dead", _STARVED, symptom=True),
    Cause("vanishing", frozenset({"one_class", "not_learning", "rate_too_low"})),
    Cause("rate_too_low", frozenset({"not_learning", "one_class"})),
    Cause("rate_zero", frozenset({"not_learning", "rate_too_low", "frozen"})),
    Cause("not_finite", frozenset({"diverged", "not_learning", "one_class", "spike"}), symptom=True),
    Cause("labels_unrelated", frozenset({"overfit"})),
    Cause("one_class", frozenset({"not_learning"}), symptom=True),
    Cause("frozen"),
    Cause("diverged", frozenset({"not_learning", "collapsed"}), symptom=True),
    Cause("overfit"),
    Cause("collapsed", symptom=True),
    Cause("not_learning", symptom=True),
    Cause("constant"),
    Cause("incident"),
)

#: Facts that one finding shows.
MOST_EVIDENCE = 6
#: How much earlier than its cause a symptom may begin, as a share of the run.
EARLIER = 0.1

#: The kinds in their order, by identifier.
TAXONOMY: dict[str, Cause] = {cause.kind: cause for cause in _ORDER}


@dataclass(frozen=True)
class Explained:
    """A candidate that stands, and the candidates that it explains."""

    candidate: Candidate
    symptoms: tuple[Candidate, ...] = ()


def explained(candidates: Iterable[Candidate], first_step: int, last_step: int) -> list[Explained]:
    """Return what stands of the candidates, from cause to symptom.

    Candidates of one kind are merged. A cause that needs a symptom but has none, or none that is not explained yet, becomes
    a note. A candidate removes later ones that it explains, unless they begin clearly before it; cause and symptom then confirm each other.
    """
    merged = _merged(candidates)
    slack = EARLIER * (last_step - first_step)
    found: list[Explained] = []
    removed: set[str] = set()
    for at, one in enumerate(merged):
        cause = TAXONOMY[one.kind]
        if one.kind in removed:
            continue
        if cause.needs_symptom and not any(TAXONOMY[each.kind].symptom for each in merged if each.kind not in removed):
            found.append(Explained(replace(one, severity="note", confidence="low")))
            continue
        begin = (first_step if one.onset is None else one.onset) - slack
        symptoms = tuple(
            other
            for other in merged[at + 1 :]
            if other.kind in cause.explains
            and other.kind not in removed
            and (first_step if other.onset is None else other.onset) >= begin
        )
        removed |= {other.kind for other in symptoms}
        found.append(Explained(_confirmed(one, symptoms), symptoms))
    return found


def _merged(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return one candidate per kind, in the order of the taxonomy.

    The gravest candidate of a kind is kept; of equally grave ones, the earliest.
    """
    by_kind: dict[str, list[Candidate]] = {}
    for one in candidates:
        by_kind.setdefault(one.kind, []).append(one)
    merged = []
    for kind in TAXONOMY:
        same = sorted(by_kind.get(kind, ()), key=_gravity)
        if same:
            names = dict.fromkeys(name for one in same for name in one.series)
            evidence = tuple(each for one in same for each in one.evidence)
            merged.append(replace(same[0], series=tuple(names), evidence=evidence[:MOST_EVIDENCE]))
    return merged


def _gravity(one: Candidate) -> tuple[int, int, int]:
    return SEVERITIES.index(one.severity), CONFIDENCES.index(one.confidence), one.onset or 0


def _confirmed(one: Candidate, symptoms: Sequence[Candidate]) -> Candidate:
    """Return a candidate with the severity and confidence that its symptoms add."""
    if not symptoms or one.severity == "note":
        return one
    severity = min((one.severity, *(each.severity for each in symptoms)), key=SEVERITIES.index)
    surest = min((each.confidence for each in symptoms), key=CONFIDENCES.index)
    confidence = (
        "high" if one.confidence != "low" and surest != "low" else min((one.confidence, surest), key=CONFIDENCES.index)
    )
    return replace(one, severity=severity, confidence=confidence)
