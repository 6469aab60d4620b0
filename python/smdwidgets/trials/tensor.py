"""Tensor and related constants.

The class is defined in :mod:`smdwidgets.trials.trial`, since trials and tensors refer to each other.
"""

from smdwidgets.trials.queries import StepState
from smdwidgets.trials.run import REDUCTIONS
from smdwidgets.trials.trial import Tensor

__all__ = ["REDUCTIONS", "StepState", "Tensor"]
