"""Values that are not finite, where they should be.

A mask of an attention has infinities at every step. Therefore the kinds of values that a tensor has from its first
value on are no fault of it, if they are kinds that such a tensor may have. Losses, gradients and weights may have none.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["NotFinite", "not_finite"]

Flags = NDArray[np.bool_]


class NotFinite:
    """Judges one tensor, value by value.

    Args:
        tolerated: the kinds, such as NaN and infinity, that the tensor may have from its first value on.

    >>> mask = NotFinite(tolerated=(False, True))
    >>> [mask.push(present) for present in [(False, True), (False, False), (False, True), (True, True)]]
    [False, False, False, True]
    """

    def __init__(self, tolerated: Sequence[bool]) -> None:
        self._tolerated = tolerated
        self._mask: tuple[bool, ...] | None = None

    def push(self, present: Sequence[bool]) -> bool:
        """Add which kinds a value has; return whether one of them is a fault."""
        if self._mask is None:
            self._mask = tuple(map(bool.__and__, map(bool, present), self._tolerated))
        return self.is_fault(present)

    def is_fault(self, present: Sequence[bool]) -> bool:
        """Return whether a value with these kinds is a fault, without adding it."""
        return any(
            here and not masked for here, masked in zip(present, self._mask or (False,) * len(present), strict=True)
        )


def not_finite(present: Flags, tolerated: Sequence[bool]) -> Flags:
    """Return which values of a tensor are a fault.

    Args:
        present: the kinds that each value has: (values, kinds).
        tolerated: the kinds that the tensor may have from its first value on.

    >>> not_finite(np.array([[False, True], [True, True]]), tolerated=(False, True)).tolist()
    [False, True]
    """
    mask = present[:1].any(axis=0) & np.asarray(tolerated, bool)
    faults: Flags = np.any(present & ~mask, axis=1)
    return faults
