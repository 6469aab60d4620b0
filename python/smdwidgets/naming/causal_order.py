"""The order in which a wrong value spreads through the tensors of a step.

It begins with the parameters that the step uses, goes through inputs and outputs of modules in the order of the calls,
and then through losses, gradients and what the optimizer computes. A backward pass goes from the last layer to the
first.
"""

from __future__ import annotations

from collections.abc import Sequence

from smdwidgets.naming.tensors import Kind

__all__ = ["Place", "causal_places"]

#: Stage of a step, and position in the stage. A smaller place is earlier.
Place = tuple[int, int]

_STAGES = {
    Kind.LOSS: 2,
    Kind.GRADIENT: 3,
    Kind.OPTIMIZER: 4,
    Kind.SCALAR: 4,
}
_USED_PARAMETERS, _FORWARD, _UPDATED_PARAMETERS = 0, 1, 5


def causal_places(kinds: Sequence[Kind]) -> list[Place]:
    """Return the place of each tensor of a step.

    Args:
        kinds: kinds of the tensors, in the order in which they were captured. Parameters that come before all others
            are those that the step uses, others those that it leaves.

    >>> causal_places([Kind.WEIGHT, Kind.OUTPUT, Kind.GRADIENT, Kind.GRADIENT, Kind.LOSS])
    [(0, 0), (1, 1), (3, -2), (3, -3), (2, 4)]
    """
    first = next((row for row, kind in enumerate(kinds) if not kind.is_parameter), len(kinds))
    return [_place(kind, row, first) for row, kind in enumerate(kinds)]


def _place(kind: Kind, row: int, first: int) -> Place:
    if kind.is_parameter:
        return (_USED_PARAMETERS if row < first else _UPDATED_PARAMETERS), row
    return _STAGES.get(kind, _FORWARD), -row if kind is Kind.GRADIENT else row
