"""Tensors, under the import path of `smdebug.core.tensor`."""

from smdwidgets.trials.reader import StepState
from smdwidgets.trials.trial import Tensor

__all__ = ["StepState", "Tensor"]
