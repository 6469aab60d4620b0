"""Texts about findings in scalars, and how a candidate's facts become sentences."""

from __future__ import annotations

from smdwidgets._text import visible
from smdwidgets.diagnosis.causes import Explained
from smdwidgets.diagnosis.findings import Finding
from smdwidgets.diagnosis.tensor_words import TEXTS as TENSOR_TEXTS
from smdwidgets.diagnosis.text import Text

#: The page of the documentation with one section per kind.
PAGE = "diagnosis.md"

_SCALAR_TEXTS: dict[str, Text] = {
    "not_finite": Text(
        "{series} is {what} {when}",
        "{share}",
        "A value overflowed, or an operation such as log(0) or 0/0 is undefined.",
        "Find the first tensor that is not finite; reduce the learning rate, clip gradients, or add a small constant where "
        "a logarithm or a division is taken.",
    ),
    "not_learning": Text(
        "The {what} does not {verb}",
        "{detail}",
        "{guessing}Either nothing is learned, or the run began with a trained model.",
        "Check the learning rate, that labels belong to inputs, and that the optimizer has the model's parameters; try to fit "
        "a few samples first.",
    ),
    "constant": Text(
        "{series} has the same value at every step",
        "{value:.6g}",
        "Perhaps it is not computed from the model, or it is logged once and repeated.",
        "Check what is logged under this name.",
    ),
    "diverged": Text(
        "{series} rises since step {onset:,} and stays up",
        "{best:.3g} → {end:.3g}",
        "The training diverged; often the learning rate is too high.",
        "Go back to a checkpoint before step {onset:,}; reduce the learning rate, warm it up, or clip gradients.",
    ),
    "spike": Text(
        "{title}",
        "{level:.3g} → {top:.3g}",
        "Often one unusual batch, or a learning rate close to the limit of stability.",
        "Look at the batches there; clip gradients, or reduce the learning rate.",
    ),
    "overfit": Text(
        "Validation loss rises since step {onset:,}",
        "{series} {best:.3g} → {end:.3g}; {training} still falls",
        "Probably overfitting.{accuracy}",
        "Keep the checkpoint of step {keep:,}; try more data, augmentation or weight decay.",
    ),
    "collapsed": Text(
        "{series} fell from {best:.3g} to {end:.3g} at step {onset:,} and has not come back so far",
        "",
        "The policy lost what it had learned; often the steps are too large, or the environment or the exploration changed.",
        "Go back to a checkpoint before step {onset:,}; reduce the learning rate or the size of policy updates, and check what "
        "changed at that step.",
    ),
    "incident": Text(
        "The flight recorder was triggered at step {onset:,}",
        "{why}",
        "{what}The tensors of the steps around it are in the run{saved}.",
        "Compare the tensors of the steps before it with those of an earlier step.",
    ),
    "rate_zero": Text(
        "The learning rate is 0 {when}",
        "{series}",
        "Nothing is learned at a rate of 0.",
        "Check the length of the schedule against the number of steps.",
    ),
    "rate_rise": Text(
        "The learning rate jumps at step {onset:,}",
        "{series} {before:.3g} → {after:.3g}",
        "What follows is probably its effect.",
        "Check the schedule; after a restart, check that its state was restored.",
    ),
}

TEXTS: dict[str, Text] = _SCALAR_TEXTS | TENSOR_TEXTS


#: Names of kinds in sentences.
NAMES: dict[str, str] = {
    "not_finite": "values that are not finite",
    "not_learning": "no learning",
    "diverged": "a loss that rises",
    "spike": "spikes of the loss",
    "overfit": "overfitting",
    "collapsed": "a collapse of the reward",
    "exploding": "exploding gradients",
    "saturated": "saturated units",
    "dead": "dead units",
    "one_class": "one predicted class",
    "vanishing": "vanishing gradients",
    "rate_too_high": "large updates",
    "rate_too_low": "small updates",
    "labels_unrelated": "a validation loss at chance",
    "gradients_add_up": "similar gradients",
    "frozen": "constant weights",
}


def finding(explained: Explained) -> Finding:
    """Return what stands of the candidates as a finding, in words."""
    candidate = explained.candidate
    text = TEXTS[candidate.kind]
    facts = {key: visible(one, 200) if isinstance(one, str) else one for key, one in candidate.facts.items()}
    facts = {"onset": candidate.onset or 0, "last": candidate.last, **facts}
    title, detail, cause, advice = (part.format(**facts) for part in (text.title, text.detail, text.cause, text.advice))
    symptoms = explained.symptoms
    explains = "; ".join(NAMES.get(one.kind, one.kind.replace("_", " ")) for one in symptoms)
    return Finding(
        kind=candidate.kind,
        severity=candidate.severity,
        confidence=candidate.confidence,
        onset=candidate.onset,
        last=candidate.last,
        series=candidate.series,
        evidence=(*candidate.evidence, *(each for one in symptoms for each in one.evidence)),
        explains=tuple(one.kind for one in symptoms),
        title=title,
        text=f"{title}{f' ({detail})' if detail else ''}. {cause}{f' It explains: {explains}.' if explains else ''}",
        try_=advice,
        url=f"{PAGE}#{candidate.kind.replace('_', '-')}",
    )
