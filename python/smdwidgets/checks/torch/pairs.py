"""Check of pairs that a loss pulls together or pushes apart."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from smdwidgets.checks.torch.context import Context
from smdwidgets.checks.torch.graph import constant_factors, is_readable
from smdwidgets.checks.torch.values import is_plain

__all__ = ["PairChecks"]

#: Updates at which pairs are looked at: later, a loss leaves out those that are far enough apart. Then, rows of each
#: kind, updates that show them, and the share in which those that are pulled together differ more.
_UPDATES, _ROWS, _LOOKS, _SHARE = 8, 64, 3, 0.8
#: Fewest rows of a batch, most outputs that a loss compares, and most elements of an input.
_FEWEST, _SIDES, _ELEMENTS = 8, 3, 4_000_000
#: Cosine of a gradient and a difference that have one direction, and the share of rows that have a gradient.
_ALONG, _ACTIVE = 0.99, 0.75


class _Side(NamedTuple):
    """What a model got, and what it returned."""

    input: torch.Tensor
    output: torch.Tensor


class PairChecks:
    """Compares pairs that a loss pulls together with those that it pushes apart.

    Their inputs show which ones are more alike.
    The gradients by two outputs that are compared by their distance have the direction of their difference: one sign
    pulls them together, the other pushes them apart. A contrastive loss chooses by a label, a triplet loss pulls one
    pair of each row together and pushes another apart.

    Args:
        context: what the mechanisms share.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._inputs: list[torch.Tensor] = []
        self._sides: list[_Side] = []
        #: Distances of the inputs that are pulled together, and pushed apart, and updates that show them.
        self._together: list[Any] = []
        self._apart: list[Any] = []
        self._looks = 0

    def enters(self, tensors: list[torch.Tensor], looks: bool) -> None:
        """A model is called with these tensors."""
        is_early = self._context.updates < _UPDATES and self._context.log.runs("pairs_reversed")
        self._inputs = tensors if looks and is_early else []

    def leaves(self, output: Any, is_hooked: Callable[[], bool]) -> None:
        """A model has returned."""
        inputs, self._inputs = self._inputs, []
        outputs = list(output) if isinstance(output, tuple | list) else [output]
        if not inputs or len(inputs) != len(outputs) or len(self._sides) > _SIDES or is_hooked():
            return
        self._sides += [_Side(*each) for each in zip(inputs, outputs, strict=True)]

    def update_ends(self) -> None:
        """An update has ended: passes before it belong to no later loss."""
        self._sides.clear()

    def backward_begins(self, root: torch.Tensor) -> None:
        """Look at a loss, before its backward pass."""
        sides, self._sides = self._sides, []
        if not 2 <= len(sides) <= _SIDES or not _are_alike(sides) or not is_readable(root):
            return
        outputs = [one.output for one in sides]
        with torch.enable_grad():
            gradients = torch.autograd.grad(root, outputs, retain_graph=True, allow_unused=True)
        if any(one is None for one in gradients):
            return
        values = [
            value
            for first, second in itertools.combinations(range(len(sides)), 2)
            for value in (
                _cosine(gradients[first], outputs[first], outputs[second]),
                _cosine(gradients[second], outputs[second], outputs[first]),
                (sides[first].input.detach().float() - sides[second].input.detach().float()).flatten(1).norm(dim=1),
            )
        ]
        if len(sides) > 2:
            self._context.values.read(self._judge_triplets, *values)
            return
        labels = [one for one in constant_factors(root, len(outputs[0])) if is_plain(one)]
        if labels and all(one.device == outputs[0].device for one in labels):
            self._context.values.read(self._judge_labelled, *values, *(one.reshape(-1) for one in labels))

    def _judge_labelled(self, first: Any, second: Any, distance: Any, *labels: Any) -> None:
        """Compare pairs of which a label says whether they belong together."""
        way = _way(first, second)
        if way is None or not (way < 0).any():
            return
        together = way > 0
        if any(np.array_equal(one == 1, each) for one in labels for each in (together, ~together)):
            self._compare(distance[together], distance[~together])

    def _judge_triplets(self, *values: Any) -> None:
        """Compare two pairs of each row."""
        ways = [
            (way, values[at + 2]) for at in range(0, len(values), 3) if (way := _way(*values[at : at + 2])) is not None
        ]
        if len(ways) != 2:
            return
        for (pulls, pulled), (pushes, pushed) in (ways, ways[::-1]):
            active = (pulls != 0) & (pushes != 0)
            if active.mean() >= _ACTIVE and (pulls[active] > 0).all() and (pushes[active] < 0).all():
                self._compare(pulled, pushed)

    def _compare(self, together: Any, apart: Any) -> None:
        self._together.append(together)
        self._apart.append(apart)
        self._looks += 1
        pulled, pushed = np.concatenate(self._together), np.concatenate(self._apart)
        if self._looks < _LOOKS or min(len(pulled), len(pushed)) < _ROWS:
            return
        share = float((pulled[:, None] > pushed).mean())
        if share >= _SHARE:
            facts = {"share": f"{share:.0%}", "rows": len(pulled)}
            self._context.log.say("pairs_reversed", self._context.step, facts, ["loss"])


def _are_alike(sides: list[_Side]) -> bool:
    """Whether all sides are rows of numbers of the same shapes."""
    first = sides[0]
    return all(
        is_plain(one.input)
        and is_plain(one.output)
        and one.input.is_floating_point()
        and one.output.requires_grad
        and one.output.ndim == 2
        and one.output.shape[1] > 1
        and one.input.ndim > 1
        and one.input.shape == first.input.shape
        and one.output.shape == first.output.shape
        and one.input.device == one.output.device == first.output.device
        and len(one.input) == len(one.output) >= _FEWEST
        and one.input.numel() <= _ELEMENTS
        for one in sides
    )


def _cosine(gradient: torch.Tensor, output: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Return the cosine of a gradient and the difference from another output.

    It is 1 where an update makes the difference smaller, and not a number where there is no gradient.
    """
    gradient, apart = gradient.detach().float(), (output - other).detach().float()
    return (gradient * apart).sum(1) / (gradient.norm(dim=1) * apart.norm(dim=1))


def _way(first: Any, second: Any) -> Any:
    """Return 1 for rows that are pulled together, and -1 for those pushed apart.

    It is 0 for others.
    None: the gradient of neither side has the direction of the difference.

    >>> _way(np.array([1.0, -1.0, np.nan]), np.array([0.2, -0.1, np.nan])).tolist()
    [1.0, -1.0, 0.0]
    """
    for cosine in (first, second):
        active = np.isfinite(cosine)
        if active.any() and (np.abs(cosine[active]) > _ALONG).all():
            return np.sign(np.where(active, cosine, 0.0))
    return None
