"""DeadRelu."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from smdwidgets.rules.builtin.base import BuiltinRule, NothingToJudge, regex_parameter, unless_given
from smdwidgets.rules.builtin.units import FEWEST_SAMPLES, inactive_share
from smdwidgets.rules.findings import number
from smdwidgets.rules.parameters import Real
from smdwidgets.rules.selector import ModuleTensors, Selector

_RELU = ModuleTensors("output", ("ReLU", "ReLU6"))


class DeadRelu(BuiltinRule):
    """Detect ReLU layers in which most units are never active.

    A unit is dead when fewer than `threshold_inactivity` percent of its outputs are nonzero. Fires when more than
    `threshold_layer` percent of a layer's units are dead.

    A unit is a channel: a slice along axis 1 or along the last axis, whichever has more dead units (axis 0 is the
    batch). The outputs of all workers are combined. If a step holds fewer than 16 outputs per unit, earlier steps are
    added. Gradients are ignored, even if their names match. In runs of the PyTorch hook, ReLU layers are found by their
    class (ReLU, ReLU6 and subclasses), whatever their names; `tensor_regex` selects other tensors.

    What to do: use a smaller learning rate, smaller or positive initial biases, LeakyReLU or GELU, or normalised
    inputs.
    """

    collections = {"relu_output": {"include_regex": ".*relu_output", "save_interval": "500"}}

    tensor_regex = regex_parameter(
        (r"(?i)^(?!gradient).*re_?lu[^/]*(_|/)output", r"^(?!gradient).*/Relu(_\d+)?:\d"), documented=".*relu_output"
    )
    threshold_inactivity = Real(1.0, "Activity below which a unit is dead.", minimum=0.0, maximum=100.0, unit="%")
    threshold_layer = Real(
        50.0, "Share of dead units above which the rule fires.", minimum=0.0, maximum=100.0, unit="%"
    )

    @property
    def selector(self) -> Selector:
        return Selector((), self.tensor_regex, unless_given(self, _RELU))

    def judge(self, step: int) -> None:
        selector = self.selector
        judged = False
        for name in dict.fromkeys(name for name, _ in self.rows(selector, step)):
            found = inactive_share(
                self.measurements, selector, name, step, _active, ("nonzero",), self.threshold_inactivity
            )
            if found is None:
                continue
            judged = True
            share, units = found
            if share > self.threshold_layer:
                message = f"{number(share)} % of {units} units are dead, more than {number(self.threshold_layer)} %"
                self.blame(name, step, share, self.threshold_layer, message)
        if not judged:
            raise NothingToJudge(f"fewer than {FEWEST_SAMPLES} outputs per unit were saved so far")


def _active(value: NDArray[Any]) -> NDArray[np.bool_]:
    active: NDArray[np.bool_] = value != 0
    return active
