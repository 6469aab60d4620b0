"""Check of models that predict the next values: whether they see these."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from smdwidgets.checks.torch.context import Context
from smdwidgets.checks.torch.graph import LossCall, is_readable, sizes_of_gradient
from smdwidgets.checks.torch.layers import FIRST_LAYERS
from smdwidgets.checks.torch.values import is_plain

__all__ = ["SeriesChecks"]

#: Rows and elements of each that are compared, fewest positions, and passes in which targets are looked for.
_ROWS, _ELEMENTS, _POSITIONS, _PASSES = 8, 8192, 5, 8
#: Shares of targets that equal the next input, and of neighbours that are equal at most.
_EQUAL, _REPEATED = 0.98, 0.6
#: Size of a gradient that is more than rounding, as a share of the largest one.
_ROUNDING = 1e-7


class SeriesChecks:
    """Looks for an output that depends on the value which it predicts.

    The targets show along which dimension the inputs are shifted. Then the gradient of the output at one position, with
    respect to the output of the first layer, shows which positions it depends on.

    Args:
        context: what the mechanisms share.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._handles: list[Any] = []
        self._passes = 0
        self._input: torch.Tensor | None = None
        self._first: torch.Tensor | None = None
        #: The dimension of the positions, without those of size 1; 0: not known.
        self._axis = 0
        self._probed = False

    def enters(self, model: nn.Module, tensors: list[torch.Tensor], looks: bool) -> None:
        """A model is called with these tensors."""
        self._input = self._first = None
        if not looks or self._probed or self._passes >= _PASSES or len(tensors) != 1 or not model.training:
            return
        only = tensors[0]
        if not is_plain(only) or not only.is_floating_point() or only.ndim not in (2, 3):
            return
        self._input = only
        if self._axis:
            parts = [one for one in model.modules() if isinstance(one, FIRST_LAYERS)]
            self._handles += [one.register_forward_hook(self._layer) for one in parts[:64]]

    def _layer(self, module: nn.Module, inputs: Any, output: Any) -> None:
        if self._first is None and isinstance(output, torch.Tensor) and output.requires_grad and is_plain(output):
            self._first = output

    def leaves(self, output: Any, hooked: Callable[[], bool]) -> None:
        """A model has returned.

        ``hooked``: whether code of the script would see a backward pass.
        """
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        first, self._first = self._first, None
        if first is None or self._input is None or not isinstance(output, torch.Tensor) or hooked():
            return
        self._probed = True
        with torch.enable_grad():
            values = _squeezed(output)
        length = _squeezed(self._input).shape[self._axis]
        axes = [axis for axis in range(1, first.ndim) if first.shape[axis] == length]
        if len(axes) != 1 or values.ndim <= self._axis or values.shape[self._axis] != length:
            return
        if not output.requires_grad or not is_readable(output):
            return
        middle = length // 2
        with torch.enable_grad():
            one = values[-1].select(self._axis - 1, middle)
        sizes = sizes_of_gradient(one, first)
        if sizes is None:
            return
        context, step = self._context, self._context.step

        def judge(largest: Any, later: Any) -> None:
            if later > _ROUNDING * largest:
                context.log.say("sees_future", step, {"what": "values"})

        later = sizes.narrow(axes[0], middle + 1, length - middle - 1)
        context.values.read(judge, sizes.max(), later.max())

    def look(self, call: LossCall) -> None:
        """A loss function has targets. Look whether they are the next inputs."""
        first, self._input = self._input, None
        if first is None or self._axis:
            return
        inputs, targets = _squeezed(first), _squeezed(call.target)
        if inputs.shape != targets.shape or inputs.ndim < 2 or not is_plain(targets) or inputs.device != targets.device:
            return
        self._passes += 1
        if inputs[0].numel() > _ELEMENTS:
            return

        def judge(inputs: Any, targets: Any) -> None:
            for axis in range(1, inputs.ndim):
                if inputs.shape[axis] < _POSITIONS:
                    continue
                before, after = np.delete(inputs, -1, axis), np.delete(inputs, 0, axis)
                is_next = (np.delete(targets, -1, axis) == after).mean() > _EQUAL
                if is_next and (before == after).mean() < _REPEATED:
                    self._axis = axis

        self._context.values.read(judge, inputs[:_ROWS], targets[:_ROWS])


def _squeezed(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor without dimensions of size 1, except for that of the rows."""
    return tensor.reshape(tensor.shape[0], *(size for size in tensor.shape[1:] if size != 1)) if tensor.ndim else tensor
