"""Checks of layers that take a sequence: along which dimension, and what is used."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.utils.rnn import PackedSequence

from smdwidgets.checks.torch.context import Context
from smdwidgets.checks.torch.graph import LossCall, selected, users_of
from smdwidgets.checks.torch.tokens import final_runs
from smdwidgets.checks.torch.values import is_plain

__all__ = ["RecurrenceChecks"]

#: Passes that are looked at, and layers of each.
_PASSES, _LAYERS = 8, 16
#: Calls of a cell in one pass whose state has no gradient.
_DETACHED = 3
#: Rows that are read, and the share of the median row that is padding at least.
_ROWS, _MUCH = 64, 0.3
_SEQUENTIAL = (nn.RNNBase, nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerEncoder)


class RecurrenceChecks:
    """Looks for layers that run over the rows of a batch.

    A layer without ``batch_first`` takes the first dimension for the sequence. It is that of the rows if the batch of
    the data loader has as many, or if the loss has one target for each. An input whose dimensions a `view` exchanged
    has values of several rows in each. The state of a cell that is called in a loop is its last output. The last
    position of a row is padding if rows end with one token, or with frames of zeros, so often as their lengths differ,
    or if the layer took packed rows and most of them are shorter than the longest.

    Args:
        context: what the mechanisms share.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._handles: list[Any] = []
        self._passes = 0
        self._rows: int | None = None
        self._input: torch.Tensor | None = None
        #: The layer that runs over the rows of the last pass, if the first dimension is that of the rows.
        self._over_rows: tuple[str, tuple[int, ...]] | None = None
        #: Each layer of the last pass: name, dimension and length of its sequence, nodes of its output and state.
        self._sequences: list[tuple[str, int, int, Any, list[Any]]] = []
        #: Each layer of the last pass that took packed rows: name, output, and nodes of its state.
        self._packed: list[tuple[str, PackedSequence, list[Any]]] = []
        #: The tokens of the last pass, or its frames of numbers.
        self._elements: torch.Tensor | None = None
        #: The last output of each cell, and how often its next state was this one with a gradient, and without.
        self._cells: dict[nn.Module, tuple[torch.Tensor, int, int]] = {}

    def enters(self, model: nn.Module, inputs: tuple[Any, ...], rows: int | None, looks: bool) -> None:
        """A model is called with inputs of so many rows."""
        self._over_rows = self._input = None
        self._sequences.clear()
        self._packed.clear()
        self._cells.clear()
        self._elements = None
        if not looks or rows is None or self._passes >= _PASSES or not self._context.log.runs("rows_mixed"):
            return
        self._passes += 1
        self._rows = rows
        first = inputs[0] if inputs else None
        self._input = first if isinstance(first, torch.Tensor) and is_plain(first) else None
        if self._input is not None:
            is_tokens = self._input.ndim == 2 and self._input.dtype in (torch.int64, torch.int32)
            is_frames = self._input.ndim == 3 and self._input.is_floating_point()
            self._elements = self._input.detach() if is_tokens or is_frames else None
        layers = [one for one in model.modules() if isinstance(one, _SEQUENTIAL)]
        self._handles += [one.register_forward_pre_hook(self._layer) for one in layers[:_LAYERS]]
        recurrent = [one for one in layers if isinstance(one, nn.RNNBase) and not one.bidirectional]
        self._handles += [one.register_forward_hook(self._returns) for one in recurrent[:_LAYERS]]
        cells = [one for one in model.modules() if isinstance(one, nn.RNNCellBase)]
        self._handles += [one.register_forward_hook(self._cell, with_kwargs=True) for one in cells[:_LAYERS]]

    def _layer(self, module: nn.Module, inputs: Any) -> None:
        first = inputs[0] if inputs else None
        if not isinstance(first, torch.Tensor) or first.ndim != 3:
            return
        if self._input is not None and _exchanges_rows(self._input, first):
            name = self._context.name_of_module(module)
            self._context.log.say("rows_mixed", self._context.step, {"layer": name}, [name], need=2)
        if self._over_rows is None and not _is_batch_first(module):
            sequence, rows = first.shape[:2]
            if sequence == self._rows and rows != sequence and sequence > 1:
                self._over_rows = self._context.name_of_module(module), tuple(first.shape)

    def _returns(self, module: nn.Module, inputs: Any, result: Any) -> None:
        output, states = result if isinstance(result, tuple) and len(result) == 2 else (None, ())
        if isinstance(output, PackedSequence):
            longest, rows = output.batch_sizes[-1], output.batch_sizes[0]
            if output.data.grad_fn is not None and len(output.batch_sizes) > 1 and longest <= (1 - _MUCH) * rows:
                self._packed.append((self._context.name_of_module(module), output, _nodes_of(states)))
            return
        if not isinstance(output, torch.Tensor) or output.ndim != 3 or output.grad_fn is None:
            return
        time = 1 if _is_batch_first(module) else 0
        if output.shape[time] > 1:
            length, name = output.shape[time], self._context.name_of_module(module)
            self._sequences.append((name, time, length, output.grad_fn, _nodes_of(states)))

    def _packed_last_only(self, name: str, output: PackedSequence) -> None:
        """Only the output of packed rows is used: look where it gets a gradient."""
        longest, rows = int(output.batch_sizes[-1]), int(output.batch_sizes[0])
        context, step, place = self._context, self._context.step, output.data.output_nr

        def judge(are_used: NDArray[np.bool_]) -> None:
            if are_used[-longest:].any() and not are_used[:-longest].any():
                share = f"in {1 - longest / rows:.0%} of them"
                facts = {"layer": name, "padding": "zeros after packed rows", "share": share}
                context.log.say("last_is_padding", step, facts, [name], need=2)

        def look(gradients: tuple[torch.Tensor | None, ...]) -> None:
            handle.remove()
            gradient = gradients[place]
            if gradient is not None and sum(one is not None for one in gradients) == 1:
                context.values.read(judge, gradient.detach().ne(0).any(-1))

        handle = output.data.grad_fn.register_prehook(look)

    def _cell(self, module: nn.Module, inputs: Any, named: dict[str, Any], output: Any) -> None:
        state = named.get("hx", inputs[1] if len(inputs) > 1 else None)
        state = state[0] if isinstance(state, tuple) and state else state
        output = output[0] if isinstance(output, tuple) and output else output
        if not isinstance(output, torch.Tensor) or not is_plain(output):
            return
        last, kept, detached = self._cells.get(module, (None, 0, 0))
        if last is not None and last.requires_grad and isinstance(state, torch.Tensor) and is_plain(state):
            if state.requires_grad:
                kept += 1
            elif state.data_ptr() == last.data_ptr():  # `detach` does not copy
                detached += 1
        self._cells[module] = output, kept, detached

    def backward_begins(self, root: torch.Tensor) -> None:
        """A loss is known. Look which positions of a sequence it depends on."""
        cells, self._cells = self._cells, {}
        for cell, (_, kept, detached) in cells.items():
            if detached >= _DETACHED and not kept:
                name = self._context.name_of_module(cell)
                facts = {"layer": name, "count": detached}
                self._context.log.say("state_detached", self._context.step, facts, [name], need=2)
        sequences, self._sequences = self._sequences, []
        for name, time, length, output, states in sequences:
            users, *others = users_of(root.grad_fn, [output, *states])
            if users and not any(others) and all(selected(one) == (time, 0) for one in users):
                self._context.log.say("first_position_only", self._context.step, {"layer": name}, [name], need=2)
            last = ((time, length - 1), (time, -1))
            if (users or any(others)) and all(selected(one) in last for one in users):
                self._last_only(name, time, length)

        packed, self._packed = self._packed, []
        for name, rows, states in packed:
            node = rows.data.grad_fn
            users, *others = users_of(root.grad_fn, [node, *(one for one in states if one is not node)])
            if users and not any(others):
                self._packed_last_only(name, rows)

    def _last_only(self, name: str, time: int, length: int) -> None:
        """The loss uses the last position only: look whether it is padding."""
        elements = self._elements
        if elements is None:
            return
        is_frames = elements.ndim == 3
        if is_frames:  # 1 where all numbers of a frame are 0
            elements = (elements if time == 1 else elements.transpose(0, 1))[:_ROWS].eq(0).all(-1)
        if elements.shape[1] != length or len(elements) < 2:
            return
        context, step = self._context, self._context.step

        def judge(rows: NDArray[np.float64]) -> None:
            values, counts = np.unique(rows[:, -1], return_counts=True)
            padding = 1.0 if is_frames else values[counts.argmax()]
            runs = final_runs(rows, padding)
            is_padding = runs.sum() == (rows == padding).sum() and len(np.unique(runs)) > 1
            share = float(np.median(runs)) / length
            if is_padding and share > _MUCH:
                of = "frames of 0" if is_frames else f"token {padding:.0f}"
                facts = {"layer": name, "padding": of, "share": f"{share:.0%} of the usual row"}
                context.log.say("last_is_padding", step, facts, [name], need=2)

        context.values.read(judge, elements[:_ROWS])

    def leaves(self) -> None:
        """A model has returned."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._input = None

    def look(self, call: LossCall) -> None:
        """A loss function has targets."""
        target, layer = call.target, self._over_rows
        if layer is None or not target.ndim or target.shape[0] != layer[1][0]:
            return
        is_one_a_row = target.ndim == 1 or (target.ndim == 2 and target.is_floating_point())
        if is_one_a_row and call.input.shape[0] == target.shape[0]:
            facts = {"layer": layer[0], "shape": layer[1]}
            self._context.log.say("rows_mixed", self._context.step, facts, [layer[0]], need=2)


def _nodes_of(states: Any) -> list[Any]:
    return [one.grad_fn for one in (states if isinstance(states, tuple) else (states,))]


def _exchanges_rows(before: torch.Tensor, after: torch.Tensor) -> bool:
    """Whether a `view` has exchanged two dimensions and left the order of the values."""
    return (
        before.ndim == 3
        and is_plain(after)
        and before.shape[0] != before.shape[1]
        and tuple(after.shape) == (before.shape[1], before.shape[0], before.shape[2])
        and before.is_contiguous()
        and after.is_contiguous()
        and before.data_ptr() == after.data_ptr()
    )


def _is_batch_first(module: nn.Module) -> bool:
    if isinstance(module, nn.TransformerEncoder):
        return all(_is_batch_first(one) for one in module.layers)
    inner = module.self_attn if isinstance(module, nn.TransformerEncoderLayer) else module
    return bool(getattr(inner, "batch_first", True))
