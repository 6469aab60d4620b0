"""What a scalar series is, from its name: kind, role, stem, better direction.

This is the only module that decides it. The words of a name are compared with those that trainers use; the table of
cases is ``tests/vectors/names.json``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache
from itertools import chain
from typing import Final, TypeVar

__all__ = [
    "ROLE_WORDS",
    "Kind",
    "Role",
    "Series",
    "by_role",
    "describe",
    "describe_all",
    "is_loss",
    "kinds_of",
    "losses_of",
    "pairs",
    "words_of",
]

V = TypeVar("V")


class Kind(Enum):
    """What a series measures."""

    #: A loss or an error that a training minimises.
    LOSS = "loss"
    METRIC = "metric"
    REWARD = "reward"
    LEARNING_RATE = "learning_rate"
    GRADIENT_NORM = "gradient_norm"
    LOSS_SCALE = "loss_scale"
    ENTROPY = "entropy"
    KL = "kl"
    #: Values, advantages and clipping of reinforcement learning.
    POLICY = "policy"
    #: A weight, coefficient or other setting that a schedule changes.
    SETTING = "setting"
    #: A standard deviation or another measure of spread.
    SPREAD = "spread"
    #: A time or a throughput.
    TIME = "time"
    COUNT = "count"
    #: Memory, utilization or money.
    RESOURCE = "resource"
    UNKNOWN = "unknown"


class Role(Enum):
    """The data that a series was measured on, as far as the name says."""

    TRAINING = "training"
    VALIDATION = "validation"
    TEST = "test"
    #: One value of a whole training, written at its end.
    SUMMARY = "summary"
    NONE = "none"

    @property
    def is_held_out(self) -> bool:
        """Whether the data are not those of the training."""
        return self in (Role.VALIDATION, Role.TEST)


@dataclass(frozen=True, slots=True)
class Series:
    """What the name of a scalar series says.

    Attributes:
        kind: what it measures.
        role: the data that it was measured on.
        stem: its words without those of the role and of averaging, which the training and the validation series share.
        base: the name without the words of the role.
        better: ``"lower"`` or ``"higher"``; empty if neither is better.
    """

    kind: Kind
    role: Role
    stem: tuple[str, ...]
    base: str
    better: str


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


_WORD: Final = re.compile(r"[A-Z]+(?![a-z])\d*|[A-Z]?[a-z]+\d*|\d+|[^\W\d_A-Za-z]+")
#: Characters of the longest name that is interpreted, which bounds time and memory for hostile names.
_LONGEST: Final = 1000
#: The prefix of scalars that a hook saves.
_SCALAR: Final = "scalar/"

#: The number of a layer, which is no part of what a series measures.
_LAYER: Final = re.compile(r"(?<=[./])\d+(?=[./])")
#: Stand for the numbers of layers in a name: digits that no other part of an ASCII name has.
_PLACES: Final = "\u0966\u0967\u0968\u0969\u096a\u096b\u096c\u096d"

ROLE_WORDS: Final[Mapping[str, Role]] = {
    **dict.fromkeys(_set("train training tr"), Role.TRAINING),
    **dict.fromkeys(
        _set("val valid validation validate validating eval evaluate evaluating evaluation dev holdout heldout"),
        Role.VALIDATION,
    ),
    **dict.fromkeys(_set("test testing predict"), Role.TEST),
}
"""Roles by the words that name them."""
#: Summaries that trainers of Transformers write when a training ends. ``train_loss`` is one in a run that has others of
#: them.
_SUMMARIES: Final = _set("train_runtime train_samples_per_second train_steps_per_second total_flos train_samples")
_LOSS_SUMMARY: Final = "train_loss"
#: Words that do not tell what is measured: how it was averaged, and over what.
_FILLING: Final = _set(
    "epoch step iter iteration iterations avg average mean batch output 0 dataloader idx global inner metric metrics"
)
#: What follows is what a value is relative to, or what it is plotted over.
_RELATIVE: Final = _set("per vs versus by")

_LOSS: Final = _set(
    "loss nll nloglik deviance mse mae mape smape mphe rmse rmsle nrmse mase crps logloss mlogloss ppl perplexity cost err error "
    "merror wer cer der eer fid kid lpips bpd bpc bpb xent crossentropy brier ece leibler"
)
#: Losses that have no other word: metrics of LightGBM.
_LOSS_ALONE: Final = _set("ce bce l1 l2 huber poisson tweedie quantile")
#: Words after that of a loss, and what the name then measures.
_SCALE: Final = _set("scale scaler scaling")
_COEFFICIENT: Final = _set(
    "coef coeff coefs coeffs coefficient weight weights lambda alpha beta gamma tau temperature momentum decay multiplier factor "
    "threshold schedule"
)
_SETTING: Final = _COEFFICIENT | _set("fn function margin ratio fraction frac")
_SPREAD: Final = _set("std stdev stddev stderr var variance")
_CHANGE: Final = _set("delta diff change improvement slope spike spikes input")
_METRIC: Final = _set(
    "acc accuracy accuracies auc auroc aucpr auprc map mar ap bleu blue rouge meteor cider f1 fbeta precision recall iou miou dice psnr "
    "ssim score scores top1 top5 ndcg mrr r2 pck pq mcc kappa specificity sensitivity correlation pearson spearman corrcoef matthews similarity match success hmean"
)
_REWARD: Final = _set("reward rewards rew return returns fitness")
#: Rewards of preference training compare two answers; no agent earns them.
_PREFERENCE: Final = {"chosen": "higher", "rejected": "lower", "margins": "higher", "margin": "higher"}
_EXTREME: Final = _set("max min maximum minimum initial")
_POLICY: Final = _set(
    "policy actor critic value values vf q qf td baseline advantage advantages epsilon rollout rollouts clipfrac exploration"
)
_KL: Final = _set("kl kld approxkl policykl")
#: Losses of these parts need not fall in a training that learns.
_NEED_NOT_FALL: Final = _POLICY | _KL | _set("entropy surrogate ppo pg ent alpha")
_ADVERSARIAL: Final = _set("discriminator generator gan wgan adversarial adv disc")
#: Words before a cost that is a time, as in the logs of Paddle.
_COST_IN_TIME: Final = _set("batch reader")
#: What follows "per" in a throughput.
_PER_TIME: Final = _set("sec secs second seconds ms minute hour day")
_TIME: Final = _PER_TIME | _set(
    "time times timer timing timings fps sps wps ups speed duration throughput eta wall elapsed runtime latency tps tflops flops qps"
)
_RESOURCE: Final = _set(
    "queue memory mem gpu cpu ram cuda vram disk network power utilization mfu hfu gflops usd dollars eur price gib gb mb reserved allocated"
)
_COUNT: Final = _set(
    "step steps envsteps epoch epochs iter iters iteration iterations episode episodes len length lengths samples tokens timesteps "
    "count counts n num number updates size sizes examples documents seqs lines flos tracker retries ooms wpb bsz"
)
#: Words after that of a loss, or before it, that make it a number of losses.
_NUMBER_AFTER: Final = _set("count counts num number tokens samples")
_NUMBER_BEFORE: Final = _set("n num number")
#: What a name measures whose words follow that of a loss.
_OF_LOSS: Final = (
    (_SCALE, Kind.LOSS_SCALE),
    (_SETTING, Kind.SETTING),
    (_SPREAD, Kind.SPREAD),
    (_TIME, Kind.TIME),
    (_NUMBER_AFTER, Kind.COUNT),
    (_CHANGE, Kind.UNKNOWN),
)
#: Words of a run's names that make its losses those of reinforcement learning.
_LEARNS_BY_REWARD: Final = _set("rollout rollouts epsilon episode")
#: Words whose number is a part of them.
_NUMBERED: Final = _METRIC | _LOSS_ALONE
#: English words that end like a loss.
_NO_LOSS: Final = _set("gloss floss")
#: Words that are written together in lower case.
_TOGETHER: Final = {
    "losses": ("loss",),
    "gnorm": ("grad", "norm"),
    "gradnorm": ("grad", "norm"),
    "lossscale": ("loss", "scale"),
    "gradscaler": ("grad", "scaler"),
    "learningrate": ("learning", "rate"),
    "lrs": ("lr",),
    "valacc": ("val", "acc"),
    "trainacc": ("train", "acc"),
    "testacc": ("test", "acc"),
}


#: Spellings that are no words when they are split at changes of case.
_SPELLINGS: Final = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in ((r"IoU", "Iou"), (r"AP(?=[sml]\b)", "AP_"), (r"FLOPs", "flops"), (r"'s\b", ""))
)


def words_of(name: str) -> tuple[str, ...]:
    """Return the words of a name in lower case.

    Names are split at punctuation and at changes of case. Only the end of a very long name is read.

    >>> words_of("Losses/valLoss_epoch")
    ('losses', 'val', 'loss', 'epoch')
    """
    shape, numbers = _shape(name[-_LONGEST:])
    words = _words_of(shape)
    return tuple([numbers.get(word, word) for word in words]) if numbers else words


@lru_cache(maxsize=65536)
def _words_of(name: str) -> tuple[str, ...]:
    for pattern, replacement in _SPELLINGS:
        name = pattern.sub(replacement, name)
    return tuple(word.lower() for word in _WORD.findall(name))


def describe(name: str) -> Series:
    """Return what the name of a scalar series says.

    A very long name, which no program makes, is not interpreted.

    >>> series = describe("val_loss")
    >>> series.kind, series.role, series.stem, series.better
    (<Kind.LOSS: 'loss'>, <Role.VALIDATION: 'validation'>, ('loss',), 'lower')
    >>> [describe(name).kind.value for name in ("train/loss_scale", "loss_weight", "error_count", "gpu_cost")]
    ['loss_scale', 'setting', 'count', 'resource']
    """
    if len(name) > _LONGEST:
        return Series(Kind.UNKNOWN, Role.NONE, (), name, "")
    shape, numbers = _shape(name)
    series = _describe(shape)
    if not numbers:
        return series
    stem: list[str] = []
    for word in series.stem:
        word = numbers.get(word, word)
        if word not in _FILLING and word not in stem:
            stem.append(word)
    base = series.base.translate({ord(place): number for place, number in numbers.items()})
    return Series(series.kind, series.role, tuple(stem), base, series.better)


def _shape(name: str) -> tuple[str, dict[str, str]]:
    """Return a name with places in place of the numbers of layers, and these numbers.

    A model has many names and few shapes, so that what shapes say is computed once.

    >>> _shape("layers.3.weight")[0] == _shape("layers.12.weight")[0]
    True
    """
    numbers = _LAYER.findall(name)
    if not numbers or len(numbers) > len(_PLACES) or not name.isascii():
        return name, {}
    places = iter(_PLACES)
    return _LAYER.sub(lambda _: next(places), name), dict(zip(_PLACES, numbers, strict=False))


@lru_cache(maxsize=65536)
def _describe(name: str) -> Series:
    name = name.removeprefix(_SCALAR)
    words = _plain_words(name)
    role, base = _role(name, words)
    kind, better = _kind(name, words)
    stem = _stem(name, words)
    if kind is Kind.UNKNOWN and len(stem) == 1 and stem[0] in _LOSS_ALONE:
        kind, better = Kind.LOSS, "lower"
    return Series(kind, role, stem, base, better)


def describe_all(names: Iterable[str]) -> dict[str, Series]:
    """Return what the names of all series of a run say.

    Other names can change the meaning of one: a loss need not fall in a run with rewards, next to that of an
    adversary, or if several optimizers have a loss each; and ``train_loss`` is a summary in a run with other summaries
    of Transformers.

    >>> describe_all(["loss", "eval_loss", "train_loss", "train_runtime"])["train_loss"].role
    <Role.SUMMARY: 'summary'>
    >>> describe_all(["train/loss", "rollout/ep_rew_mean"])["train/loss"].better
    ''
    >>> describe_all(["loss", "mean_reward", "margin", "accuracy"])["loss"].better
    'lower'
    """
    described = {name: describe(name) for name in names}
    if _judges_answers(described):
        described = {name: _of_judge(name, series) for name, series in described.items()}
    shapes = {_shape(name)[0]: series for name, series in described.items()}
    words = frozenset(word for name in shapes for word in _plain_words(name))
    of_losses = {word for name, series in shapes.items() if series.kind is Kind.LOSS for word in _plain_words(name)}
    need_not_fall = (
        not words.isdisjoint(_LEARNS_BY_REWARD | _ADVERSARIAL)
        or {"d", "g"} <= of_losses
        or {"dis", "gen"} <= of_losses
        or _several_train(described)
        or any(series.kind is Kind.REWARD for series in described.values())
    )
    described.update(_losses_by_their_data(described))
    summarized = any(_last_part(name) in _SUMMARIES for name in described)
    for name, series in described.items():
        if need_not_fall and series.kind is Kind.LOSS:
            described[name] = replace(series, better="")
        if summarized and _last_part(name) == _LOSS_SUMMARY:
            described[name] = replace(described[name], role=Role.SUMMARY)
    return described


def _losses_by_their_data(described: Mapping[str, Series]) -> dict[str, Series]:
    """Return losses whose names only say on which data they were measured.

    They stand beside the loss of the training, and another series says what a metric of these data is called.

    >>> describe_all(["loss", "val", "val_acc"])["val"].kind, describe_all(["loss", "val"])["val"].kind
    (<Kind.LOSS: 'loss'>, <Kind.UNKNOWN: 'unknown'>)
    """
    bare = {name: one for name, one in described.items() if not one.stem and one.kind is Kind.UNKNOWN}
    loss = next((one for one in described.values() if one.kind is Kind.LOSS and one.stem == ("loss",)), None)
    if not bare or loss is None or any(one.kind is Kind.LOSS and one.role.is_held_out for one in described.values()):
        return {}
    metrics = {one.role for one in described.values() if one.kind is Kind.METRIC}
    return {
        name: replace(one, kind=Kind.LOSS, stem=loss.stem, better=loss.better)
        for name, one in bare.items()
        if one.role.is_held_out and one.role in metrics
    }


#: A weight of a layer, which no schedule sets.
_PARAMETER: Final = re.compile(r"\w\.(?:weight|bias)$")
#: The learning rate of one optimizer, as the hook of PyTorch names it.
_RATE_OF_OPTIMIZER: Final = re.compile(r"optimizer/([^/]+)/learning_rate_0")


def _judges_answers(described: Mapping[str, Series]) -> bool:
    """Whether a model learns to give the better one of two answers the larger reward.

    These rewards are outputs of the model; no agent earns them.
    """
    of_names = [_plain_words(shape) for shape in {_shape(name)[0] for name in described}]
    last = {words[-1] for words in of_names if words}
    every = {word for words in of_names for word in words}
    return bool(last & {"margin", "margins"}) and "accuracy" in last and every.isdisjoint(_KL | _LEARNS_BY_REWARD)


def _of_judge(name: str, series: Series) -> Series:
    if series.kind is Kind.REWARD:
        return replace(series, kind=Kind.SPREAD, better="")
    if _plain_words(name)[-1:] in (("margin",), ("margins",)):
        return replace(series, kind=Kind.METRIC, better="higher")
    return series


def is_rate_of_optimizer(name: str) -> bool:
    """Whether a hook has saved a series as the first learning rate of an optimizer.

    >>> is_rate_of_optimizer("optimizer/Adam_1/learning_rate_0"), is_rate_of_optimizer("learning_rate")
    (True, False)
    """
    return _RATE_OF_OPTIMIZER.fullmatch(name) is not None


def _several_train(described: Mapping[str, Series]) -> bool:
    """Whether several optimizers step, and several losses are recorded while training.

    Their models may have opposite aims.
    """
    optimizers = sum(map(is_rate_of_optimizer, described))
    if optimizers < 2:
        return False
    losses = [one for one in described.values() if one.kind is Kind.LOSS and not one.role.is_held_out]
    return len(losses) >= 2


def is_loss(name: str) -> bool:
    """Whether a scalar of this name is a loss or an error that a training minimises.

    >>> [is_loss(name) for name in ("val_loss", "train-rmse", "loss_1", "trainLoss", "losses/generator")]
    [True, True, True, True, True]
    >>> [is_loss(name) for name in ("loss_scale", "learning_rate", "gloss", "lossless/ratio", "auc")]
    [False, False, False, False, False]
    """
    return describe(name).kind is Kind.LOSS


def losses_of(names: Iterable[str]) -> set[str]:
    """Return the names that are losses.

    >>> sorted(losses_of(["loss", "layers.0.weight", "layers.1.weight", "layers.1.aux_loss"]))
    ['layers.1.aux_loss', 'loss']
    """
    return {name for name, kind in kinds_of(names).items() if kind is Kind.LOSS}


def kinds_of(names: Iterable[str]) -> dict[str, Kind]:
    """Return the kind of each name.

    >>> kinds_of(["layers.1.aux_loss"])
    {'layers.1.aux_loss': <Kind.LOSS: 'loss'>}
    """
    # The kind depends on no number of a layer, so that one place stands for all of them.
    shaped, place = _LAYER.sub, _PLACES[0]
    return {
        name: _describe(shaped(place, name) if name.isascii() else name).kind if len(name) <= _LONGEST else Kind.UNKNOWN
        for name in names
    }


def by_role(values: Mapping[str, V]) -> tuple[dict[str, V], dict[str, V]]:
    """Split the values of one step into those of training and of held-out data.

    Keys of the results are the names without the words of the role, so that the two can be paired. A name without such
    words is that of the training if the other has it.

    >>> by_role({"train-rmse": 1.0, "validation-rmse": 2.0})
    ({'rmse': 1.0}, {'rmse': 2.0})
    >>> by_role({"loss": 1.0, "val_loss": 2.0})
    ({'loss': 1.0}, {'loss': 2.0})
    >>> by_role({"Loss/train": 1.0, "Loss/test": 2.0})
    ({'Loss': 1.0}, {'Loss': 2.0})
    """
    described = {name: describe(name) for name in values}
    validation = {series.base: values[name] for name, series in described.items() if series.role.is_held_out}
    training = {series.base: values[name] for name, series in described.items() if series.role is Role.TRAINING}
    for name, series in described.items():
        if series.role is Role.NONE and series.base in validation:
            training.setdefault(series.base, values[name])
    return training, validation


def pairs(names: Iterable[str]) -> dict[str, str]:
    """Return the training series of each series of held-out data, by name.

    Both have the same kind and stem. A series that names the training data is preferred, then one with the same words
    of averaging. Summaries are never part of a pair.

    >>> pairs(["loss", "eval_loss", "train_loss", "train_runtime"])
    {'eval_loss': 'loss'}
    >>> pairs(["train_loss_step", "train_loss_epoch", "val_loss", "learning_rate"])
    {'val_loss': 'train_loss_epoch'}
    """
    described = describe_all(names)
    candidates: dict[tuple[Kind, tuple[str, ...]], list[str]] = {}
    for name, series in described.items():
        if series.role in (Role.TRAINING, Role.NONE):
            candidates.setdefault((series.kind, series.stem), []).append(name)
    partners = {}
    for name, series in described.items():
        same = candidates.get((series.kind, series.stem)) if series.role.is_held_out else None
        if same and series.kind in (Kind.LOSS, Kind.METRIC):
            partners[name] = min(
                same,
                key=lambda other: (
                    described[other].role is not Role.TRAINING,
                    described[other].base != series.base,
                    "step" in words_of(other),
                ),
            )
    return partners


# ------------------------------------------------------------------------------------------------------------- words


@lru_cache(maxsize=65536)
def _split(word: str) -> tuple[str, ...]:
    """Return the words that were written together in lower case."""
    letters = word.rstrip("0123456789")
    if letters.endswith("loss") and letters not in _LOSS | _NO_LOSS:
        return letters[:-4], word[len(letters) - 4 :]
    return _TOGETHER.get(word, (word,))


def _plain_words(name: str) -> tuple[str, ...]:
    """Return the words of a name without the numbers at their ends."""
    words = chain.from_iterable(map(_split, words_of(name)))
    return tuple(word if word in _NUMBERED else word.rstrip("0123456789") or word for word in words)


def _last_part(name: str) -> str:
    return name.rpartition("/")[2]


def _role_words(words: Sequence[str]) -> frozenset[str]:
    """Return the words of a name that name a role."""
    role_words = ROLE_WORDS.keys() & set(words)
    if not {"ppo", "clipfrac", "ratio", "eos"}.isdisjoint(words):
        role_words -= {"val"}  # the value function
    if not {"std", "standard"}.isdisjoint(words):
        role_words -= {"dev"}  # a deviation
    return frozenset(role_words)


def _stem(name: str, words: Sequence[str]) -> tuple[str, ...]:
    role_words = _role_words(words)
    stem: list[str] = []
    previous = ""
    for word in chain.from_iterable(map(_split, words_of(name))):
        if word in _RELATIVE:
            break
        # A number after a role numbers its data sets: validation_0.
        numbers_data = word.isdigit() and (previous in role_words or previous == "idx")
        if not (word in role_words or word in _FILLING or word in stem or numbers_data):
            stem.append(word)
        previous = word
    return tuple(stem)


def _role(name: str, words: Sequence[str]) -> tuple[Role, str]:
    """Return the role that a name says, and the name without the words of the role.

    The words of the last part of a path decide if they name a role.
    """
    if _last_part(name) in _SUMMARIES:
        return Role.SUMMARY, name
    role_words = _role_words(words)
    roles: list[tuple[int, int, Role]] = []
    for match in _WORD.finditer(name):
        word = _split(match[0].lower())[0]
        if word in role_words:
            role = ROLE_WORDS[word]
            end = match.start() + len(word)
            number = re.match(r"[_-]?\d+(?=[^\d.A-Za-z]|$)", name[end:]) if role is not Role.TRAINING else None
            roles.append((match.start(), end + (len(number[0]) if number else 0), role))
    if not roles:
        return Role.NONE, name
    last = name.rfind("/")
    # Trainers of Transformers evaluate several data sets as eval_train_loss and eval_test_loss.
    role = next((role for start, _, role in reversed(roles) if start > last), roles[0][2])
    return role, _without(name, [(start, end) for start, end, _ in roles])


def _without(name: str, spans: Sequence[tuple[int, int]]) -> str:
    """Return a name without some spans, and without separators that they leave."""
    kept = ""
    position = 0
    for start, end in spans:
        kept += name[position:start]
        position = end
        if not kept or not kept[-1].isalnum():
            while position < len(name) and not name[position].isalnum():
                position += 1
        if name[start].islower() and name[position : position + 1].isupper() and not kept[-1:].isalnum():
            kept += name[position].lower()  # valLoss
            position += 1
    kept += name[position:]
    return kept.strip("/_-. ") or name


# ------------------------------------------------------------------------------------------------------------- kinds


def _kind(name: str, words: tuple[str, ...]) -> tuple[Kind, str]:
    """Return the kind of a series and which direction is better.

    The last part of a path decides. The others are the name of a group, which decides if the last part is undecided, or
    if it is a part of a loss.
    """
    kind, better = _kind_of_path(name, words)
    return (Kind.UNKNOWN, "") if kind is Kind.SETTING and _PARAMETER.search(name) else (kind, better)


def _kind_of_path(name: str, words: tuple[str, ...]) -> tuple[Kind, str]:
    group, _, last = name.rpartition("/")
    context = frozenset(words)
    result = _kind_of_words(_plain_words(last), context)
    group_words = _plain_words(_last_part(group))
    if group_words and (of_group := _kind_of_words(group_words, context)) is not None and of_group[0] is Kind.SETTING:
        return of_group
    if (
        words_of(group)[-1:] == ("loss",)
        and result is not None
        and result[0] in (Kind.POLICY, Kind.KL, Kind.ENTROPY, Kind.REWARD)
    ):
        return Kind.LOSS, ""
    return result or _kind_of_words(words, context) or (Kind.UNKNOWN, "")


def _kind_of_words(words: tuple[str, ...], context: frozenset[str]) -> tuple[Kind, str] | None:
    """Return kind and better direction of some words; None if they are undecided.

    They are a name or its last part; ``context`` are the words of the whole name.
    """
    present = frozenset(words)
    if "lr" in present or {"learning", "rate"} <= present:
        return Kind.LEARNING_RATE, ""
    if words[-1:] in (("thresh",), ("threshold",)):
        return Kind.SETTING, ""
    if words == ("norm",) or ("norm" in present and present & {"grad", "grads", "gradient", "gradients", "total"}):
        return Kind.GRADIENT_NORM, ""
    if "per" in present and present & _PER_TIME:
        return Kind.TIME, ""
    if words[:2] == ("bits", "per"):
        return Kind.LOSS, "lower"
    measured = words[: next((index for index, word in enumerate(words) if index and word in _RELATIVE), None)]
    end = max((index for index, word in enumerate(measured, 1) if _ends_loss(measured[:index])), default=0)
    if end:
        return _kind_of_loss(measured[:end], measured[end:], context)
    if present & _SCALE and context & {"amp", "grad", "gradient", "scaler"}:
        return Kind.LOSS_SCALE, ""
    return _kind_of_measure(words, present, context)


def _ends_loss(words: tuple[str, ...]) -> bool:
    """Whether the last word is that of a loss.

    Entropy alone is a property of a policy; cross entropy is a loss.
    """
    return words[-1] in _LOSS or words[-2:] == ("cross", "entropy")


def _kind_of_loss(before: tuple[str, ...], after: tuple[str, ...], context: frozenset[str]) -> tuple[Kind, str]:
    """Return the kind of a name with a word of a loss, which ``before`` ends with."""
    for word in reversed(after):
        for words, kind in _OF_LOSS:
            if word in words:
                return kind, ""
    if before[-2:-1] and before[-2] in _NUMBER_BEFORE:
        return Kind.COUNT, ""
    if before[-1] in ("err", "error") and not {"std", "standard"}.isdisjoint(before):
        return Kind.SPREAD, ""
    if before[-1] == "cost" and context & (_TIME | _COST_IN_TIME | _RESOURCE):
        return (Kind.RESOURCE if context & _RESOURCE else Kind.TIME), ""
    need_not_fall = context & (_NEED_NOT_FALL - ({"entropy"} if "cross" in context else set()) | _ADVERSARIAL)
    return Kind.LOSS, "" if need_not_fall else "lower"


def _kind_of_measure(
    words: tuple[str, ...], present: frozenset[str], context: frozenset[str]
) -> tuple[Kind, str] | None:
    """Return the kind of a name without a word of a loss."""
    if context & _REWARD and (direction := next((_PREFERENCE[word] for word in words if word in _PREFERENCE), None)):
        return (Kind.SPREAD, "") if present & (_SPREAD | _EXTREME) else (Kind.METRIC, direction)
    if "norm" in context:
        return None
    if present & _SPREAD:
        return (Kind.METRIC, "higher") if "explained" in present else (Kind.SPREAD, "")
    if words[-1:] and words[-1] in _COEFFICIENT:
        return Kind.SETTING, ""
    if present & _TIME:
        return Kind.TIME, ""
    if present & _REWARD:
        if {"non", "score"} <= present:
            return Kind.KL, ""
        if present & _SCALE:
            return Kind.SETTING, ""
        return (Kind.SPREAD, "") if present & _EXTREME else (Kind.REWARD, "higher")
    if {"io", "u"} <= present:
        return Kind.METRIC, "higher"
    if "clip" in present and present & {"fraction", "frac", "ratio", "range"}:
        return Kind.POLICY, ""
    for of_kind, kind, better in (
        (_KL, Kind.KL, ""),
        (_set("entropy"), Kind.ENTROPY, ""),
        (_POLICY, Kind.POLICY, ""),
        (_METRIC, Kind.METRIC, "higher"),
        (_RESOURCE, Kind.RESOURCE, ""),
        (_COUNT, Kind.COUNT, ""),
        (_set("s"), Kind.TIME, ""),
    ):
        if present & of_kind:
            return kind, better
    return None
