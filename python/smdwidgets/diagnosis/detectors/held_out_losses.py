"""Losses of evaluations that are of another scale, or never settle."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from smdwidgets.diagnosis.detectors._evaluations import FEW, FEWEST, MANY, evaluations, logged_pairs, pair
from smdwidgets.diagnosis.detectors._falls import ends
from smdwidgets.diagnosis.detectors._rates import comes_back
from smdwidgets.diagnosis.detectors._show import beside, course, from_to
from smdwidgets.diagnosis.inputs import Kind, RunData, Series
from smdwidgets.diagnosis.trends import mann_kendall
from smdwidgets.finding import Finding

#: Ratio of two losses of one name, and its spread as a logarithm.
TWO_SCALES, STEADY = 8.0, 0.15
#: The same of a trainer that computes both losses in one way: often it is the number of batches of an update.
TWO_SCALES_OF_ONE = 4.0
#: Range of the logarithm of the loss in units of that spread, which is at least as large as rounding makes it.
MOVES, ROUNDED = 2.0, 0.01
#: Spread of the logarithm of a loss from one evaluation to the next, and the level of the last ones by the best.
SWINGS, ABOVE_BEST = 0.35, 1.5
#: The first of these where means of the training loss over epochs swing as much.
SWINGS_OF_BOTH = 0.22
#: Share of the first training loss below which what is left of it may swing.
LEFT = 0.02
#: Share of the least loss that wrong answers allow, above which a loss may be another one; the training loss beside it.
IMPOSSIBLE, FAR_BELOW = 0.3, 5.0


def held_out_losses(data: RunData) -> Iterator[Finding]:
    """Yield losses of evaluations that are of another scale, or never settle."""
    if len(data.tensors):
        return  # a hook finds losses of evaluations itself, which may be those of few samples, or of another form
    for loss, _ in logged_pairs(data):
        yield from _two_scales(data, loss)
    for loss in data.held_out(Kind.LOSS):
        yield from _swings(data, loss)
    yield from _impossible(data)


def _two_scales(data: RunData, loss: Series) -> Iterator[Finding]:
    """Judge losses of which one is a multiple of the other."""
    # Those of single batches vary more than their means over epochs, which may be there, too.
    for training in data.training_by_words.get((loss.kind, loss.stem), []):
        both = pair(loss, training, FEWEST)
        if both is None or both.training.min() <= 0 or both.held_out.min() <= 0:
            continue
        logs = np.log(both.training / both.held_out)
        ratio = math.exp(float(np.median(logs)))
        # Of two levels that hardly move, any ratio is steady.
        moves = loss.values.min() > 0 and np.ptp(np.log(loss.values)) > MOVES * max(float(np.std(logs)), ROUNDED)
        least = TWO_SCALES_OF_ONE if data.is_of_transformers and loss.stem == ("loss",) else TWO_SCALES
        if max(ratio, 1 / ratio) >= least and float(np.std(logs)) <= STEADY and moves:
            yield _of_scales(loss, training, ratio)
            return


def _impossible(data: RunData) -> Iterator[Finding]:
    """Judge losses of evaluations that are smaller than their accuracy allows.

    The right class of a wrong answer has less than half of the probability, so that its loss is at least ln 2.
    """
    for one in evaluations(data):
        training = data.partner(one.loss)
        _, at, of = np.intersect1d(one.loss.steps, one.accuracy.steps, return_indices=True)
        if training is None or len(at) < FEW or "loss" not in one.loss.stem:
            continue
        losses, least = one.loss.values[at], math.log(2) * (1 - one.share[of])
        trained = float(np.median(training.values))
        if (losses >= IMPOSSIBLE * least).any() or losses.min() <= 0 or trained < FAR_BELOW * float(np.median(losses)):
            continue
        facts = {
            "what": f"{one.loss.quoted} is smaller than its accuracy allows",
            "numbers": f"{losses[0]:.3g} where {1 - one.share[of[0]]:.0%} of the answers are wrong, each of which costs at least ln 2; "
            f"{training.quoted} {training.values[0]:.3g}",
        }
        yield beside("losses_on_two_scales", "warning", (one.loss, training), facts)
        return


def _of_scales(loss: Series, training: Series, ratio: float) -> Finding:
    first, last = int(loss.steps[0]), int(loss.steps[-1])
    low, high = (loss, training) if ratio > 1 else (training, loss)
    facts = {"what": f"{high.quoted} is {max(ratio, 1 / ratio):.3g} times {low.quoted} at all evaluations"}
    facts |= {"numbers": from_to(loss)}
    shown = (course(training, first, last), course(loss, first, last))
    names = high.name, low.name
    return Finding.of("losses_on_two_scales", "warning", "medium", first, last, names, facts, shown)


def _swings_in_training(training: Series, loss: Series) -> bool:
    """Whether means of a training loss over epochs swing as evaluations do.

    Losses of single batches always vary, and so does a loss of which next to nothing is left.
    """
    late = training.values[len(training) // 2 :]
    if len(training) != len(loss) or late.min() <= 0 or np.median(late) < LEFT * training.values[0]:
        return False
    return float(np.std(np.diff(np.log(late)))) / math.sqrt(2) >= SWINGS


def _swings(data: RunData, loss: Series) -> Iterator[Finding]:
    """Judge losses of held-out data that swing to the end, and do not settle."""
    if len(loss) < MANY or loss.values.min() <= 0 or comes_back(data):  # it follows the rate
        return
    logs = np.log(loss.values)
    late = logs[int(0.4 * len(logs)) :]
    # A loss that jumps once, as where a second stage of the training begins, does not swing.
    changes = np.diff(late)
    spread = float(np.std(np.delete(changes, np.abs(changes).argmax()))) / math.sqrt(2)
    level = math.exp(float(np.median(late)))
    training = data.longest_loss
    both_swing = training is not None and _swings_in_training(training, loss)
    if (
        spread < (SWINGS_OF_BOTH if both_swing else SWINGS)
        or abs(float(mann_kendall(late[None])[0])) > 2
        or level < ABOVE_BEST * float(loss.values.min())
    ):
        return
    if training is not None and len(training) >= MANY and not both_swing:
        middle, end = ends(training.values[len(training) // 2 :])
        if end < 0.8 * middle:  # it still learns
            return
    low, high = np.exp(np.quantile(late, [0.1, 0.9])).tolist()
    facts = {"series": loss.quoted, "low": low, "high": high, "count": len(loss)}
    yield beside("swings", "problem", (loss,), facts)
