"""Checks of positions.

A model of tokens sees their order, and positions are added along the dimension of the positions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from smdwidgets.checks.torch.context import Context
from smdwidgets.checks.torch.graph import LossCall
from smdwidgets.checks.torch.layers import CONVOLUTIONS, DROPOUTS
from smdwidgets.checks.torch.values import is_plain

__all__ = ["PositionChecks"]

#: Passes that are looked at, rows and places that are compared, and fewest positions.
_PASSES, _ROWS, _PLACES, _POSITIONS = 24, 8, 4, 4
#: Pairs of equal tokens in a row that must have equal outputs, different tokens among them, and how near these are.
_PAIRS, _TOKENS, _EQUAL = 8, 3, 1e-4
#: Passes at which that must be so.
_NEED = 4
#: Most places beside the patches of a picture, such as that of a class.
_BESIDE = 4
#: Layers that compute in another way while their parts have hooks.
_FUSED = (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)
#: Checks that name another fault of a model whose outputs at equal tokens are equal.
_OTHERS = ("sees_future", "labels_unshifted", "labels_shifted_twice", "targets_masked", "mask_inverted")


class PositionChecks:
    """Compares outputs at equal tokens, and what a table of positions has added.

    Patches of pictures are never equal. A convolution makes their vectors, and attention gets these and what was added.

    Only passes without dropout are looked at.

    Args:
        context: what the mechanisms share.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._handles: list[Any] = []
        #: Passes that were looked at, with dropout and without.
        self._dropped = self._compared = 0
        self._tokens: torch.Tensor | None = None
        #: The last value of the pass with one vector for each token.
        self._last: torch.Tensor | None = None
        #: Ids of the parts that attend, and whether one has returned in this pass.
        self._attentions: frozenset[int] = frozenset()
        self._attended = False
        #: Vectors of the patches of pictures, and what was added to them before attention, of one pass.
        self._patches: torch.Tensor | None = None
        self._added: torch.Tensor | None = None
        self._sees_places = False
        #: By layer: sizes of the first two dimensions in a training pass, and the one that positions are added along.
        self._sizes: dict[str, tuple[int, int]] = {}
        self._along: dict[str, int] = {}
        #: Sizes of what attention of PyTorch, whose rows come first, has got in a training pass.
        self._rows_first: set[tuple[int, int]] = set()

    def enters(self, model: nn.Module, tensors: list[torch.Tensor], looks: bool) -> None:
        """A model is called with these tensors."""
        self._tokens = self._last = self._patches = self._added = None
        if not looks or not tensors or not is_plain(tensors[0]) or tensors[0].ndim < 2:
            return
        if max(self._dropped, self._compared) >= _PASSES and (model.training or self._compared >= _PASSES):
            return
        parts = list(model.modules())
        tables = [one for one in parts if _has_table(one)]
        if tables and model.training:
            of_torch = [one for one in parts if isinstance(one, nn.MultiheadAttention) and one.batch_first]
            self._handles += [one.register_forward_hook(self._attends) for one in of_torch]
        if _drops(parts):
            self._dropped += 1
            self._handles += [one.register_forward_hook(self._notes) for one in tables]
            return
        self._compared += 1
        self._handles += [one.register_forward_hook(self._adds) for one in tables]
        tokens = tensors[0]
        if self._context.log.runs("order_invisible"):
            self._watch_patches(model, parts)
        is_tokens = tokens.ndim == 2 and not tokens.is_floating_point() and tokens.shape[0] != tokens.shape[1]
        self._attentions = _attentions(model)
        if (
            is_tokens
            and self._attentions
            and tokens.shape[1] >= _POSITIONS
            and self._context.log.runs("order_invisible")
        ):
            self._tokens, self._attended = tokens, False
            # PyTorch evaluates its own layers in another way while their parts have hooks.
            fused = [] if model.training else [one for one in parts if isinstance(one, _FUSED)]
            inner = {id(part) for one in fused for part in one.modules()}
            outer = [one for one in parts if one is not model and id(one) not in inner]
            self._handles += [one.register_forward_hook(self._part) for one in outer]

    def _watch_patches(self, model: nn.Module, parts: list[nn.Module]) -> None:
        """Watch a convolution whose places do not overlap, and attention."""
        makers = [one for one in parts if isinstance(one, CONVOLUTIONS) and _cuts_patches(one)]
        attending = (*_FUSED, nn.MultiheadAttention) if model.training else ()
        kinds: tuple[type[nn.Module], ...] = (nn.TransformerEncoder, *attending)
        encoders = [one for one in parts if isinstance(one, kinds)]
        if len(makers) == 1 and encoders:
            self._sees_places = False
            self._handles.append(makers[0].register_forward_hook(self._makes))
            self._handles += [one.register_forward_pre_hook(self._gets, with_kwargs=True) for one in encoders]

    def _makes(self, module: nn.Module, inputs: Any, output: Any) -> None:
        is_usable = isinstance(output, torch.Tensor) and is_plain(output) and output.ndim > 2
        is_first = self._patches is None and is_usable and output[0, 0].numel() >= _POSITIONS
        self._patches = output.detach()[:_ROWS].flatten(2).transpose(1, 2) if is_first else None

    def _gets(self, module: nn.Module, inputs: Any, named: dict[str, Any]) -> None:
        """Attention gets vectors: compare the first ones with those of patches."""
        patches = self._patches
        if patches is None or self._added is not None or not isinstance(inputs, tuple) or not inputs:
            return
        queries = inputs[0]
        others = [*([] if isinstance(module, nn.MultiheadAttention) else inputs[1:]), *named.values()]
        if not isinstance(queries, torch.Tensor) or not is_plain(queries) or queries.ndim != 3:
            return
        first = next((one for one in module.modules() if isinstance(one, nn.MultiheadAttention)), None)
        rows = queries.detach() if getattr(first, "batch_first", False) else queries.detach().transpose(0, 1)
        width, beside = patches.shape[2], rows.shape[1] - patches.shape[1]
        is_masked = any(isinstance(one, torch.Tensor) for one in others)
        if is_masked or rows.shape[2] != width or not 0 <= beside <= _BESIDE or rows.device != patches.device:
            self._sees_places = True
            return
        self._added = rows[:_ROWS, beside:] - patches

    def _judge_patches(self, model: nn.Module, output: Any) -> None:
        """Look whether all patches have got the same vector."""
        added, patches, self._added, self._patches = self._added, self._patches, None, None
        if added is None or patches is None or self._sees_places or self._context.updates < _NEED:
            return
        # A layer of all patches, and one of their places, sees the order.
        number, width = patches.shape[1:]
        wide = {width * (number + beside) for beside in range(_BESIDE + 1)}
        inputs = [one.in_features for one in model.modules() if isinstance(one, nn.Linear)]
        if not isinstance(output, torch.Tensor) or output.ndim > 2 or any(one in wide for one in inputs):
            return
        context, step = self._context, self._context.step

        def judge(added: Any, patches: Any) -> None:
            if np.ptp(added, axis=(0, 1)).max() <= _EQUAL * np.abs(patches).max():
                what = f"The same vector is added to all {number} patches of a picture before attention"
                context.log.say("order_invisible", step, {"what": what}, need=_NEED)
            else:
                context.log.unseen("order_invisible")

        context.values.read(judge, added, patches)

    def _part(self, module: nn.Module, inputs: Any, output: Any) -> None:
        tokens = self._tokens
        if id(module) in self._attentions:
            self._attended = True
            output = output[0] if isinstance(output, tuple) and output else output
        if tokens is None or not isinstance(output, torch.Tensor) or not is_plain(output) or output.ndim != 3:
            return
        if not self._attended:
            return
        if not output.is_floating_point() or output.shape[2] < 2:
            return
        if output.shape[:2] == tokens.shape:
            self._last = output
        elif output.shape[:2] == tokens.T.shape:
            self._last = output.transpose(0, 1)

    # ------------------------------------------------------------------------------------------------ added positions

    def _notes(self, module: nn.Module, inputs: Any, output: Any) -> None:
        """Note the sizes of a training pass, whose values dropout may change."""
        if (pair := _of_table(inputs, output)) is not None and module.training:
            self._sizes[self._context.name_of_module(module)] = (pair[0].shape[0], pair[0].shape[1])

    def _attends(self, module: nn.Module, inputs: Any, output: Any) -> None:
        queries = inputs[0] if isinstance(inputs, tuple) and inputs else None
        if isinstance(queries, torch.Tensor) and queries.ndim == 3:
            self._rows_first.add((queries.shape[0], queries.shape[1]))

    def _adds(self, module: nn.Module, inputs: Any, output: Any) -> None:
        self._notes(module, inputs, output)
        pair = _of_table(inputs, output)
        name = self._context.name_of_module(module)
        if pair is None or name in self._along:
            return
        rows, columns, width = pair[0].shape
        at = [each for each in (rows, columns) if each >= _PLACES]
        table = next((each for each in _tables(module) if each.shape[-1] == width and each.numel() >= width * 2), None)
        if len(at) < 2 or table is None or table.device != pair[0].device:
            return
        places = table.detach().reshape(-1, width)[:_PLACES]
        added = (pair[1] - pair[0]).detach()[:_PLACES, :_PLACES]
        if len(places) < _PLACES:
            return

        def judge(added: Any, places: Any) -> None:
            near = 1e-4 * max(float(np.abs(places).max()), 1e-12)
            if np.ptp(places, axis=0).max() <= near:
                return  # all positions are alike
            if np.abs(added - places[:, None]).max() <= near:
                self._along[name] = 0
            elif np.abs(added - places[None]).max() <= near:
                self._along[name] = 1

        self._context.values.read(judge, added, places)

    def look(self, call: LossCall) -> None:
        """A loss function has targets, which show the number of rows, as attention may."""
        of_loss = call.target.shape[0] if call.target.ndim == 1 else self._context.batch_rows
        for name, along in self._along.items():
            sizes = self._sizes.get(name)
            if sizes is None or sizes[0] == sizes[1]:
                continue
            rows = sizes[0] if of_loss not in sizes and sizes in self._rows_first else of_loss
            if sizes[along] == rows:
                facts = {"layer": name, "dimension": along, "shape": f"({sizes[0]}, {sizes[1]}, …)", "rows": rows}
                self._context.log.say("positions_over_rows", self._context.step, facts, [name], need=2)

    # -------------------------------------------------------------------------------------------------- order of tokens

    def leaves(self, model: nn.Module, output: Any) -> None:
        """A model has returned."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._judge_patches(model, output)
        tokens, last = self._tokens, self._last
        self._tokens = self._last = None
        if tokens is None or last is None or self._context.updates < _NEED:
            return
        context, step = self._context, self._context.step
        if self._along or any(context.log.has_fired(one) for one in _OTHERS):
            return

        def judge(tokens: Any, outputs: Any) -> None:
            pairs = _pairs(tokens)
            if len(pairs) < _PAIRS or len({tokens[row, first] for row, first, _ in pairs}) < _TOKENS:
                return
            row, first, second = np.array(pairs).T
            size = np.abs(outputs).max()
            apart = np.abs(outputs[row, first] - outputs[row, second]).max()
            if apart <= _EQUAL * size and np.ptp(outputs, axis=1).max() > 100 * _EQUAL * size:
                what = f"The outputs at {len(pairs)} pairs of equal tokens are equal wherever they stand in their row"
                context.log.say("order_invisible", step, {"what": what}, need=_NEED)
            else:
                context.log.unseen("order_invisible")

        context.values.read(judge, tokens[:_ROWS], last[:_ROWS].detach())


def _cuts_patches(layer: nn.Module) -> bool:
    """Whether the places of a convolution are patches that do not overlap."""
    kernel, stride = getattr(layer, "kernel_size", ()), getattr(layer, "stride", ())
    return isinstance(kernel, tuple) and kernel == stride and all(one > 1 for one in kernel)


def _pairs(tokens: Any) -> list[tuple[int, int, int]]:
    """Return the places of equal tokens in a row.

    The run of one token that ends a row is left out.

    >>> _pairs(np.array([[5, 7, 5, 0, 0], [1, 2, 3, 4, 5]]))
    [(0, 0, 2)]
    """
    pairs = []
    for row, values in enumerate(tokens):
        inner = values[: len(values) - int(np.cumprod(values[::-1] == values[-1]).sum()) + 1]
        last: dict[float, int] = {}
        for place, token in enumerate(inner.tolist()):
            if token in last:
                pairs.append((row, last[token], place))
            last[token] = place
    return pairs


def _drops(parts: list[nn.Module]) -> bool:
    """Whether any part drops values in this pass."""
    return any(
        part.training
        and (
            (isinstance(part, DROPOUTS) and part.p > 0)
            or (isinstance(part, nn.MultiheadAttention) and part.dropout > 0)
        )
        for part in parts
    )


def _attentions(model: nn.Module) -> frozenset[int]:
    """Return the ids of the parts that attend.

    They are layers of PyTorch, and parts of a script that are named so.
    """
    of_torch = (nn.MultiheadAttention, nn.TransformerEncoder, nn.TransformerDecoder, *_FUSED)
    ids = set()
    for name, part in model.named_modules():
        words = f"{name.rpartition('.')[2]} {type(part).__name__}".lower()
        is_own = any(word in words for word in ("attention", "attn")) and next(part.children(), None) is not None
        if isinstance(part, of_torch) or (is_own and part is not model):
            ids.add(id(part))
    return frozenset(ids)


def _tables(module: nn.Module) -> list[torch.Tensor]:
    """Return the tensors of a module itself that may be a table of positions."""
    own = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
    return [one for one in own if one.ndim in (2, 3) and is_plain(one) and one.is_floating_point()]


def _has_table(module: nn.Module) -> bool:
    """Whether a module may add a table of positions to its input.

    It has no parts but dropout, and is no layer of PyTorch.
    """
    is_own = not type(module).__module__.startswith("torch.nn.")
    return is_own and bool(_tables(module)) and all(isinstance(one, DROPOUTS) for one in module.children())


def _of_table(inputs: Any, output: Any) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Return input and output of a module that keeps the shape of a sequence."""
    first = inputs[0] if isinstance(inputs, tuple) and inputs else None
    if not isinstance(first, torch.Tensor) or not isinstance(output, torch.Tensor):
        return None
    is_pair = first.ndim == 3 and first.shape == output.shape and first.is_floating_point()
    return (first, output) if is_pair and is_plain(first) and is_plain(output) else None
