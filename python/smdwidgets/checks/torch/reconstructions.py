"""Check of models that give back their input: that the first layer learns from it."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

from smdwidgets.checks.torch.context import Context
from smdwidgets.checks.torch.graph import walk
from smdwidgets.checks.torch.layers import FIRST_LAYERS, weight_of
from smdwidgets.checks.torch.values import is_plain

__all__ = ["ReconstructionChecks"]

#: Passes that are looked at.
_PASSES = 6


class ReconstructionChecks:
    """Looks whether an output like the input has a gradient to the first layer.

    That layer may still get a gradient from another part of the loss, as in a quantized autoencoder.

    Args:
        context: what the mechanisms share.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._handles: list[Any] = []
        self._passes = 0
        self._input: torch.Tensor | None = None
        #: The weight of the layer that got the input.
        self._first: nn.Parameter | None = None
        #: The weight that an output of the last pass does not depend on, until its loss is known.
        self._apart: weakref.ref[nn.Parameter] | None = None

    def enters(self, model: nn.Module, tensors: list[torch.Tensor], looks: bool) -> None:
        """A model is called with these tensors."""
        self._apart = self._first = self._input = None
        only = tensors[0] if len(tensors) == 1 else None
        if not looks or self._passes >= _PASSES or only is None or not is_plain(only) or not model.training:
            return
        if not only.is_floating_point() or only.ndim < 2:
            return
        self._passes += 1
        self._input = only
        layers = [one for one in model.modules() if isinstance(one, FIRST_LAYERS)]
        self._handles += [one.register_forward_pre_hook(self._layer) for one in layers]

    def _layer(self, module: nn.Module, inputs: Any) -> None:
        if self._first is None:
            self._first = weight_of(module)

    def leaves(self, output: Any) -> None:
        """A model has returned."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        first, only = self._first, self._input
        self._first = self._input = None
        if first is None or only is None or not first.requires_grad:
            return
        alike = [one for one in _tensors(output) if one.shape == only.shape and one.requires_grad and is_plain(one)]
        if len(alike) != 1:
            return
        walked = walk(alike[0], None)
        if walked.whole and not walked.own_functions and not any(leaf is first for leaf in walked.leaves):
            self._apart = weakref.ref(first)

    def walked(self, leaves: Iterable[torch.Tensor]) -> None:
        """The graph of a loss has these parameters."""
        apart = None if self._apart is None else self._apart()
        self._apart = None
        if apart is not None and any(leaf is apart for leaf in leaves):
            name = self._context.name_of(apart)
            self._context.log.say("reconstruction_detached", self._context.step, {"tensor": name}, [name], need=2)


def _tensors(output: Any) -> Iterator[torch.Tensor]:
    values = (
        output.values() if isinstance(output, Mapping) else output if isinstance(output, tuple | list) else (output,)
    )
    yield from (one for one in values if isinstance(one, torch.Tensor))
