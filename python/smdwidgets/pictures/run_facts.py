"""Hyperparameters and launches of a run, for the line above its map."""

from __future__ import annotations

import json
import logging
import math
from typing import Any

from smdwidgets._text import visible
from smdwidgets.trials.sources.trial import SourceTrial
from smdwidgets.trials.tensorboard.trial import TensorBoardTrial
from smdwidgets.trials.trial import Trial

logger = logging.getLogger("smdwidgets.widgets")

#: More than these are not read in a list.
_MOST_HPARAMS, _MOST_LAUNCHES, _TEXT = 500, 1000, 500


def run_facts(trial: Trial) -> dict[str, Any]:
    """Return ``hparams``, ``launches`` and ``launch`` of a catalog packet.

    ``launches`` are the times at which they began, and are absent if there is one only.
    """
    facts: dict[str, Any] = {}
    try:
        if hparams := list(trial.hparams().items())[:_MOST_HPARAMS]:
            facts["hparams"] = {visible(str(name), _TEXT): _shown(value) for name, value in hparams}
        if isinstance(trial, TensorBoardTrial) and not isinstance(trial, SourceTrial):
            launches = trial.segments()[:_MOST_LAUNCHES]
            if len(launches) > 1:
                facts |= {"launches": [one.started for one in launches], "launch": trial.segment}
    except Exception:  # the map is worth more than the line above it
        logger.debug("cannot read the hyperparameters or launches of %s", trial.path, exc_info=True)
    return facts


def _shown(value: Any) -> float | str | bool | None:
    """Return a value that JSON can hold.

    >>> _shown(float("inf")), _shown([1, 2]), _shown(0.5)
    ('inf', '[1, 2]', 0.5)
    """
    if value is None or isinstance(value, bool) or (isinstance(value, (int, float)) and math.isfinite(value)):
        return value
    if isinstance(value, (str, int, float)):
        return visible(str(value), _TEXT)
    return visible(json.dumps(value, default=str), _TEXT)
