"""Read scalar losses, choose their mode, and pair training with validation."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeVar

from smdwidgets.modes import ModeKeys
from smdwidgets.rules.measurements import Measurements
from smdwidgets.rules.selector import Selector
from smdwidgets.rules.tables import Need

__all__ = ["LOSSES", "LOSSES_AND_METRICS", "ModeOfLosses", "loss_need", "losses_at", "train_and_validation"]

#: The collection to which the hooks of all frameworks save losses.
LOSSES = Selector(("losses",))
#: The hooks of XGBoost and Keras save losses among the metrics, where learning rates and accuracies are, too.
LOSSES_AND_METRICS = Selector(("losses",), losses_of=("metrics",))

V = TypeVar("V")

_TRAINING = re.compile(r"^(.*/)?train(?:ing)?[-_/](.+)$", re.IGNORECASE)
_VALIDATION = re.compile(r"^(.*/)?(?:validation|valid|val|evaluation|eval|test)[-_/](.+)$", re.IGNORECASE)
#: As in TensorBoard tags, with the metric first: `loss/train`.
_BEHIND = re.compile(r"^(.+)[-_/.](?:(train(?:ing)?)|validation|valid|val|evaluation|eval|test)$", re.IGNORECASE)


def loss_need(selector: Selector = LOSSES) -> Need:
    """Return the columns that losses are read from."""
    return Need(selector, ("mean", "size"))


def losses_at(measurements: Measurements, selector: Selector, step: int) -> dict[str, float]:
    """Return the scalars at a step by name, averaged over workers.

    Larger tensors, such as logits and labels, are ignored.
    """
    need = loss_need(selector)
    return measurements.table(need.selector, step, need.columns).scalars()


def train_and_validation(losses: Mapping[str, V]) -> tuple[dict[str, V], dict[str, V]]:
    """Split the losses of one step into training and validation by their names.

    Recognises pairs such as `train-rmse` and `validation-rmse`, `loss` and `val_loss`, `loss/train` and `loss/test`.
    Keys of the results are the names without the prefix or suffix, so that the two can be paired.

    >>> train_and_validation({"train-rmse": 1.0, "validation-rmse": 2.0})
    ({'rmse': 1.0}, {'rmse': 2.0})
    >>> train_and_validation({"loss": 1.0, "val_loss": 2.0})
    ({'loss': 1.0}, {'loss': 2.0})
    >>> train_and_validation({"Loss/train": 1.0, "Loss/test": 2.0})
    ({'Loss': 1.0}, {'Loss': 2.0})
    """
    training: dict[str, V] = {}
    validation: dict[str, V] = {}
    plain: dict[str, V] = {}
    for name, value in losses.items():
        if found := _VALIDATION.match(name):
            validation[(found[1] or "") + found[2]] = value
        elif found := _TRAINING.match(name):
            training[(found[1] or "") + found[2]] = value
        elif found := _BEHIND.match(name):
            (training if found[2] else validation)[found[1]] = value
        else:
            plain[name] = value
    for name in plain.keys() & validation.keys():
        training.setdefault(name, plain[name])
    return training, validation


class ModeOfLosses:
    """Default mode for judging losses: EVAL, else TRAIN, else GLOBAL, as seen so far."""

    def __init__(self) -> None:
        self._until: int | None = None
        self._first: dict[ModeKeys, int] = {}

    def continue_from(self, until: int, first: Mapping[ModeKeys, int]) -> None:
        """Continue after a step, given the first step with a loss of each mode."""
        self._until, self._first = until, dict(first)

    def at(self, measurements: Measurements, selector: Selector, step: int) -> ModeKeys:
        """Return the preferred mode in which a loss was saved up to this step."""
        if self._until is None or step > self._until:
            for each in measurements.steps_between(self._until, step):
                if measurements.names(selector, each):
                    self._first.setdefault(measurements.mode(each), each)
            self._until = step
        for mode in (ModeKeys.EVAL, ModeKeys.TRAIN):
            if self._first.get(mode, step + 1) <= step:
                return mode
        return ModeKeys.GLOBAL
