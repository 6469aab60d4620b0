"""Find what computed a loss, and its constant divisor, before its graph is freed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import torch
from torch.utils.weak import WeakIdKeyDictionary

__all__ = ["RootLosses", "losses_of", "origin_of"]

#: Operations that change the unit of a loss, not what it measures.
_RESCALING = frozenset({"DivBackward0", "MulBackward0"})
_CONVERSIONS = frozenset(
    {"ToCopyBackward0", "ViewBackward0", "UnsafeViewBackward0", "SqueezeBackward0", "CloneBackward0"}
)
_MOST_OPERATIONS = 16

#: By what ``backward()`` is called on: the loss without the scale of a GradScaler, what computed it, and its divisor.
RootLosses: TypeAlias = WeakIdKeyDictionary


def losses_of(roots: Any, scaled: torch.Tensor | None = None, loss: torch.Tensor | None = None) -> RootLosses:
    """Return the losses that ``backward()`` is called on.

    Args:
        roots: the argument of ``backward()``, or the tensor that has it.
        scaled: what a GradScaler returned.
        loss: what it multiplied.

    >>> losses = losses_of(root := torch.ones((), requires_grad=True).exp() / 4)
    >>> losses[root][1:]
    ('ExpBackward0', 4.0)
    """
    by_root = RootLosses()
    roots = [roots] if isinstance(roots, torch.Tensor) else roots
    if not isinstance(roots, Iterable) or isinstance(roots, Mapping):
        return by_root
    for root in roots:
        if isinstance(root, torch.Tensor) and root.numel() == 1:
            value = loss if root is scaled and loss is not None else root
            by_root[root] = value.detach(), *origin_of(value)
    return by_root


def origin_of(loss: torch.Tensor) -> tuple[str, float]:
    """Return what computed a loss, and the constant that it was divided by."""
    node, divisor = loss.grad_fn, 1.0
    for _ in range(_MOST_OPERATIONS):
        name = "" if node is None else node.name()
        if name not in _RESCALING and name not in _CONVERSIONS:
            return name, divisor
        if name in _RESCALING:
            try:
                constant = getattr(node, "_saved_other", None)
            except RuntimeError:  # freed by a backward pass
                return name, divisor
            if not isinstance(constant, torch.Tensor) or constant.numel() != 1 or not constant.is_cpu:
                return name, divisor
            number = float(constant)
            if not number:
                return name, divisor
            divisor = float(f"{divisor * number if name == 'DivBackward0' else divisor / number:.6g}")
        node = next((each for each, _ in node.next_functions if each is not None), None)
    return "", divisor
