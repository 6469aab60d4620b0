"""What a series of reinforcement learning with language models is, from its name.

The table knows the names of TRL, verl and OpenRLHF; a prefix such as ``train/`` and other separators do not matter.
"""

from __future__ import annotations

from enum import Enum
from functools import lru_cache
from typing import Final

from smdwidgets.naming.scalars import words_of

__all__ = ["Quantity", "quantity"]


class Quantity(Enum):
    """What a series of such a training measures."""

    ENTROPY = "entropy of the policy"
    #: Divergence from the reference model.
    KL = "divergence from the reference"
    #: Share of the groups whose rewards are equal.
    EQUAL_GROUPS = "share of groups with equal rewards"
    REWARD_SPREAD = "standard deviation of rewards"
    LENGTH = "mean length of answers"
    TRUNCATED = "share of truncated answers"
    #: Mean difference of the logarithms of probabilities between sampler and trainer.
    SAMPLER_LOG_GAP = "difference of logarithms between sampler and model"
    SAMPLER_GAP = "difference of probabilities between sampler and model"
    SAMPLER_RATIO = "ratio of probabilities of model and sampler"
    SAMPLER_CORRELATION = "correlation of probabilities of sampler and model"


#: Words that must be in a name, and words that must not, by quantity; the first row that matches decides.
_ROWS: Final = (
    (Quantity.SAMPLER_LOG_GAP, "sampling logp difference mean", ""),
    (Quantity.SAMPLER_LOG_GAP, "rollout log ppl abs diff", ""),
    (Quantity.SAMPLER_GAP, "rollout probs diff mean", ""),
    (Quantity.SAMPLER_CORRELATION, "rollout probs pearson corr", ""),
    (Quantity.SAMPLER_RATIO, "sampling ratio mean", "min max std"),
    (Quantity.EQUAL_GROUPS, "frac reward zero std", ""),
    (Quantity.EQUAL_GROUPS, "fraction reward zero std", ""),
    (Quantity.TRUNCATED, "clipped ratio completions", "terminated"),
    (Quantity.TRUNCATED, "truncated fraction completions", ""),
    (Quantity.TRUNCATED, "response length clip ratio", ""),
    (Quantity.TRUNCATED, "truncated rate", "eval val test"),
    (Quantity.LENGTH, "completions mean length", "terminated min max"),
    (Quantity.LENGTH, "completion length", "min max terminated std clip ratio"),
    (Quantity.LENGTH, "response length", "min max aborted non clip ratio std prompt"),
    (Quantity.REWARD_SPREAD, "reward std", "zero frac fraction rewards"),
    (Quantity.ENTROPY, "entropy", "coef coeff coefficient bonus cross target alpha weight min max std"),
    (Quantity.KL, "reward kl penalty", "coef coeff coefficient beta"),
    (
        Quantity.KL,
        "kl",
        "coef coeff coefficient beta ppo approx old vllm rollout corr sampling target max min std loss value early",
    ),
    (Quantity.KL, "actor kl loss", "coef coeff coefficient beta ppo"),
)
_TABLE: Final = tuple((one, frozenset(needs.split()), frozenset(bars.split())) for one, needs, bars in _ROWS)


@lru_cache(maxsize=65536)
def quantity(name: str) -> Quantity | None:
    """Return what a series measures; None if it is none of these.

    >>> quantity("train/completions/clipped_ratio"), quantity("actor/entropy"), quantity("actor/ppo_kl")
    (<Quantity.TRUNCATED: 'share of truncated answers'>, <Quantity.ENTROPY: 'entropy of the policy'>, None)
    """
    words = frozenset(words_of(name))
    return next((one for one, needs, bars in _TABLE if needs <= words and not bars & words), None)
