"""PoorWeightInitialization."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from smdwidgets.exceptions import SMDebugError
from smdwidgets.modes import ModeKeys
from smdwidgets.rules.builtin.base import BuiltinRule, NothingToJudge
from smdwidgets.rules.findings import number
from smdwidgets.rules.losses import LOSSES, loss_need, losses_at
from smdwidgets.rules.parameters import Integer, Patterns, Real
from smdwidgets.rules.selector import Selector
from smdwidgets.rules.tables import Need

GRADIENTS = Selector(("gradients",))
#: Minimum number of elements: percentiles of fewer elements are not meaningful.
FEWEST_ELEMENTS = 20


@dataclass(frozen=True)
class _State:
    """Number of judged steps, and the progress of each loss."""

    count: int = 0
    losses: dict[str, tuple[float, int]] = field(default_factory=dict)  # best so far, steps since


class PoorWeightInitialization(BuiltinRule):
    """Detect a poor weight initialisation from the first steps.

    Judges the first `steps` saved training steps that hold activation inputs, gradients or losses. Steps of EVAL and
    PREDICT are ignored. Fires on any of three conditions:

    - The largest variance of the layers' activation inputs is more than `threshold` times the smallest. A smallest
      variance of zero always fires.
    - The distance between the 5th and 95th percentile of any gradient with at least 20 elements is below
      `distribution_range`.
    - A loss has not fallen below its minimum for `patience` saved steps.

    Later steps are skipped.

    With the default parameters, the rule fires on many healthy runs, because a noisy loss often has no new minimum
    in five saved steps. `diagnose` compares trends with the noise of the loss.

    What to do: use He initialisation for ReLU, Xavier initialisation for tanh and sigmoid, or normalisation layers.
    """

    collections = {"relu_input": {"include_regex": ".*relu_input", "save_interval": "500"}}

    activation_inputs_regex = Patterns(
        (r"(?i)^(?!gradient).*re_?lu[^/]*(_|/)input",),
        "Patterns of activation input names.",
        documented=".*relu_input",
    )
    threshold = Real(10.0, "Maximum ratio of variances between layers.", minimum=0.0)
    distribution_range = Real(0.001, "Minimum distance between the 5th and 95th percentile of gradients.", minimum=0.0)
    patience = Integer(5, "Number of saved steps without a lower loss.", minimum=1)
    steps = Integer(10, "Number of first saved steps to judge.", minimum=1)

    @property
    def activations(self) -> Selector:
        return Selector((), self.activation_inputs_regex)

    def needs(self) -> list[Need]:
        return [Need(self.activations, ("variance",)), loss_need()]

    def judge(self, step: int) -> None:
        if self.measurements.mode(step) in (ModeKeys.EVAL, ModeKeys.PREDICT):
            raise NothingToJudge(f"steps of mode {self.measurements.mode(step).name} do not train")
        if not self._has_data(step):
            raise NothingToJudge("no activation inputs, gradients or losses at this step")
        key = ("initialization", self.activations, self.steps)
        state = self.measurements.fold(key, step, _State(), self._add, self.needs())
        if state.count > self.steps:
            raise NothingToJudge(f"only the first {self.steps} saved steps are judged")
        self._variances(step)
        self._gradients(step)
        for name, (best, since) in sorted(state.losses.items()):
            if since >= self.patience and name in losses_at(self.measurements, LOSSES, step):
                self.blame(name, step, since, self.patience, f"loss not below {number(best)} for {since} saved steps")

    def _has_data(self, step: int) -> bool:
        return any(self.measurements.names(each, step) for each in (self.activations, GRADIENTS, LOSSES))

    def _add(self, state: _State, step: int) -> _State:
        # After the first steps, no more data is read.
        if state.count > self.steps or self.measurements.mode(step) in (ModeKeys.EVAL, ModeKeys.PREDICT):
            return state
        if not self._has_data(step):
            return state
        losses = dict(state.losses)
        for name, loss in losses_at(self.measurements, LOSSES, step).items():
            best, since = losses.get(name, (math.inf, 0))
            losses[name] = (loss, 0) if loss < best else (best, since + 1)
        return _State(state.count + 1, losses)

    def _variances(self, step: int) -> None:
        table = self.measurements.table(self.activations, step, ("variance",))
        variances: dict[str, list[float]] = {}
        for name, variance in zip(table.names, table["variance"], strict=True):
            if np.isfinite(variance):
                variances.setdefault(name, []).append(float(variance))
        layers = {name: float(np.mean(sorted(each))) for name, each in variances.items()}
        if len(layers) < 2:
            return
        low, high = min(layers, key=layers.__getitem__), max(layers, key=layers.__getitem__)
        ratio = layers[high] / layers[low] if layers[low] > 0 else math.inf
        if ratio > self.threshold:
            message = (
                f"variance {number(layers[high])} is {number(ratio)} times that of {low} ({number(layers[low])}), "
                f"limit {number(self.threshold)} times"
            )
            self.blame(high, step, ratio, self.threshold, message)

    def _gradients(self, step: int) -> None:
        widths = {
            (name, worker): width
            for name in self.measurements.names(GRADIENTS, step)
            for worker in self.measurements.workers(name, step)
            if (width := self._width(name, step, worker)) is not None
        }
        if not widths:
            return
        (name, worker), width = min(widths.items(), key=lambda each: (each[1], each[0][0]))
        if width < self.distribution_range:
            message = f"distance of 5th and 95th percentile {number(width)} is below {number(self.distribution_range)}"
            self.blame(name, step, width, self.distribution_range, message, worker)

    def _width(self, name: str, step: int, worker: str | None) -> float | None:
        def compute() -> float | None:
            try:
                value = self.measurements.value(name, step, worker)
            except SMDebugError:
                return None
            if value.dtype.kind not in "fiu" or value.size < FEWEST_ELEMENTS:
                return None
            low, high = np.percentile(value.astype(np.float64), (5, 95))
            return float(high - low) if np.isfinite(high - low) else None

        return self.measurements.cached(("5 to 95", name, step, worker), compute)
