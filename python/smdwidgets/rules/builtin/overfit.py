"""Overfit."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from smdwidgets.rules.builtin.base import regex_parameter
from smdwidgets.rules.builtin.sequence import Rows, SequenceRule
from smdwidgets.rules.findings import number
from smdwidgets.rules.losses import LOSSES_AND_METRICS
from smdwidgets.rules.parameters import Integer, Real
from smdwidgets.rules.phases import Pairs, Phases
from smdwidgets.rules.scalar_columns import ScalarColumns
from smdwidgets.rules.selector import Selector
from smdwidgets.rules.verdicts import Verdicts


class _Course(NamedTuple):
    """Ratios of one loss at the rows where it is judged."""

    pairs: Pairs
    ratio: NDArray[np.float64]
    #: The number of consecutive ratios above the limit.
    too_high: NDArray[np.intp]


class Overfit(SequenceRule):
    """Detect a validation loss well above the training loss.

    Fires when `(validation - training) / training` of any loss is above `ratio_threshold` at `patience` consecutive
    judged steps.

    Training and validation are distinguished in one of two ways:

    - By mode: each saved EVAL step is judged. The validation loss is the mean over the current phase of EVAL steps so
      far, the training loss is the mean over the preceding phase of TRAIN steps.
    - By name: `train-rmse` and `validation-rmse` (XGBoost), `loss` and `val_loss` (Keras), `loss/train` and
      `loss/test`. If a step has a validation loss without its training loss, the training loss is the mean over the
      steps since the previous validation.

    A training loss that is NaN, zero or negative has no ratio and is not judged. Steps before `start_step` (a global
    step) are not judged.

    Without `tensor_regex`, the tensors of the collection `losses` are judged, and those of `metrics` whose names are
    names of losses, such as `val_loss` or `train-rmse`. Learning rates, accuracies and other metrics are not.

    With the default parameters, the rule fires on most healthy runs, because a validation loss that is a few percent
    above the training loss is normal. `diagnose` reports overfitting when the validation loss rises.

    What to do: use more data or augmentation, regularisation, dropout, early stopping or a smaller model.
    """

    tensor_regex = regex_parameter()
    start_step = Integer(0, "First global step to judge.", minimum=0)
    patience = Integer(1, "Number of consecutive judged steps with a high ratio before the rule fires.", minimum=1)
    ratio_threshold = Real(0.1, "Maximum ratio.")

    @property
    def selector(self) -> Selector:
        return Selector((), self.tensor_regex) if self.tensor_regex else LOSSES_AND_METRICS

    def begin(self) -> None:
        self._phases = Phases()
        self._too_high: dict[str, int] = {}

    def judge_columns(self, columns: ScalarColumns, judged: Rows) -> Verdicts:
        counts = np.zeros(len(columns), np.int64)
        has_pair = np.zeros(len(columns), np.bool_)
        courses = {
            name: self._course(name, columns, pairs) for name, pairs in sorted(self._phases.extend(columns).items())
        }
        for course in courses.values():
            has_pair[course.pairs.rows] = True
            counts[course.pairs.rows[course.too_high >= self.patience]] += 1

        def blame(row: int) -> None:
            for name, course in courses.items():
                index = int(course.pairs.rows.searchsorted(row))
                if (
                    index == len(course.ratio)
                    or course.pairs.rows[index] != row
                    or course.too_high[index] < self.patience
                ):
                    continue
                ratio = float(course.ratio[index])
                message = (
                    f"validation {number(course.pairs.validation[index])} is {number(100 * ratio)} % above training "
                    f"{number(course.pairs.training[index])}, limit {number(100 * self.ratio_threshold)} % "
                    f"({course.too_high[index]} consecutive judged steps)"
                )
                self.blame(name, int(columns.steps[row]), ratio, self.ratio_threshold, message)

        no_pair = "no training loss and validation loss to compare at this step"
        return self.verdicts(columns, counts, has_pair, blame, lambda row: no_pair)

    def _course(self, name: str, columns: ScalarColumns, pairs: Pairs) -> _Course:
        """Return the ratios of a loss, and how often each was too high."""
        kept = (columns.steps[pairs.rows] >= self.start_step) & (pairs.training > 0)
        pairs = pairs.where(kept)
        with np.errstate(all="ignore"):
            ratio = (pairs.validation - pairs.training) / pairs.training
        numbers = np.arange(len(ratio))
        fine = np.maximum.accumulate(np.where(ratio > self.ratio_threshold, -1, numbers))
        too_high = numbers - fine + np.where(fine < 0, self._too_high.get(name, 0), 0)
        if len(too_high):
            self._too_high[name] = int(too_high[-1])
        return _Course(pairs, ratio, too_high)
