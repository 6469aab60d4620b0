"""What a series measures, and on which data: inferred from the words of its name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

from smdwidgets._names import LOSS, is_learning_rate, is_loss, words_of
from smdwidgets._text import listed, shown
from smdwidgets.diagnosis.inputs import Kind, Role
from smdwidgets.exceptions import SMDebugValueError


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_VALIDATION = _words("val valid validation eval evaluation dev test testing holdout")
_TRAINING = _words("train training tr")
#: Words that do not tell what is measured: how it was averaged, and over what.
_FILLING = _words("epoch step iter iteration iterations vs avg average mean batch per by output 0")

_METRIC = _words("acc accuracy auc map ap bleu rouge f1 precision recall iou miou dice psnr ssim score top1 top5 ndcg")
_REWARD = _words("reward rewards rew return returns")
_SPREAD = _words("std stdev min max initial var variance")
_RL = _words("policy actor critic value entropy td q qf qf1 qf2 baseline advantage advantages epsilon rollout rollouts")
#: Parts of a loss that may rise in a run that learns.
_PART = frozenset({"kl", "kld"})
_GAN = _words("discriminator generator gan wgan adversarial disc")
_RESOURCE = _words(
    "time fps speed sec secs second seconds ms duration throughput queue memory mem gpu cpu ram eta wall elapsed"
)
_COUNT = _words(
    "step steps envsteps epoch epochs iter iters iteration iterations episode episodes len length samples tokens "
    "timesteps count n num"
)
#: Words of a run's names that make its losses those of reinforcement learning.
_RL_RUN = _REWARD | _words("rollout rollouts epsilon episode")


def role_of(words: Iterable[str], mode: str = "") -> Role:
    """Return the data that a series was measured on.

    The mode decides if the name does not.

    >>> role_of(("val", "loss")), role_of(("loss",), "TRAIN")
    (<Role.VALIDATION: 'validation'>, <Role.TRAINING: 'training'>)
    """
    for word in words:
        if word in _VALIDATION:
            return Role.VALIDATION
        if word in _TRAINING:
            return Role.TRAINING
    return {"TRAIN": Role.TRAINING, "EVAL": Role.VALIDATION}.get(mode, Role.NONE)


def stem_of(words: Iterable[str]) -> tuple[str, ...]:
    """Return the words that a training series and its validation series share.

    >>> stem_of(("epoch", "val", "loss"))
    ('loss',)
    """
    return tuple(word for word in words if word not in _VALIDATION and word not in _TRAINING and word not in _FILLING)


class Context:
    """What all names of a run show: reinforcement learning, adversarial training.

    >>> Context(["train/loss", "rollout/ep_rew_mean"]).kind("train/loss")
    <Kind.RL: 'RL quantity'>
    """

    def __init__(self, names: Iterable[str]) -> None:
        of_names = [frozenset(map(_known, words_of(name))) for name in names]
        words = frozenset().union(*of_names)
        losses = frozenset().union(*(each for each in of_names if each & LOSS))
        self.learns_by_reward = not words.isdisjoint(_RL_RUN)
        #: "d_loss" and "g_loss" are abbreviations of discriminator and generator.
        self.is_adversarial = not words.isdisjoint(_GAN) or {"d", "g"} <= losses

    def kind(self, name: str) -> Kind:
        """Return the kind of a series by its name; the first match wins."""
        in_order = [_known(word) for word in words_of(name)]
        words = frozenset(in_order)
        if is_learning_rate(words):
            return Kind.LEARNING_RATE
        if "norm" in words and words & {"grad", "grads", "gradient", "gradients", "total"}:
            return Kind.GRADIENT_NORM
        measures_loss = is_loss(words)
        is_measure = measures_loss or bool(words & (_METRIC | _REWARD))
        if words & _RESOURCE or (words & _COUNT and not is_measure):
            return Kind.HOUSEKEEPING
        if words & _REWARD:
            return Kind.HOUSEKEEPING if words & _SPREAD else Kind.REWARD
        if words & _RL and not {"cross", "entropy"} <= words:
            return Kind.RL
        if words & _PART:
            return Kind.UNKNOWN
        if measures_loss:
            return Kind.RL if self.learns_by_reward else Kind.GAN if self.is_adversarial else Kind.LOSS
        return Kind.METRIC if words & _METRIC else Kind.UNKNOWN


@lru_cache(maxsize=65536)
def _known(word: str) -> str:
    """Return a word without its trailing number.

    The number stays if it is part of a known word.
    """
    if word in _METRIC or word in _RL:
        return word
    return word.rstrip("0123456789") or word


#: Other names of kinds that users may write.
_ALIASES = {
    "metric": Kind.METRIC,
    "metric down": Kind.LOSS,
    "lr": Kind.LEARNING_RATE,
    "rl": Kind.RL,
    "gan": Kind.GAN,
    "not judged": Kind.UNKNOWN,
}


def checked_kinds(kinds: Mapping[str, str | Kind] | None) -> dict[str, Kind]:
    """Return the kinds that a user gave by name of the series; raise for invalid ones.

    >>> checked_kinds({"train/acc": "metric up"})
    {'train/acc': <Kind.METRIC: 'metric up'>}
    """
    known = {kind.value.lower(): kind for kind in Kind} | _ALIASES
    found = {}
    for name, given in (kinds or {}).items():
        kind = given if isinstance(given, Kind) else known.get(str(given).strip().lower())
        if kind is None:
            choices = listed([*(kind.value for kind in Kind), "metric down"], 20)
            raise SMDebugValueError(f"invalid kind {shown(given)} of series {shown(name)}; choose from {choices}")
        found[name] = kind
    return found
