"""Find what computed a loss, and its constant divisor, before its graph is freed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import torch
from torch.utils.weak import WeakIdKeyDictionary

__all__ = ["NamedNumber", "RootLosses", "losses_of", "origin_of", "parts_of"]

#: Operations that change the unit of a loss, not what it measures.
_RESCALING = frozenset({"DivBackward0", "MulBackward0"})
_CONVERSIONS = frozenset(
    {"ToCopyBackward0", "ViewBackward0", "UnsafeViewBackward0", "SqueezeBackward0", "CloneBackward0"}
)
_MOST_OPERATIONS = 16
#: Operations that make one loss of several.
_SUMS = frozenset({"AddBackward0", "SubBackward0", "SumBackward0", "MeanBackward0", "StackBackward0", "CatBackward0"})
_MOST_TERMS = 64

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
        node = next(iter(_terms_of(node)), None)
    return "", divisor


class NamedNumber(NamedTuple):
    """A number that a model has returned by key."""

    name: str
    value: torch.Tensor
    #: The operation that computed it. The node itself would keep the graph.
    origin: tuple[str, int]

    @classmethod
    def of(cls, name: str, value: torch.Tensor) -> NamedNumber:
        """Return the number in a tensor that has a graph."""
        return cls(name, value.detach(), _identity(value.grad_fn))


def parts_of(loss: torch.Tensor, named: Sequence[NamedNumber]) -> Iterator[NamedNumber]:
    """Yield the numbers that are terms of a loss, with factors or without.

    A loss of one term has no parts.

    >>> box, kind = (torch.ones((), requires_grad=True).exp() for _ in range(2))
    >>> named = [NamedNumber.of("box", box), NamedNumber.of("kind", kind)]
    >>> [part.name for part in parts_of(box + 2 * kind, named)]
    ['box', 'kind']
    >>> list(parts_of(box / 4, named))
    []
    """
    node = loss.grad_fn if named else None
    for _ in range(_MOST_OPERATIONS):  # the whole loss may be named, too
        if node is None or node.name() not in _RESCALING | _CONVERSIONS:
            break
        node = next(iter(_terms_of(node)), None)
    if node is None or node.name() not in _SUMS:
        return
    origins = {one.origin for one in named}
    pending, found, terms = _terms_of(node), set[tuple[str, int]](), 0
    while pending and terms < _MOST_TERMS:
        node = pending.pop()
        origin = _identity(node)
        if origin not in origins and node.name() in _SUMS | _RESCALING | _CONVERSIONS:
            pending += _terms_of(node)
            continue
        terms += 1
        found.add(origin)
    if terms > 1:
        yield from (one for one in named if one.origin in found)


def _identity(node: Any) -> tuple[str, int]:
    """Return what distinguishes an operation from all others of this thread."""
    return node.name(), node._sequence_nr()


def _terms_of(node: Any) -> list[Any]:
    return [each for each, _ in node.next_functions if each is not None]
