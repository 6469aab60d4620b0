"""Tensors, where smdebug has them."""

from smdwidgets.trials.tensor import StepState, Tensor

__all__ = ["StepState", "Tensor"]
