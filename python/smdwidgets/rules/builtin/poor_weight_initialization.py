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
#: Percentiles of fewer elements say nothing.
FEWEST_ELEMENTS = 20


@dataclass(frozen=True)
class _State:
    """How many steps have been judged, and how each loss does."""

    count: int = 0
    losses: dict[str, tuple[float, int]] = field(default_factory=dict)  # best so far, steps since


class PoorWeightInitialization(BuiltinRule):
    """The first steps show that the weights began badly.

    Judges the first `steps` saved steps that train (not those of EVAL and PREDICT) and that hold any of what it looks at. Any of
    three signs fires:

    - among the layers' activation inputs, the largest variance is more than `threshold` times the smallest (a smallest of zero is too
      small for any);
    - the narrowest gradient (of 20 elements or more) has a distance between 5th and 95th percentile below `distribution_range`;
    - a loss has not fallen below its best for `patience` saved steps.

    Later steps have nothing to judge.

    What to do: He initialisation for ReLU, Xavier for tanh and sigmoid; normalisation layers.
    """

    collections = {"relu_input": {"include_regex": ".*relu_input", "save_interval": "500"}}

    activation_inputs_regex = Patterns(
        (r"(?i)^(?!gradient).*re_?lu[^/]*(_|/)input",),
        "Which tensors are activation inputs.",
        documented=".*relu_input",
    )
    threshold = Real(10.0, "Largest tolerated ratio of variances between layers.", minimum=0.0)
    distribution_range = Real(
        0.001, "Smallest tolerated distance between the 5th and 95th percentile of gradients.", minimum=0.0
    )
    patience = Integer(5, "Saved steps without a lower loss.", minimum=1)
    steps = Integer(10, "How many first saved steps are judged.", minimum=1)

    @property
    def activations(self) -> Selector:
        return Selector((), self.activation_inputs_regex)

    def needs(self) -> list[Need]:
        return [Need(self.activations, ("variance",)), loss_need()]

    def judge(self, step: int) -> None:
        if self.measurements.mode(step) in (ModeKeys.EVAL, ModeKeys.PREDICT):
            raise NothingToJudge("a step that does not train")
        if not self._holds_any(step):
            raise NothingToJudge("neither activation inputs nor gradients nor losses at this step")
        key = ("initialization", self.activations, self.steps)
        state = self.measurements.fold(key, step, _State(), self._add, self.needs())
        if state.count > self.steps:
            raise NothingToJudge(f"only the first {self.steps} saved steps are judged")
        self._variances(step)
        self._gradients(step)
        for name, (best, since) in sorted(state.losses.items()):
            if since >= self.patience and name in losses_at(self.measurements, LOSSES, step):
                self.blame(name, step, since, self.patience, f"loss not below {number(best)} for {since} saved steps")

    def _holds_any(self, step: int) -> bool:
        return any(self.measurements.names(each, step) for each in (self.activations, GRADIENTS, LOSSES))

    def _add(self, state: _State, step: int) -> _State:
        # Once past the first steps nothing is asked of a run any more.
        if state.count > self.steps or self.measurements.mode(step) in (ModeKeys.EVAL, ModeKeys.PREDICT):
            return state
        if not self._holds_any(step):
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
                f"{number(self.threshold)} times is tolerated"
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
            message = f"5th to 95th percentile of the gradient are {number(width)} apart, less than {number(self.distribution_range)}"
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

        return self.measurements.kept(("5 to 95", name, step, worker), compute)
