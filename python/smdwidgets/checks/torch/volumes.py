"""Check of the sign that a change of volume has in the loss of a flow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from smdwidgets.checks.torch.context import Context
from smdwidgets.checks.torch.copies import Watch
from smdwidgets.checks.torch.graph import is_readable
from smdwidgets.checks.torch.values import is_plain

__all__ = ["VolumeChecks"]

#: The update after which no layer is watched, most layers that may be part of a flow, largest size of a row, and rows.
_LAST, _LAYERS, _WIDEST, _ROWS = 24, 64, 16, 8
#: Losses that show the fault, how near a number is to the logarithm, and its least size.
_NEED, _NEAR, _LEAST = 3, 1e-3, 0.02


class VolumeChecks:
    """Compares the change of volume of a layer with its derivatives.

    A layer of a flow returns rows of the size that it got, and a number for each: the logarithm of the determinant of
    its derivatives, or the opposite. The likelihood of data rises with this logarithm, and so does the entropy of
    samples, so that a loss falls with it.

    Args:
        context: what the mechanisms share.
        guarded: makes a function one that does not raise.
        is_hooked: whether code of the script would see that derivatives are computed.
    """

    def __init__(
        self,
        context: Context,
        guarded: Callable[[Callable[..., object]], Callable[..., object]],
        is_hooked: Callable[[], bool],
    ) -> None:
        self._context, self._guarded, self._is_hooked = context, guarded, is_hooked
        self._handles: list[Any] = []
        #: The number of updates when a layer was looked at last, and whether `backward()` runs.
        self._looked_at = -1
        self._in_backward = False

    def after_update(self, is_compiled: Callable[[nn.Module], bool]) -> None:
        """An update has ended.

        The layers are watched from the first update on, for some updates: a script may call them by any method.

        Args:
            is_compiled: whether torch.compile has made any graph of a model.
        """
        updates = self._context.updates
        if updates == 1 and self._context.log.runs("log_det_negated"):
            models = [one for one in self._context.models() if not is_compiled(one)]
            parts = [part for one in models for part in one.modules() if not _is_of_torch(part)]
            self._handles = [one.register_forward_hook(Watch(self._returns)) for one in parts[:_LAYERS]]
        elif updates == _LAST:
            self.close()

    def close(self) -> None:
        """Watch no longer."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _returns(self, module: nn.Module, inputs: Any, output: Any) -> None:
        """A layer has returned."""
        if torch.is_grad_enabled() and isinstance(inputs, tuple) and inputs and isinstance(output, tuple):
            self._guarded(self._look_at)(inputs, output)

    def _look_at(self, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
        """Compute the derivatives of a layer of a flow, one of each update."""
        updates = self._context.updates
        if self._looked_at == updates or len(output) != 2:
            return
        x, y, said = inputs[0], *output
        if not all(isinstance(one, torch.Tensor) and is_plain(one) for one in (x, y, said)):
            return
        if x.ndim != 2 or x.shape != y.shape or not 1 < x.shape[1] <= _WIDEST or said.numel() != len(x):
            return
        # The derivatives are taken of a graph that is there, as of the second layer of a flow.
        if not (x.requires_grad and y.requires_grad) or said.grad_fn is None or not is_readable(y):
            return
        if self._is_hooked():
            self._context.log.off(("log_det_negated",), "the model has backward hooks, which would see the derivatives")
            return
        self._looked_at = updates
        own = said.detach().reshape(1, -1)
        before = inputs[1] if len(inputs) > 1 else None
        if isinstance(before, torch.Tensor) and is_plain(before) and before.numel() == len(x):
            own = torch.cat([own, own - before.detach().reshape(1, -1)])  # the layers may add theirs to a sum
        with torch.enable_grad():
            sums = y.sum(0)
            slopes = [torch.autograd.grad(one, x, retain_graph=True, allow_unused=True)[0] for one in sums]
        used = [one[:_ROWS].detach() for one in slopes if one is not None]
        if len(used) == len(slopes):
            self._wait(said, own[:, :_ROWS], torch.stack(used, 1).double())

    def _wait(self, said: torch.Tensor, own: torch.Tensor, slopes: torch.Tensor) -> None:
        """Look at the gradient of the loss by what a layer says."""
        place, step = said.output_nr, self._context.step

        def backward(gradients: Any) -> None:
            gradient = gradients[place] if len(gradients) > place else None
            if self._in_backward and isinstance(gradient, torch.Tensor):
                values = own, slopes, gradient.detach().reshape(-1)[:_ROWS]
                self._context.values.read(lambda *read: self._judge(step, *read), *values)

        said.grad_fn.register_prehook(self._guarded(backward))

    def _judge(self, step: int, own: Any, slopes: Any, gradients: Any) -> None:
        log = self._context.log
        volumes = np.linalg.slogdet(slopes)[1]
        near, large = _NEAR * (1 + np.abs(volumes).max()), np.abs(volumes) > _LEAST
        same = [one for one in own if np.abs(np.abs(one) - np.abs(volumes)).max() < near]
        if not np.isfinite(volumes).all() or not same or not large.any():
            return
        products = same[0] * volumes
        signs = np.sign(products) * np.sign(gradients)
        if (signs[large] > 0).all():
            what = "the logarithm of its change of volume" if products[large][0] > 0 else "its opposite"
            log.say("log_det_negated", step, {"what": what, "rows": int(large.sum())}, ["loss"], need=_NEED)
        else:
            log.unseen("log_det_negated")

    def backward_begins(self) -> None:
        """`backward()` is called."""
        self._in_backward = True

    def backward_ends(self) -> None:
        """`backward()` has returned."""
        self._in_backward = False


def _is_of_torch(module: nn.Module) -> bool:
    return type(module).__module__.startswith("torch.")
