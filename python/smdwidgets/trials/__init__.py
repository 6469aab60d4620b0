"""Runs and their tensors."""

from smdwidgets.trials.columns import Columns
from smdwidgets.trials.local import LocalTrial
from smdwidgets.trials.tensor import StepState, Tensor
from smdwidgets.trials.trial import Trial
from smdwidgets.trials.utils import create_trial

__all__ = ["Columns", "LocalTrial", "StepState", "Tensor", "Trial", "create_trial"]
