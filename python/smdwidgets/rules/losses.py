"""Selectors of losses, and their values at a step."""

from __future__ import annotations

from smdwidgets.rules.measurements import Measurements
from smdwidgets.rules.selector import Selector
from smdwidgets.rules.tables import SCALAR, Need

__all__ = ["LOSSES", "LOSSES_AND_METRICS", "loss_need", "losses_at"]

#: The collection to which the hooks of all frameworks save losses.
LOSSES = Selector(("losses",))
#: The hooks of XGBoost and Keras save losses among the metrics, where learning rates and accuracies are, too.
LOSSES_AND_METRICS = Selector(("losses",), losses_of=("metrics",))


def loss_need(selector: Selector = LOSSES) -> Need:
    """Return the columns that losses are read from."""
    return Need(selector, SCALAR)


def losses_at(measurements: Measurements, selector: Selector, step: int) -> dict[str, float]:
    """Return the scalars at a step by name, averaged over workers.

    Larger tensors, such as logits and labels, are ignored.
    """
    need = loss_need(selector)
    return measurements.table(need.selector, step, need.columns).scalars()
