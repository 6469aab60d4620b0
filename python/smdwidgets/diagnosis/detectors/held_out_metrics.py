"""Metrics of evaluations that contradict what the training learns."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from smdwidgets.diagnosis.detectors._evaluations import FEW, FEWEST, as_share, evaluations, is_accuracy
from smdwidgets.diagnosis.detectors._falls import ends
from smdwidgets.diagnosis.detectors._show import beside, course, from_to
from smdwidgets.diagnosis.detectors.constant_accuracy import LEAST_EVALUATIONS, since_one_class
from smdwidgets.diagnosis.inputs import Kind, RunData, Series
from smdwidgets.diagnosis.trends import local_noise
from smdwidgets.finding import Finding
from smdwidgets.naming.scalars import Role

#: Words of what may fall in a training that works: rewards of the chosen answers, and distances.
MAY_FALL = frozenset({"chosen", "rejected", "margin", "margins", "dist", "distance"})
#: A share of overlap or of right answers that is nothing, at so many evaluations, beside a loss that falls to a part.
NOTHING, LEAST_OF_NOTHING, HALVES = 0.01, 8, 0.5
_OF_OVERLAP = frozenset({"dice", "iou", "miou", "jaccard", "f1", "acc", "accuracy"})
#: Distance of an error from its worst value, relative to it.
NEARLY_WORST = 0.01
#: The same of a rate of errors in the median of the last half, and the least one of any evaluation by the worst.
OF_ERRORS, FEWER_ERRORS = 0.03, 0.85
#: Share of the values at which one falls that does not fall by half.
STEADILY = 0.6
#: Words of metrics of generated texts; the loss of a token that is foreseen, and a metric of badly generated ones.
OF_TEXTS, SURE_OF_TOKENS, BADLY = frozenset({"bleu", "rouge", "chrf"}), 0.1, 0.75
#: Length of generated texts relative to that of the references.
TOO_LONG = 3.0
#: Words of rates of wrong words, letters or sounds.
_OF_ERRORS = frozenset({"wer", "cer", "per"})
#: Words of shares of episodes that reach what they should.
_SUCCESS = frozenset(
    {"custom", "success", "succeeded", "solved", "delivered", "completed", "goal", "goals", "reached", "won"}
)
#: Metrics that another threshold exchanges for each other.
_ONE_SIDED = frozenset({"precision", "recall", "sensitivity", "specificity"})
#: Fall of a loss relative to its first value that a metric of the same model must show.
LEARNED = 0.7
#: An accuracy relative to its first one, and one that is below that of chance for most numbers of classes; how much it
#: may rise from one evaluation to the next.
WRONG_ANSWERS, LEAST_BY_CHANCE, FALLS_BACK = 0.5, 0.15, 0.02
#: Fall of a metric relative to its best, and relative to what it had gained.
FALLS, OF_GAIN = 0.25, 0.8


def held_out_metrics(data: RunData) -> Iterator[Finding]:
    """Yield metrics of evaluations that contradict what the training learns."""
    yield from _stuck(data)
    yield from _contradicts(data)
    yield from _falls(data)
    yield from _best_is_worst(data)
    yield from _generated(data)
    yield from _far_too_long(data)


def _stuck(data: RunData) -> Iterator[Finding]:
    """Judge metrics that have their worst value at all evaluations while losses fall."""
    losses = [one for one in data.of(Kind.LOSS) if len(one) >= FEW and not _is_stuck(one)]
    learned = [one for one in losses if _has_fallen(one)]
    stuck = [one for one in data.of(Kind.METRIC, Kind.LOSS) if _is_stuck(one) and one.role is not Role.TRAINING]
    if not stuck and any(one.values[-1] < HALVES * one.values[0] for one in learned):
        stuck = [one for one in data.of(Kind.METRIC) if one.role is not Role.TRAINING and _is_nothing(one)]
    if not learned or not stuck:
        return
    loss = min(learned, key=lambda one: (not one.role.is_held_out, one.name))
    first, last = int(stuck[0].steps[0]), int(stuck[0].steps[-1])
    facts = {
        "series": stuck[0].quoted,
        "value": float(stuck[0].values[0]),
        "when": f"at each of {len(stuck[0]):,} evaluations",
        "loss": from_to(loss),
        "why": "Probably the metric is computed from predictions or targets of another form than it needs.",
    }
    shown = tuple(course(one, first, last) for one in (stuck[0], loss))
    names = *(one.name for one in stuck), loss.name
    yield Finding.of("metric_stuck", "problem", "medium", first, last, names, facts, shown)


def _contradicts(data: RunData) -> Iterator[Finding]:
    """Judge accuracies that fall to nearly nothing, as the loss of the same data."""
    for one in evaluations(data):
        loss, share = one.loss, one.share
        if min(len(share), len(loss)) < FEW or not np.array_equal(loss.steps, one.accuracy.steps):
            continue
        falls = (np.diff(share) <= FALLS_BACK).all() and (np.diff(loss.values) <= 0).all() and _has_fallen(loss)
        if not falls or share[0] <= 0 or share[-1] > WRONG_ANSWERS * share[0] or share[-1] > LEAST_BY_CHANCE:
            continue
        facts = {
            "series": one.accuracy.quoted,
            "value": float(one.accuracy.values[-1]),
            "when": f"after {len(share):,} evaluations, less than the {one.accuracy.values[0]:.3g} at first",
            "loss": from_to(loss),
            "why": "Probably the metric compares predictions with other targets than the loss, such as classes that are numbered in another way.",
        }
        yield beside("metric_stuck", "problem", (one.accuracy, loss), facts)
        return


def _has_fallen(loss: Series) -> bool:
    first, last = ends(loss.values)
    return first > 0 and last <= LEARNED * first


def _is_stuck(series: Series) -> bool:
    """Whether a metric has its worst value at all of its steps.

    That is an accuracy of 0, or an error of 1.
    """
    values = series.values
    worst = (0.0,) if series.kind is Kind.METRIC else (1.0, 100.0)
    is_metric = series.kind is Kind.METRIC or "loss" not in series.stem
    if not is_metric or len(values) < FEW:
        return False
    if _is_rate_of_errors(series):
        worst_one = 100.0 if float(np.median(values)) > 2 else 1.0
        late = values[len(values) // 2 :]
        if float(np.median(late)) >= (1 - OF_ERRORS) * worst_one and values.min() >= FEWER_ERRORS * worst_one:
            return True
    # The rate of word errors may be a little above 1.
    near = 0.0 if series.kind is Kind.METRIC else NEARLY_WORST
    return any(float(np.abs(values - one).max()) <= near * one for one in worst)


def _is_nothing(metric: Series) -> bool:
    """Whether a share of overlap or of right answers is next to 0 at all steps."""
    values = metric.values
    is_share = not _OF_OVERLAP.isdisjoint(metric.stem) and len(values) >= LEAST_OF_NOTHING
    return is_share and 0 <= values.min() <= values.max() <= NOTHING


def _is_rate_of_errors(series: Series) -> bool:
    """Whether a series is a rate of wrong words, letters or sounds."""
    words = series.stem
    return not _OF_ERRORS.isdisjoint(words) or words[-2:] == ("error", "rate")


def _generated(data: RunData) -> Iterator[Finding]:
    """Judge texts that are generated badly although each of their tokens is foreseen."""
    for metric in data.held_out(Kind.METRIC):
        if OF_TEXTS.isdisjoint(metric.stem) or len(metric) < FEWEST:
            continue
        shares = as_share(metric)
        for loss in data.held_out(Kind.LOSS):
            _, at, of = np.intersect1d(loss.steps, metric.steps, return_indices=True)
            is_sure = len(at) >= FEWEST and loss.role is metric.role and (loss.values[at][-2:] < SURE_OF_TOKENS).all()
            if not is_sure or (shares[of][-2:] > BADLY).any() or not loss.values[at][0] > 4 * SURE_OF_TOKENS:
                continue
            facts = {"series": metric.quoted, "value": float(metric.values[-1]), "loss": from_to(loss)}
            facts["when"] = f"after {len(metric):,} evaluations"
            facts["why"] = (
                "Each token is foreseen if the right ones come before it, so generating differs from training: look at how texts end, "
                "where generating begins, and at padding."
            )
            yield beside("metric_stuck", "problem", (metric, loss), facts)
            return


def _far_too_long(data: RunData) -> Iterator[Finding]:
    """Judge generated texts that are far longer than those they are compared with."""
    lengths = {one.stem: one for one in data.series if one.role.is_held_out and len(one) >= FEWEST}
    texts, others = lengths.get(("sys", "len")), lengths.get(("ref", "len"))
    scores = [one for one in data.held_out(Kind.METRIC) if len(one) >= FEWEST]
    if texts is None or others is None or not scores or not np.array_equal(texts.steps, others.steps):
        return
    if others.values.min() <= 0 or (texts.values < TOO_LONG * others.values).any():
        return
    ratio = float(np.median(texts.values / others.values))
    facts = {
        "series": scores[0].quoted,
        "value": float(scores[0].values[-1]),
        "when": f"after {len(scores[0]):,} evaluations",
        "loss": f"{texts.quoted} is {ratio:.3g} times {others.quoted}",
        "why": "Generated texts do not end: look at the token that ends a text in the labels, and at padding that is decoded, too.",
    }
    yield beside("metric_stuck", "problem", (scores[0], texts), facts)


def _best_is_worst(data: RunData) -> Iterator[Finding]:
    """Judge a checkpoint that was kept as the best one."""
    best, at = data.settings.get("best_metric"), data.settings.get("best_global_step")
    if isinstance(best, bool) or not isinstance(best, int | float):
        return
    for series in data.held_out(Kind.LOSS) + data.held_out(Kind.METRIC):
        values = series.values
        if len(values) < FEWEST:
            continue
        worst = values.max() if series.kind is Kind.LOSS else values.min()
        others = values[values != worst]
        is_kept = math.isclose(best, worst, rel_tol=1e-6) and (at is None or series.steps[values == worst][0] == at)
        if not is_kept or len(others) < FEWEST - 1:
            continue
        if abs(worst - np.median(others)) < max(3 * local_noise(values), 0.1 * abs(worst)):
            continue
        word = "smallest" if series.kind is Kind.METRIC else "largest"
        kept = int(series.steps[values == worst][0])
        facts = {
            "what": f"The checkpoint of step {kept:,} was kept as the best one, where {series.quoted} was {word}: {worst:.3g}, and "
            f"{values[-1]:.3g} at the end",
            "metric": series.name,
        }
        yield beside("metric_direction", "problem", (series,), facts, kept)
        return


def _falls(data: RunData) -> Iterator[Finding]:
    """Judge metrics that fall for good while what is trained on improves."""
    for metric in [*data.of(Kind.METRIC), *_of_success(data)]:
        values = metric.values
        if len(values) < FEW + 3 or metric.role is Role.TRAINING or _is_one_class(metric):
            continue
        if MAY_FALL.intersection(metric.words) or _is_nothing(metric):
            continue
        best_at = int(values.argmax())
        first, best = float(values[0]), float(values[best_at])
        tail = values[-max(3, len(values) // 5) :]
        end = float(np.median(tail))
        drop = best - end
        is_clear = drop > max(FALLS * abs(best), OF_GAIN * (best - first), 6 * local_noise(values))
        if not is_clear or tail.max() > best - drop / 2 or best_at > 0.6 * len(values):
            continue
        if drop <= 2 * FALLS * abs(best) and (np.diff(values[best_at:]) < 0).mean() < STEADILY:
            continue
        other = _improves_meanwhile(data, metric, int(metric.steps[best_at]))
        if other is None or _is_exchanged(data, metric, best_at):
            continue
        onset = int(metric.steps[min(best_at + 1, len(values) - 1)])
        facts = {
            "series": metric.quoted,
            "best": best,
            "end": end,
            "keep": int(metric.steps[best_at]),
            "beside": from_to(other),
        }
        yield beside("metric_falls", "problem", (metric, other), facts, onset)
        return


def _of_success(data: RunData) -> list[Series]:
    """Return shares of episodes that a script counts beside the reward."""
    return [
        one
        for one in (data.of(Kind.UNKNOWN) if data.of(Kind.REWARD) else ())
        if not _SUCCESS.isdisjoint(one.words) and len(one) and 0 <= one.values.min() <= one.values.max() <= 1
    ]


def _is_one_class(metric: Series) -> bool:
    """Whether an accuracy ends as that of one class or the other.

    Another finding says so.
    """
    return is_accuracy(metric) and since_one_class(metric.values) <= len(metric) - LEAST_EVALUATIONS


def _is_exchanged(data: RunData, metric: Series, best_at: int) -> bool:
    """Whether another metric of the same data rises while one falls.

    A threshold exchanges precision for recall.
    """
    if _ONE_SIDED.isdisjoint(metric.stem):
        return False
    since = int(metric.steps[best_at])
    others = (
        one.values[one.steps >= since] for one in data.of(Kind.METRIC) if one.role is metric.role and one is not metric
    )
    return any(len(after) >= FEW and after[-1] > after[0] for after in others)


def _improves_meanwhile(data: RunData, metric: Series, since: int) -> Series | None:
    """Return what the training improves after a metric was best.

    That is its loss, or another reward or metric.
    """
    for other in (*data.training_losses(), *data.of(Kind.REWARD), *data.of(Kind.METRIC)):
        if other is metric or other.role.is_held_out or (other.kind is not Kind.LOSS and metric.role.is_held_out):
            continue
        after = other.values[other.steps >= since]
        if len(after) < FEW:
            continue
        first, last = ends(after)
        gain = first - last if other.kind is Kind.LOSS else last - first
        # A loss that is as low as it can be has nothing to gain.
        if gain > max(0.0, 2 * local_noise(after)) or (other.kind is Kind.LOSS and last <= first < other.values[0]):
            return other
    return None
