"""Kinds of findings: their order from cause to symptom, and what each explains."""

from __future__ import annotations

from dataclasses import dataclass


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
_STARVED = frozenset({"vanishing", "one_class", "not_learning", "rate_too_low"})

#: From cause to symptom. A finding removes later ones that it explains.
_ORDER = (
    Cause("input_not_scaled", _UNSTABLE | {"rate_too_high", "vanishing"}, needs_symptom=True),
    Cause("workers_apart", frozenset({"not_learning", "diverged", "overfit"})),
    Cause("same_batch", frozenset({"overfit", "labels_unrelated", "gradients_add_up"})),
    Cause("loss_sign", _UNSTABLE | {"rate_too_high"}, needs_symptom=True),
    Cause("gradients_add_up", _UNSTABLE | {"rate_too_high"}, needs_symptom=True),
    Cause("bad_batch", _UNSTABLE | {"rate_too_high"}, needs_symptom=True),
    Cause("exploding", frozenset({"rate_too_high", "spike", "not_finite", "diverged", "not_learning"}), symptom=True),
    Cause("decay_too_strong", _STARVED, needs_symptom=True),
    Cause("rate_too_high", _UNSTABLE | {"vanishing", "rate_too_low"}, needs_symptom=True),
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
)

#: The kinds in their order, by identifier.
TAXONOMY: dict[str, Cause] = {cause.kind: cause for cause in _ORDER}
