"""Check of embeddings: that `padding_idx` is the token of the padding."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from smdwidgets.checks.torch.context import Context
from smdwidgets.checks.torch.layer_inputs import LayerInputs
from smdwidgets.checks.torch.layers import weight_of
from smdwidgets.checks.torch.tokens import final_runs
from smdwidgets.checks.torch.values import is_plain

__all__ = ["PaddingChecks"]

#: Passes of a model that are looked at, layers of each, rows and positions that are read.
_PASSES, _LAYERS, _ROWS, _POSITIONS = 8, 4, 64, 1024
#: Fewest rows and positions.
_FEWEST_ROWS, _FEWEST_POSITIONS = 8, 4
#: Share of rows that end in a run of two and more, different lengths of these, and rows with the token among others.
_PADDED, _LENGTHS, _WITHIN = 0.25, 3, 3
#: Share of rows whose tokens are in order; the largest number may end them.
_SORTED = 0.9
#: How far the embedding of the padding has turned, as 1 - cosine, if it is trained and not only decays.
_TURNED = 1e-9


class PaddingChecks:
    """Compares the ``padding_idx`` of embeddings with the token that fills rows up.

    The weights show that the embedding of the padding is trained, while that of a token within the rows stays.

    Args:
        context: what the mechanisms share.
        guarded: makes a function one that does not raise.
    """

    def __init__(self, context: Context, guarded: Callable[[Callable[..., object]], Callable[..., object]]) -> None:
        self._context = context
        self._inputs = LayerInputs(guarded(self._layer), _PASSES, _LAYERS)
        #: The embeddings of padding as they were when it was seen first, by layer, with the token.
        self._rows: weakref.WeakKeyDictionary[nn.Module, tuple[int, NDArray[np.float64]]] = weakref.WeakKeyDictionary()

    def enters(self, model: nn.Module, looks: bool) -> None:
        """A model is called."""
        if looks and self._context.log.runs("padding_index_other"):
            layers = (one for one in model.modules() if type(one) is nn.Embedding and one.padding_idx is not None)
            self._inputs.enters(model, layers)

    def leaves(self) -> None:
        """A model has returned."""
        self._inputs.leaves()

    def _layer(self, module: nn.Embedding, inputs: Any) -> None:
        """An embedding gets tokens."""
        tokens: Any = inputs[0] if isinstance(inputs, tuple) and inputs else None
        weight, index = weight_of(module), module.padding_idx
        if index is None or weight is None or not weight.requires_grad or not (is_plain(tokens) and is_plain(weight)):
            return
        if tokens.ndim != 2 or len(tokens) < _FEWEST_ROWS or not _FEWEST_POSITIONS <= tokens.shape[1] <= _POSITIONS:
            return
        context, step, name = self._context, self._context.step, self._context.name_of_module(module)
        layer = weakref.ref(module)

        def judge(tokens: Any) -> None:
            token = filling(tokens, index)
            end = "end"
            if token is None:
                token, end = filling(tokens[:, ::-1], index), "begin"
            embedding = layer()
            if token is not None and embedding is not None and self._is_trained(embedding, token):
                facts = {"tensor": name, "index": index, "token": token, "end": end}
                context.log.say("padding_index_other", step, facts, [name])

        context.values.read(judge, tokens[:_ROWS])

    def _is_trained(self, layer: nn.Module, token: int) -> bool:
        """Whether updates have turned the embedding of a token."""
        weight = weight_of(layer)
        if weight is None or not 0 <= token < len(weight):
            return False
        now: NDArray[np.float64] = weight[token].detach().to("cpu", torch.float64).numpy().copy()
        earlier = self._rows.get(layer)
        if earlier is None or earlier[0] != token:
            self._rows[layer] = token, now
            return False
        before = earlier[1]
        sizes = float(np.linalg.norm(before) * np.linalg.norm(now))
        return sizes > 0 and 1 - float(before @ now) / sizes > _TURNED


def filling(tokens: NDArray[np.float64], index: int) -> int | None:
    """Return the token that fills rows up at their end, if another one is padding.

    The result is None if rows are not filled up, or if that token is the padding.

    >>> rows = np.array([[3, 1, 2, 0, 0], [1, 2, 1, 3, 0], [2, 1, 3, 2, 3], [3, 1, 0, 0, 0]] * 2)
    >>> filling(rows, 1), filling(rows, 0)
    (0, None)
    """
    values, counts = np.unique(tokens[:, -1], return_counts=True)
    token = values[counts.argmax()]
    runs = final_runs(tokens, token)
    if token == index or runs.sum() != (tokens == token).sum():  # elsewhere, too
        return None
    if (runs >= 2).mean() < _PADDED or len(np.unique(runs)) < _LENGTHS:
        return None
    ordered = [(np.diff(tokens, axis=1) * sign >= 0).all(1).mean() for sign in (1, -1)]
    if max(ordered) > _SORTED:
        return None
    middle, before, after = tokens[:, 1:-1], tokens[:, :-2], tokens[:, 2:]
    within = middle == index
    for neighbour in (before, after):
        within &= (neighbour != index) & (neighbour != token)
    return int(token) if within.any(1).sum() >= _WITHIN else None
