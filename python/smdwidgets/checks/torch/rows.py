"""Check of models of rows: an output that depends on other rows of the batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from smdwidgets.checks.torch.context import Context
from smdwidgets.checks.torch.graph import LossCall, sizes_of_gradient, walk
from smdwidgets.checks.torch.layers import BATCH_NORMS, FIRST_LAYERS
from smdwidgets.checks.torch.values import is_plain, sampled

__all__ = ["RowChecks"]

#: Fewest rows, passes that are looked at, and elements by which two inputs are compared.
_ROWS, _PASSES, _SAMPLED = 4, 6, 97
#: Layers that take one sequence without a batch, whose positions would look like rows.
_UNBATCHED = (nn.RNNBase, nn.MultiheadAttention, nn.TransformerEncoderLayer)


class RowChecks:
    """Looks for an output that depends on other rows.

    The gradient of one row with respect to the output of the first layer shows them, or to that of the last one that
    normalizes batches. The model gets tensors of as many
    rows and returns one vector for each row. Nodes of a graph are no rows: their values are added up by index, or are
    the same at all steps.

    Args:
        context: what the mechanisms share.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._handles: list[Any] = []
        self._passes = 0
        self._probed = False
        self._rows = 0
        self._earlier: torch.Tensor | None = None
        self._first: torch.Tensor | None = None
        #: The number of rows of a pass whose output depends on other rows.
        self._mixed = 0
        #: Whether rows are normalized together, so that only what follows the last of these layers is looked at.
        self._normalized = False

    def enters(self, model: nn.Module, tensors: list[torch.Tensor], looks: bool) -> None:
        """A model is called with these tensors."""
        self._rows, self._first = 0, None
        if not looks or self._probed or self._passes >= _PASSES or not tensors or not model.training:
            return
        only = tensors[0]
        if not is_plain(only) or only.ndim < 2 or only.shape[0] < _ROWS or not _of_rows(tensors):
            return
        parts = list(model.modules())
        unbatched = only.ndim == 2 and only.is_floating_point() and any(isinstance(one, _UNBATCHED) for one in parts)
        if unbatched:
            return
        norms = [one for one in parts if isinstance(one, BATCH_NORMS) and one.training]
        self._passes += 1
        sample = sampled(only, _SAMPLED).clone()
        earlier, self._earlier = self._earlier, sample
        # Sizes may differ; the values are compared only where they lie in host memory.
        if only.device.type == "cpu" and (earlier is None or torch.equal(earlier, sample)):
            return
        self._rows = only.shape[0]
        self._normalized = bool(norms)
        layers = norms or [one for one in parts if isinstance(one, FIRST_LAYERS)][:64]
        self._handles += [one.register_forward_hook(self._layer) for one in layers]

    def _layer(self, module: nn.Module, inputs: Any, output: Any) -> None:
        if (
            (self._first is None or self._normalized)
            and isinstance(output, torch.Tensor)
            and is_plain(output)
            and output.requires_grad
            and output.ndim > 1
            and output.shape[0] == self._rows
        ):
            self._first = output

    def leaves(self, output: Any, hooked: Callable[[], bool]) -> None:
        """A model has returned.

        ``hooked``: whether code of the script would see a backward pass.
        """
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        first, self._first = self._first, None
        rows, self._mixed = self._rows, 0
        if first is None or not isinstance(output, torch.Tensor) or not is_plain(output) or hooked():
            return
        if not output.requires_grad or output.ndim > 2 or not output.ndim or output.shape[0] != rows:
            return
        if output.ndim == 2 and output.shape[1] == rows:  # similarities of all pairs
            return
        walked = walk(output, None)
        if not walked.whole or walked.own_functions or walked.sums_by_index:
            return
        self._probed = True
        with torch.enable_grad():
            last = output[-1]
        sizes = sizes_of_gradient(last, first)
        if sizes is None:
            return

        def judge(own: Any, others: Any) -> None:
            if others > 1e-6 * own:
                self._mixed = rows

        self._context.values.read(judge, sizes[-1].max(), sizes[:-1].max())

    def look(self, call: LossCall) -> None:
        """A loss function has targets. One for each row shows that rows are independent."""
        mixed, self._mixed = self._mixed, 0
        target = call.target
        if not mixed or not target.ndim or target.shape[0] != mixed or call.input.shape[:1] != target.shape[:1]:
            return
        if len(self._context.optimizers()) == 1:
            self._context.log.say("rows_mixed", self._context.step)


def _of_rows(tensors: list[torch.Tensor]) -> bool:
    """Whether tensors have as many rows each.

    None may relate rows to each other, as a matrix of neighbours does.
    """
    rows = tensors[0].shape[0]
    if len(tensors) == 1:
        return True
    return all(
        is_plain(one) and one.ndim and one.shape[0] == rows and (one.ndim == 1 or one.shape[-1] != rows)
        for one in tensors
    )
