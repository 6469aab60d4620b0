"""The table of signals: what each is, and what its rows are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["SIGNAL_KINDS", "SignalKind"]


@dataclass(frozen=True)
class SignalKind:
    """One kind of signal.

    Attributes:
        id: identifier, such as ``"attention_max"``.
        rows: what the values at a step belong to: ``"head"``, ``"expert"``, ``"block"``, ``"tensor"`` or ``"part"``;
            empty if there is one value.
        meaning: what a value is, in one sentence without a full stop.
        limits: values above which the diagnosis looks, ascending.
        centre: the healthy value from which others differ on both sides; None if there is none.
        is_logarithmic: whether a picture has a logarithmic scale.
        names: names of the rows, if they are the same in every run.
        is_low_bad: whether the smallest of several rows is the one to look at.
    """

    id: str
    rows: str
    meaning: str
    limits: tuple[float, ...] = ()
    centre: float | None = None
    is_logarithmic: bool = False
    names: tuple[str, ...] = ()
    is_low_bad: bool = False


_KINDS: Final = (
    SignalKind("attention_max", "head", "largest attention logit of sampled queries", (50.0, 100.0), None, True),
    SignalKind(
        "attention_entropy", "head", "entropy of attention, relative to that of equal attention", is_low_bad=True
    ),
    SignalKind("router_load", "expert", "share of the tokens, relative to an equal share", (), 1.0),
    SignalKind("residual_rms", "block", "root mean square of the output of a block", (), None, True),
    SignalKind("residual_kurtosis", "block", "kurtosis of the output of a block, which outliers raise"),
    SignalKind("log_z", "", "mean of the logarithm of the softmax's denominator"),
    SignalKind("update_ratio", "tensor", "norm of an update, relative to the norm of the weight", (0.05,), None, True),
    SignalKind(
        "stale",
        "tensor",
        "root of the mean of squared gradients over Adam's second moments; 1 if they keep up",
        (2.3,),
        1.0,
    ),
    SignalKind("sigma_max", "tensor", "largest singular value of a weight", (), None, True),
    SignalKind(
        "gradient_noise",
        "part",
        "squared norms of the gradients of a small and a large batch, and the sizes of both",
        names=("small", "big", "small_batch", "big_batch"),
    ),
)

SIGNAL_KINDS: Final = {one.id: one for one in _KINDS}
"""Kinds of signals by identifier."""
