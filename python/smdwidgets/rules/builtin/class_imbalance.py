"""ClassImbalance."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from smdwidgets.exceptions import SMDebugError
from smdwidgets.modes import ModeKeys
from smdwidgets.rules.builtin.base import BuiltinRule, NothingToJudge
from smdwidgets.rules.classes import LABELS, PREDICTIONS, class_numbers
from smdwidgets.rules.findings import number
from smdwidgets.rules.parameters import Flag, Integer, Patterns, Real
from smdwidgets.rules.selector import Selector

#: For each mode and class: the number of labels, and how many of them were mispredicted.
_Counts = dict[ModeKeys, dict[int, tuple[int, int]]]


class ClassImbalance(BuiltinRule):
    """Detect classes that are much rarer than others or mostly mispredicted.

    Counts labels and predictions over all steps so far, separately for each mode. Once a mode has at least `samples`
    labels, fires when the largest class has more than `threshold_imbalance` times as many labels as the smallest class.
    Also fires when more than the share `threshold_misprediction` of any class was mispredicted. Counting continues
    after a firing. Only classes that occur among the labels are counted.

    Predictions are class numbers. Scores are converted to the class with the largest score if `argmax` is True, or if
    predictions have one axis more than labels. Single numbers between 0 and 1 are probabilities of class 1. If several
    tensors match, they are paired in the order of their names. All workers are counted together.

    What to do: resample, weight the loss by class, check the sampler.
    """

    threshold_imbalance = Real(10.0, "Maximum ratio of class sizes.", minimum=1.0)
    threshold_misprediction = Real(0.7, "Maximum share of mispredicted labels of a class.", minimum=0.0, maximum=1.0)
    samples = Integer(500, "Number of labels needed before the rule judges.", minimum=1)
    argmax = Flag(False, "Predictions are scores; the largest score is the class.")
    labels_regex = Patterns(LABELS, "Patterns of label names.", documented=".*labels")
    predictions_regex = Patterns(PREDICTIONS, "Patterns of prediction names.", documented=".*predictions")

    def judge(self, step: int) -> None:
        if not self._counted_at(step):
            raise NothingToJudge("no labels with predictions at this step")
        key = ("imbalance", self.labels_regex, self.predictions_regex, self.argmax)
        start: _Counts = {}
        counts = self.measurements.fold(key, step, start, self._add)[self.measurements.mode(step)]
        seen = sum(total for total, _ in counts.values())
        if seen < self.samples:
            raise NothingToJudge(f"{seen} of {self.samples} labels seen so far")
        name = self.measurements.names(Selector((), self.labels_regex), step)[0]
        low = min(counts, key=lambda each: (counts[each][0], each))
        high = max(counts, key=lambda each: (counts[each][0], -each))
        ratio = counts[high][0] / counts[low][0]
        if ratio > self.threshold_imbalance:
            message = (
                f"class {high} has {counts[high][0]} labels, class {low} {counts[low][0]}: ratio {number(ratio)}, "
                f"limit {number(self.threshold_imbalance)}"
            )
            self.blame(name, step, ratio, self.threshold_imbalance, message)
        for each, (total, wrong) in sorted(counts.items()):
            if wrong / total > self.threshold_misprediction:
                message = (
                    f"{number(100 * wrong / total)} % of class {each} are mispredicted, "
                    f"limit {number(100 * self.threshold_misprediction)} %"
                )
                self.blame(name, step, wrong / total, self.threshold_misprediction, message)

    def _add(self, counts: _Counts, step: int) -> _Counts:
        found = self._counted_at(step)
        if not found:
            return counts
        mode = self.measurements.mode(step)
        before = counts.get(mode, {})
        merged = {
            each: (before.get(each, (0, 0))[0] + total, before.get(each, (0, 0))[1] + wrong)
            for each, (total, wrong) in found.items()
        }
        return {**counts, mode: {**before, **merged}}

    def _counted_at(self, step: int) -> dict[int, tuple[int, int]]:
        """Return labels and mispredictions by class at this step."""
        key = ("classes", step, self.labels_regex, self.predictions_regex, self.argmax)
        return self.measurements.cached(key, lambda: self._count(step))

    def _count(self, step: int) -> dict[int, tuple[int, int]]:
        measurements = self.measurements
        names = zip(
            measurements.names(Selector((), self.labels_regex), step),
            measurements.names(Selector((), self.predictions_regex), step),
            strict=False,
        )
        counts: dict[int, tuple[int, int]] = {}
        for labels, predictions in names:
            for worker in measurements.workers(labels, step):
                try:
                    both = class_numbers(
                        measurements.value(labels, step, worker),
                        measurements.value(predictions, step, worker),
                        self.argmax,
                    )
                except SMDebugError:
                    continue
                if both is not None:
                    _tally(counts, *both)
        return counts


def _tally(counts: dict[int, tuple[int, int]], labels: NDArray[np.int64], predictions: NDArray[np.int64]) -> None:
    classes, which = np.unique(labels, return_inverse=True)
    totals = np.bincount(which, minlength=len(classes))
    wrong = np.bincount(which, weights=labels != predictions, minlength=len(classes)).astype(np.int64)
    for each, total, missed in zip(classes.tolist(), totals.tolist(), wrong.tolist(), strict=True):
        before = counts.get(each, (0, 0))
        counts[each] = before[0] + total, before[1] + missed
