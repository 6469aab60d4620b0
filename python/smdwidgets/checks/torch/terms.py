"""Checks of terms of a loss that train nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch

from smdwidgets.checks.torch.context import Context
from smdwidgets.checks.torch.graph import Value, kind_of, loss_of, nodes_of, saved, values_before
from smdwidgets.checks.torch.sums import added, terms_of
from smdwidgets.checks.torch.values import is_plain

__all__ = ["TermChecks"]

#: Losses that show a fault, terms of a loss that are computed, the smallest share of the loss that is a term, and the
#: largest error of the rest, in units of the precision of the loss.
_NEED, _MOST_TERMS, _SMALLEST, _ERROR = 3, 8, 1e-3, 128
#: Elements of the largest input that is kept until the next loss.
_LARGEST = 1 << 20
#: Nodes that give another number than the one before.
_CHANGING = frozenset({"Clamp", "ClampMin", "ClampMax"})
#: Nodes that give the size of a difference.
_OF_DISTANCES = frozenset({"Pow", "Abs", "LinalgVectorNorm", "Norm"})


class TermChecks:
    """Looks for terms of a loss that the weights do not learn from.

    A gradient penalty needs the gradient of the output with regard to an input. With ``create_graph=True`` the loss
    depends on that input. Without, the gradient is a constant, and the penalty a term without a gradient.

    Where all other terms are loss functions, what they give is computed a second time from what their nodes have saved.
    The rest of the loss is the sum of the terms without a gradient. A number that a script adds at each step is the
    same one.

    A term that holds weights near earlier ones is 0 before the first update, and not after it.

    Args:
        context: what the mechanisms share.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        #: Inputs since the last backward pass whose gradient the script may ask for.
        self._asked: list[torch.Tensor] = []
        #: Sums of the terms without a gradient, each of the first loss of an update, with the number of the update.
        self._rests: list[tuple[int, float]] = []

    def enters(self, tensors: Sequence[torch.Tensor], gradients: bool) -> None:
        """A model is called."""
        if gradients and self._context.due and len(self._asked) < _MOST_TERMS:
            asked = [one for one in tensors if one.is_leaf and one.requires_grad and one.grad is None]
            self._asked += [one for one in asked if one.numel() <= _LARGEST]

    def backward_begins(self, root: torch.Tensor) -> None:
        """Look at a loss, before its backward pass."""
        asked, self._asked = self._asked, []
        if not self._context.due:
            return
        terms = terms_of((root.grad_fn, 0))
        parts = added(terms)
        if self._context.updates and self._context.log.runs("anchor_moves"):
            self._look_at_anchors(parts)
        held = {id(one) for _, one in self._context.parameters()} | self._context.held()
        inputs = [one for one in asked if one.grad is None and id(one) not in held]
        if inputs and root.numel() == 1 and self._context.log.runs("penalty_detached"):
            self._look_at_inputs(inputs, parts, held)
        if root.numel() != 1 or all(term is not None for term, _ in terms):
            return
        if inputs and self._context.log.runs("penalty_detached"):
            leaves = {id(getattr(node, "variable", None)) for node in nodes_of(root.grad_fn)}
            if not any(id(one) in leaves for one in inputs):
                facts = {"shape": tuple(inputs[0].shape)}
                self._context.log.say("penalty_detached", self._context.step, facts, need=_NEED)
                return
        if self._context.log.runs("term_detached"):
            self._compute_rest(root, parts)

    def _look_at_inputs(self, inputs: list[torch.Tensor], parts: Mapping[Value, float], held: set[int]) -> None:
        """Look whether terms depend on inputs of the model, and not on its weights.

        A derivative by an input that is computed without its graph is a constant, and what it is compared with is
        computed of the input.
        """
        places = {id(one) for one in inputs}
        leaves = [{id(getattr(node, "variable", None)) for node in nodes_of(term)} for term, _ in parts]
        of_inputs = [one for one in leaves if one & places]
        if len(leaves) > len(of_inputs) > 0 and not any(one & held for one in of_inputs):
            facts = {"shape": tuple(inputs[0].shape)}
            self._context.log.say("penalty_detached", self._context.step, facts, need=_NEED)

    def _look_at_anchors(self, parts: Mapping[Value, float]) -> None:
        """Look whether weights are compared with themselves."""
        log, step = self._context.log, self._context.step
        pairs = [pair for node, _ in parts if (pair := _distance(node)) is not None]
        names = [self._context.name_of(weight) for weight, _ in pairs]
        if not pairs or len({one.device for _, one in pairs}) > 1:
            return

        def judge(distances: Any) -> None:
            if distances.any():
                log.unseen("anchor_moves")
            else:
                log.say("anchor_moves", step, {"count": len(names), "tensor": names[0]}, names, need=_NEED)

        self._context.values.read(judge, torch.stack([one.detach().abs().max().float() for _, one in pairs]))

    def _compute_rest(self, root: torch.Tensor, parts: Mapping[Value, float]) -> None:
        """Compute what the loss has besides its terms with a gradient."""
        if not 0 < len(parts) <= _MOST_TERMS or not is_plain(root) or not root.is_floating_point():
            return
        if any(kind_of(node) in _CHANGING for node in _between(root.grad_fn, {node for node, _ in parts})):
            return
        learned = root.detach().new_zeros((), dtype=torch.float64)
        for (node, _), factor in parts.items():
            loss = loss_of(node)
            if loss is None:
                return
            learned = learned + factor * loss.double()
        update, error = self._context.updates, _ERROR * torch.finfo(root.dtype).eps

        def judge(loss: Any, learned: Any) -> None:
            self._judge(update, float(loss), float(learned), error * abs(float(loss)))

        self._context.values.read(judge, root.detach(), learned)

    def _judge(self, update: int, loss: float, learned: float, error: float) -> None:
        rest = loss - learned
        if not abs(rest) > _SMALLEST * abs(loss) + error:  # the terms are 0, or not finite
            self._rests.clear()
        elif not self._rests or self._rests[-1][0] != update:
            self._rests.append((update, rest))
            rests = [one for _, one in self._rests[-_NEED:]]
            if len(rests) == _NEED and all(abs(a - b) > error for a, b in pairwise(rests)):
                facts = {"rest": rest, "loss": loss}
                self._context.log.say("term_detached", self._context.step, facts, ["loss"])


def _distance(node: Any) -> tuple[Any, torch.Tensor] | None:
    """Return weights that a node compares with other values, and their differences."""
    if kind_of(node) not in _OF_DISTANCES or not (before := values_before(node)):
        return None
    difference, inner = saved(node, "_saved_self"), before[0][0]
    if kind_of(inner) != "Sub" or not isinstance(difference, torch.Tensor) or not difference.numel():
        return None
    weights = [getattr(one, "variable", None) for one, _ in values_before(inner)]
    is_of_weights = bool(weights) and all(isinstance(one, torch.nn.Parameter) for one in weights)
    return (weights[0], difference) if is_of_weights and is_plain(difference) else None


def _between(root: Any, ends: set[Any]) -> list[Any]:
    """Return the nodes from a root up to others."""
    pending, nodes = [root], list[Any]()
    while pending:
        node = pending.pop()
        if node is not None and node not in ends:
            nodes.append(node)
            pending += [before for before, _ in node.next_functions]
    return nodes
