"""Check of layouts: channels and places that a view exchanges without moving them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torch import nn

from smdwidgets.checks.torch.context import Context
from smdwidgets.checks.torch.layer_inputs import LayerInputs
from smdwidgets.checks.torch.layers import CONVOLUTIONS
from smdwidgets.checks.torch.values import is_plain

__all__ = ["LayoutChecks"]

#: Passes of a model that are looked at, layers of each, and inputs of layers that must be mixed.
_PASSES, _LAYERS, _MIXED = 6, 8, 2
_CHANNELS_LAST = (nn.RNNBase, nn.Linear, nn.MultiheadAttention)


class LayoutChecks:
    """Compares the shape of a layer's input with that of the tensor it is a view of.

    Args:
        context: what the mechanisms share.
        guarded: makes a function one that does not raise.
    """

    def __init__(self, context: Context, guarded: Callable[[Callable[..., object]], Callable[..., object]]) -> None:
        self._context = context
        self._inputs = LayerInputs(guarded(self._layer), _PASSES, _LAYERS)
        #: Inputs of layers that were mixed.
        self._mixed = 0

    def enters(self, model: nn.Module, looks: bool) -> None:
        """A model is called."""
        if looks and self._context.log.runs("channels_mixed"):
            layers = (one for one in model.modules() if isinstance(one, (*CONVOLUTIONS, *_CHANNELS_LAST)))
            self._inputs.enters(model, layers)

    def _layer(self, module: nn.Module, inputs: Any) -> None:
        first: Any = inputs[0] if isinstance(inputs, tuple) and inputs else None
        base: Any = getattr(first, "_base", None)
        if not all(is_plain(one) and one.is_contiguous() for one in (first, base)):
            return
        before, after = tuple(base.shape), tuple(first.shape)
        is_convolution = isinstance(module, CONVOLUTIONS)
        if is_convolution:
            mixed = after[1:2] == (module.in_channels,) and are_channels_first(before, after)
        else:
            mixed = getattr(module, "batch_first", True) is True and are_channels_last(before, after)
        self._mixed += mixed
        if mixed and self._mixed >= _MIXED:
            name = self._context.name_of_module(module)
            what = f"A view has made the input of `{name}`, {after}, of {before}, which exchanges channels and places"
            self._context.log.say("channels_mixed", self._context.step, {"what": what}, [name])

    def walked(self, views: list[tuple[tuple[int, ...], tuple[int, ...]]]) -> None:
        """A loss depends on views of maps, with these shapes before and after."""
        for before, after in views:
            if self._context.log.runs("channels_mixed") and are_maps_last(before, after):
                what = (
                    f"A view has made {after} of what a convolution has computed, {before}, "
                    "which exchanges channels and places"
                )
                self._context.log.say("channels_mixed", self._context.step, {"what": what}, need=_MIXED)
                return

    def leaves(self) -> None:
        """A model has returned."""
        self._inputs.leaves()


def are_channels_first(before: tuple[int, ...], after: tuple[int, ...]) -> bool:
    """Whether a view puts the channels of the last dimension before the places.

    The number of rows may differ: a batch may be a part of a tensor.
    The channels may be cut into shorter ones, which gives such shapes if their number is a multiple of that of places.

    >>> [are_channels_first(before, (8, 3, 5, 5)) for before in ((64, 5, 5, 3), (8, 25, 3), (8, 3, 25), (8, 75))]
    [True, True, False, False]
    >>> are_channels_first((8, 4, 16), (8, 16, 4))
    False
    """
    before, after = _row(before), _row(after)
    if len(before) < 2 or len(after) < 2 or math.prod(before) != math.prod(after):
        return False
    is_cut = after[0] % math.prod(after[1:]) == 0
    return before[-1] == after[0] != before[0] and not is_cut


def are_channels_last(before: tuple[int, ...], after: tuple[int, ...]) -> bool:
    """Whether a view puts the channels of the first dimension behind the places.

    Positions that are split into several, or joined, have such shapes, too, if one size is a multiple of the other.

    >>> [are_channels_last(before, (8, 20, 48)) for before in ((8, 48, 20), (8, 48, 4, 5), (8, 20, 48), (8, 4, 240))]
    [True, True, False, False]
    >>> are_channels_last((8, 16, 32), (8, 32, 16))
    False
    """
    before, after = _row(before), _row(after)
    if len(before) < 2 or len(after) != 2 or math.prod(before) != math.prod(after):
        return False
    places, channels = after
    is_split = max(after) % min(after) == 0
    return before[0] == channels != before[-1] and math.prod(before[1:]) == places and not is_split


def are_maps_last(before: tuple[int, ...], after: tuple[int, ...]) -> bool:
    """Whether a view puts the maps of a convolution behind its places.

    Each place may have several groups of maps, as of anchors.

    >>> [are_maps_last((8, 12, 5, 7), after) for after in ((8, 5, 7, 12), (8, 35, 12), (8, 70, 6), (8, 5, 7, 2, 6))]
    [True, True, True, True]
    >>> [are_maps_last((8, 12, 5, 7), after) for after in ((8, 12, 35), (8, 2, 6, 5, 7), (8, 60, 7), (8, 420))]
    [False, False, False, False]
    """
    (maps, *places), row = _row(before) or (0,), _row(after)
    if not places or len(row) < 2 or row[0] == maps or maps < 2 or math.prod(places) * maps != math.prod(row):
        return False
    groups = maps // row[-1] if maps % row[-1] == 0 else 0
    number = math.prod(places)
    if not groups or (groups > 1 and row[-1] in (places[-1], number)):
        return False
    return row[:-1] in {tuple(places), (number,), (number * groups,), (*places, groups), (number, groups)}


def _row(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of a row, without dimensions of size 1."""
    return tuple(size for size in shape[1:] if size != 1)
