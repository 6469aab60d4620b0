"""SaturatedActivation."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from smdwidgets.rules.builtin.base import (
    BuiltinRule,
    NothingToJudge,
    collections_parameter,
    regex_parameter,
    unless_given,
)
from smdwidgets.rules.builtin.units import FEWEST_SAMPLES, inactive_share
from smdwidgets.rules.findings import number
from smdwidgets.rules.parameters import Real
from smdwidgets.rules.selector import ModuleTensors, Selector, module_classes

_SATURATING = ModuleTensors("input", ("Tanh", "Sigmoid"))


class SaturatedActivation(BuiltinRule):
    """Detect tanh and sigmoid layers in which most units are saturated.

    The inputs of a saturated unit are so large that its gradient is almost zero. A unit is saturated when fewer than
    `threshold_inactivity` percent of its inputs lie within the limits (inclusive). Fires when more than
    `threshold_layer` percent of a layer's units are saturated. In runs of the PyTorch hook, layers are found by their
    class (Tanh, Sigmoid and subclasses); `tensor_regex` selects other tensors. In other runs the sigmoid limits apply
    to tensors with "sigmoid" in their names (case-insensitive), the tanh limits to all others.

    Units, workers and small batches are handled as in DeadRelu. NaN lies outside the limits.

    What to do: use Xavier initialisation, normalisation before the activation, smaller inputs, or ReLU-like
    activations.
    """

    collection_names = collections_parameter()
    tensor_regex = regex_parameter(
        (r"(?i)^(?!gradient).*(tanh|sigmoid)[^/]*(_|/)input",), documented=".*tanh_input|.*sigmoid_input"
    )
    threshold_tanh_min = Real(-9.4999, "Lower limit of tanh inputs.")
    threshold_tanh_max = Real(9.4999, "Upper limit of tanh inputs.")
    threshold_sigmoid_min = Real(-23.0, "Lower limit of sigmoid inputs.")
    threshold_sigmoid_max = Real(16.99999, "Upper limit of sigmoid inputs.")
    threshold_inactivity = Real(
        1.0, "Share of inputs within the limits below which a unit is saturated.", minimum=0.0, maximum=100.0, unit="%"
    )
    threshold_layer = Real(
        50.0, "Share of saturated units above which the rule fires.", minimum=0.0, maximum=100.0, unit="%"
    )

    @property
    def selector(self) -> Selector:
        return Selector(self.collection_names, self.tensor_regex, unless_given(self, _SATURATING))

    def judge(self, step: int) -> None:
        selector = self.selector
        judged = False
        for name in dict.fromkeys(name for name, _ in self.rows(selector, step)):
            low, high = self._limits(name)

            def within(value: NDArray[Any], low: float = low, high: float = high) -> NDArray[np.bool_]:
                return (value >= low) & (value <= high)

            found = inactive_share(
                self.measurements, selector, name, step, within, (low, high), self.threshold_inactivity
            )
            if found is None:
                continue
            judged = True
            share, units = found
            if share > self.threshold_layer:
                message = (
                    f"{number(share)} % of {units} units are saturated (inputs outside {number(low)} to {number(high)}), "
                    f"more than {number(self.threshold_layer)} %"
                )
                self.blame(name, step, share, self.threshold_layer, message)
        if not judged:
            raise NothingToJudge(f"fewer than {FEWEST_SAMPLES} inputs per unit were saved so far")

    def _limits(self, name: str) -> tuple[float, float]:
        classes = module_classes(self.base_trial, name)
        if "Sigmoid" in classes or (not classes and "sigmoid" in name.casefold()):
            return self.threshold_sigmoid_min, self.threshold_sigmoid_max
        return self.threshold_tanh_min, self.threshold_tanh_max
