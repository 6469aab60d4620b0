"""Runs and their tensors."""

from smdwidgets.trials.columns import Columns
from smdwidgets.trials.local import LocalTrial
from smdwidgets.trials.tensor import StepState, Tensor
from smdwidgets.trials.tensorboard import TensorBoardTrial
from smdwidgets.trials.trial import Trial
from smdwidgets.trials.utils import create_trial, create_trials

__all__ = ["Columns", "LocalTrial", "StepState", "Tensor", "TensorBoardTrial", "Trial", "create_trial", "create_trials"]
