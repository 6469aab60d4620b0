"""Tensors, where smdebug has them."""

from smdwidgets.trials.queries import StepState
from smdwidgets.trials.trial import Tensor

__all__ = ["StepState", "Tensor"]
