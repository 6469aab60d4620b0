"""The table of causes: conditions, evidence for and against, and rivals.

Names are those of `observations`, or kinds of findings, which hold if they were found. What a cause explains, and the
test that distinguishes it from its rivals, are in the table of kinds (`smdwidgets.finding`), as its other texts.
"""

from __future__ import annotations

from dataclasses import dataclass

from smdwidgets.finding import Confidence

__all__ = ["CAUSES", "READS", "Cause", "cause_of"]


@dataclass(frozen=True)
class Cause:
    """One row of the table.

    Attributes:
        needs: observations that must hold. One that does not hold excludes the cause; an unknown one makes it medium.
        excluded_by: observations that exclude it.
        supports: observations that speak for it.
        against: observations that speak against it.
        rivals: kinds that look the same, the likeliest first. Those that are excluded are not named.
        alone: observations that make it a fault without a symptom.
        raised_by: observations that make a note a problem of medium confidence.
        sure_with: observations of which one must hold for high confidence; none: its own evidence suffices.
        at_most: its highest confidence. Less than high for what remains when other causes are excluded: in programs of
            others, a fault of another kind, which nothing recorded shows, looked the same.
    """

    needs: tuple[str, ...] = ()
    excluded_by: tuple[str, ...] = ()
    supports: tuple[str, ...] = ()
    against: tuple[str, ...] = ()
    rivals: tuple[str, ...] = ()
    sure_with: tuple[str, ...] = ()
    alone: tuple[str, ...] = ()
    raised_by: tuple[str, ...] = ()
    at_most: Confidence = "high"


_UNSTABLE = ("loss_explodes", "diverged", "not_finite")

CAUSES: dict[str, Cause] = {
    "input_not_scaled": Cause(
        supports=(*_UNSTABLE, "dead", "saturated"),
        against=("loss_learns",),
        rivals=("rate_too_high", "labels_unrelated"),
        sure_with=(*_UNSTABLE, "dead", "saturated", "one_class", "not_learning"),
    ),
    "sum_reduction": Cause(raised_by=(*_UNSTABLE, "weights_blow_up")),
    "same_batch": Cause(rivals=("overfit",), alone=("batches_stop_changing",)),
    "loss_sign": Cause(
        supports=(*_UNSTABLE, "loss_unbounded"),
        against=("loss_learns",),
        rivals=("rate_too_high",),
        sure_with=(*_UNSTABLE, "loss_unbounded"),
        alone=("loss_unbounded",),
    ),
    "gradients_add_up": Cause(
        supports=(*_UNSTABLE, "norms_grow_smoothly"),
        against=("loss_stays_level",),
        rivals=("rate_too_high",),
        sure_with=_UNSTABLE,
        alone=("norms_grow_smoothly",),
    ),
    "bad_batch": Cause(
        supports=(*_UNSTABLE, "spike"),
        rivals=("rate_too_high",),
        sure_with=(*_UNSTABLE, "spike", "batches_without_values"),
        alone=("batches_without_values", "batches_far_outside"),
    ),
    "exploding": Cause(supports=_UNSTABLE, rivals=("rate_too_high", "loss_sign"), sure_with=_UNSTABLE),
    # The squared errors of targets that grow grow faster than any average of them.
    "second_moments_lag": Cause(excluded_by=("targets_grow", "loss_rises_with_targets")),
    # The rate is the cause, and the matrices that grow are what follows.
    "weights_blow_up": Cause(excluded_by=("rate_too_high",)),
    "attention_logits_grow": Cause(excluded_by=("updates_large_at_first",)),
    "decay_too_strong": Cause(needs=("not_learning",), rivals=("rate_too_low",)),
    "rate_rise": Cause(supports=_UNSTABLE, rivals=("bad_batch",), alone=("rate_undoes", "rate_begins_again")),
    "rate_too_high": Cause(
        needs=("gradients_reset",),
        excluded_by=("rate_is_gone", "few_steps"),
        supports=("large_updates", *_UNSTABLE),
        against=("loss_stays_level", "loss_learns", "lost_without_rise"),
        rivals=("labels_unrelated", "gradients_add_up", "loss_sign", "input_not_scaled", "not_finite", "one_class"),
        sure_with=(*_UNSTABLE, "large_updates"),
        alone=("loss_only_returns", "loss_rises_at_once", "swings"),
    ),
    "dead": Cause(rivals=("rate_too_high", "input_not_scaled")),
    "saturated": Cause(rivals=("rate_too_high", "input_not_scaled")),
    "vanishing": Cause(
        against=("loss_learns", "loss_unbounded"),
        rivals=("rate_too_high", "rate_too_low"),
        sure_with=("not_learning", "one_class", "constant_output", "output_constant", "rate_too_low"),
    ),
    "rate_too_low": Cause(excluded_by=("dead",), rivals=("vanishing",)),
    "labels_unrelated": Cause(
        excluded_by=(
            "dead",
            "saturated",
            "vanishing",
            "rate_too_low",
            "rate_zero",
            "output_constant",
            "constant_output",
            "symmetric_units",
        ),
        rivals=("rate_too_high", "overfit"),
        at_most="medium",
    ),
    # What evaluations contradict has several causes.
    "evaluation_differs": Cause(at_most="medium"),
    "evaluation_too_good": Cause(at_most="medium"),
    "one_class": Cause(
        excluded_by=("loss_of_policy",), rivals=("rate_too_high", "labels_unrelated"), sure_with=("loss_learns",)
    ),
    # Where tensors were recorded, and none of them shows why, the cause is something else.
    "diverged": Cause(
        excluded_by=("loss_rises_with_targets", "loss_of_policy"),
        rivals=("rate_too_high", "bad_batch"),
        sure_with=("only_scalars",),
    ),
    "not_learning": Cause(excluded_by=("loss_of_policy",), rivals=("labels_unrelated", "rate_too_low", "frozen")),
}
"""Causes by kind; a kind without a row has neither conditions nor rivals."""

READS: dict[str, tuple[str, ...]] = {
    "input_not_finite": ("inputs",),
    "input_not_scaled": ("inputs",),
    "workers_apart": ("workers", "weights"),
    "same_batch": ("inputs",),
    "symmetric_units": ("weights",),
    "clip_before_backward": ("gradients",),
    "loss_sign": ("weights", "gradients"),
    "gradients_add_up": ("gradients",),
    "bad_batch": ("inputs",),
    "exploding": ("weights", "gradients"),
    "decay_too_strong": ("weights",),
    "rate_rise": ("learning rate",),
    "rate_too_high": ("weights",),
    "spike": ("training loss",),
    "saturated": ("activations",),
    "dead": ("activations",),
    "vanishing": ("gradients",),
    "rate_too_low": ("weights",),
    "rate_zero": ("learning rate",),
    "not_finite": (),
    "labels_unrelated": ("training loss", "outputs"),
    "output_constant": ("outputs",),
    "one_class": ("outputs",),
    "frozen": ("weights",),
    "diverged": ("training loss",),
    "overfit": ("validation loss",),
    "collapsed": ("reward",),
    "not_learning": ("training loss",),
}
"""What each judgement of a diagnosis reads."""

_NONE = Cause()


def cause_of(kind: str) -> Cause:
    """Return the row of a kind; an empty one if it has none.

    >>> cause_of("rate_too_high").rivals[0]
    'labels_unrelated'
    """
    return CAUSES.get(kind, _NONE)
