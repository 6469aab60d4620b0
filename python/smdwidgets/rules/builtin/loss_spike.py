"""LossSpike."""

from __future__ import annotations

from smdwidgets.rules.builtin.base import collections_parameter
from smdwidgets.rules.builtin.spike import SpikeRule


class LossSpike(SpikeRule):
    """Detect a loss that rises suddenly or is not finite.

    Fires immediately when a loss is NaN or infinite. Otherwise compares the loss with its previous 50 finite values of
    the same mode, of which at least 15 are needed. Fires when it exceeds their median by more than 8 robust standard
    deviations and by more than half of the median. `GradientNormSpike`, `diagnose`, the flight recorder and the map of
    a run use the same definition. `diagnose` reports spikes only if they are rare in the series.

    What to do: use a smaller learning rate or gradient clipping, check the batch of that step, resume from the previous
    checkpoint.
    """

    collections = {"losses": {"save_interval": "10"}}
    quantity = "loss"

    collection_names = collections_parameter(("losses",))
