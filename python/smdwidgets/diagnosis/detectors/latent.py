"""Latent variables and features that carry nothing."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from smdwidgets.diagnosis.detectors._show import evidence, from_to
from smdwidgets.diagnosis.inputs import Kind, RunData, Series
from smdwidgets.finding import Finding

__all__ = ["latent"]

#: Fewest values; a divergence that is nearly 0, and relative to the reconstruction, which may be a mean.
LEAST_POINTS, NOTHING, OF_RECONSTRUCTION = 8, 0.1, 2e-3
#: The same of one that is so small beside a reconstruction that falls at first, relative to these.
NEXT_TO = 0.1
#: Weight of a divergence that is large, the divergence beside which it leaves nothing, in nats, and how exactly a loss
#: is the weighted sum.
LARGE_WEIGHT, FEW_NATS, EXACT = 5.0, 1.0, 0.01
#: Fall of the reconstruction after its first values that is an improvement.
IMPROVES = 0.1
_DIVERGENCE = frozenset({"kl", "kld"})
_OF_POLICY = frozenset({"approx", "policy", "ppo", "ref", "reward", "objective", "actor", "mean"})
_RECONSTRUCTION = frozenset({"recon", "reconstruction", "rec", "reconst"})
_SETTING = frozenset({"weight", "beta", "coef", "coeff", "lambda", "annealing"})
#: Words of what a model makes of samples, of samples that it makes, and of how they vary; the share of its first value
#: that is nothing.
_FEATURES = frozenset(
    {
        *("feature", "features", "feat", "feats", "embedding", "embeddings", "embed", "emb", "representation", "repr"),
        *("projection", "proj", "z", "output"),
    }
)
_SAMPLES = frozenset({"sample", "samples", "fake", "generated"})
_SPREAD, _LEFT = frozenset({"std", "stddev", "variance", "var"}), 0.1
#: Words of a distance of samples that do not belong together.
_DISTANCE, _APART = frozenset({"dist", "distance", "distances"}), frozenset({"an", "neg", "negative", "negatives"})
#: The least negative cosine of two views, which a loss has if they are the same, and the level that is as good.
_LEAST_COSINE, _SAME_VIEWS = -1.001, -0.98
#: A cosine that only equal features have, and the share of their first spread that is nothing beside it.
_EQUAL, _LEFT_OF_EQUAL = -0.995, 0.2


def latent(data: RunData) -> Iterator[Finding]:
    """Yield divergences that are nearly 0 beside a reconstruction that stays.

    Also features that become the same.
    """
    yield from _features(data)
    words = {id(one): frozenset(one.words) for one in data.series if len(one) >= LEAST_POINTS}
    judged = [one for one in data.series if id(one) in words]
    errors = [one for one in judged if words[id(one)] & _RECONSTRUCTION and not words[id(one)] & _SETTING]
    for series in judged:
        of = words[id(series)]
        if not of & _DIVERGENCE or of & (_OF_POLICY | _SETTING):
            continue
        error = next((one for one in errors if one.role is series.role), None)
        late = series.values[len(series) // 2 :]
        value = float(np.median(np.abs(late)))
        if error is None:
            continue
        is_nothing = value < NOTHING and _stays(error) and value < OF_RECONSTRUCTION * _level(error)
        # A decoder that gets nothing learns the mean of the samples, and then no more.
        far_less = float(late.max()) < NEXT_TO * min(NOTHING, OF_RECONSTRUCTION * _level(error))
        is_nothing |= far_less and float(late.min()) >= 0 and _levels_off(error)
        weight = _weight(data, series, error) if value < FEW_NATS else 0.0
        if is_nothing or weight >= LARGE_WEIGHT:
            yield _finding(series, error, value, weight)
            return


def _features(data: RunData) -> Iterator[Finding]:
    generates = {"generator", "discriminator"} <= {word for one in data.of(Kind.UNDIRECTED) for word in one.words}
    views, left = _are_same_views(data), _LEFT_OF_EQUAL if _are_same_views(data, _EQUAL) else _LEFT
    for series in data.series:
        words = frozenset(series.words)
        # A spread without another word is that of what the loss compares, if this is a cosine.
        # So is that of samples, if a generator makes them.
        is_of_features = words & _FEATURES or (views and _SPREAD.issuperset(series.stem))
        is_of_features = is_of_features or (generates and words & _SAMPLES)
        is_spread = bool(is_of_features and words & _SPREAD) or bool(words & _DISTANCE and words & _APART)
        if len(series) < LEAST_POINTS or not is_spread or words & _SETTING:
            continue
        begin = float(series.values[0])
        above = np.flatnonzero(series.values > left * begin)
        since = int(above[-1]) + 1 if len(above) else 0
        if begin <= 0 or not since or since > len(series) // 2:
            continue
        first, last = int(series.steps[since]), int(series.steps[-1])
        value = float(np.median(series.values[since:]))
        facts = {"series": series.quoted, "value": value, "numbers": from_to(series)}
        shown = evidence(series, from_to(series).replace("`", ""), first, last)
        yield Finding.of("features_collapse", "problem", "medium", first, last, (series.name,), facts, (shown,))
        return


def _are_same_views(data: RunData, most: float = _SAME_VIEWS) -> bool:
    """Whether a training loss is a negative cosine that is as low as it can be."""
    if data.of(Kind.REWARD):
        return False
    return any(
        len(one) >= LEAST_POINTS
        and float(one.values.min()) >= _LEAST_COSINE
        and float(np.median(one.values[2 * len(one) // 3 :])) <= most
        for one in data.training_losses()
    )


def _weight(data: RunData, divergence: Series, error: Series) -> float:
    """Return the weight with which a loss adds a divergence to an error.

    0 if it does not, or changes the weight.
    """
    for loss in data.of(Kind.LOSS):
        if loss.role is not error.role or not (len(loss) == len(error) == len(divergence)) or loss is error:
            continue
        with np.errstate(all="ignore"):
            weights = (loss.values - error.values) / divergence.values
        weight = float(np.median(weights))
        if np.isfinite(weights).all() and np.abs(weights - weight).max() <= EXACT * abs(weight):
            return weight
    return 0.0


def _level(error: Series) -> float:
    return float(np.median(np.abs(error.values)))


def _stays(error: Series) -> bool:
    """Whether an error is where it was after its first values."""
    early = float(np.median(error.values[1:4]))
    return early - float(np.median(error.values[-3:])) < IMPROVES * abs(early)


def _levels_off(error: Series) -> bool:
    """Whether an error has been where it is at the end since the middle."""
    late = error.values[len(error) // 2 :]
    return float(np.median(late[:3])) - float(np.median(late[-3:])) < IMPROVES / 2 * abs(float(late[0]))


def _finding(series: Series, error: Series, value: float, weight: float) -> Finding:
    first, last = int(series.steps[0]), int(series.steps[-1])
    recon = from_to(error)
    shown = (
        evidence(series, f"{series.label} {series.values[0]:.3g} → {series.values[-1]:.3g}", first, last),
        evidence(error, recon.replace("`", ""), first, last),
    )
    if weight >= LARGE_WEIGHT:
        recon += f"; the loss adds the divergence with the weight {weight:.3g}"
    facts = {"series": series.quoted, "value": value, "recon": recon}
    names = series.name, error.name
    return Finding.of("posterior_collapse", "problem", "medium", first, last, names, facts, shown)
