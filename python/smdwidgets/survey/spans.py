"""Which records of a survey have all earlier and later records near them.

Records are read in spans of steps, in any order. Two spans of the same tensors join if one begins at the step where the
other ends. The surprise of a record compares it with the records before it, so that it is final when these were read.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Span(NamedTuple):
    """Steps of some tensors that were read together.

    Attributes:
        tensors: identifies the tensors.
        before: the saved step before; None if the tensors begin with this span.
        last: the last step.
    """

    tensors: Hashable
    before: int | None
    last: int


class Spans:
    """Spans, joined where they adjoin.

    >>> spans = Spans()
    >>> [spans.add(Span("w", before, last)) for before, last in ((None, 9), (19, 29), (9, 19))]
    [0, 1, 2]
    >>> whole, begins = spans.joined()
    >>> whole.tolist(), begins.tolist()
    ([0, 0, 0], [True, True, True])
    """

    def __init__(self) -> None:
        self._first: list[int] = []
        self._begins: list[bool] = []
        self._by_before: dict[tuple[Hashable, int], int] = {}
        self._by_last: dict[tuple[Hashable, int], int] = {}

    def add(self, span: Span) -> int:
        """Return the number of a span."""
        number = len(self._first)
        self._first.append(number)
        self._begins.append(span.before is None)
        after = self._by_before.get((span.tensors, span.last))
        if after is not None:
            self._first[after] = number
        if span.before is not None:
            earlier = self._by_last.get((span.tensors, span.before))
            if earlier is not None:
                self._first[number] = earlier
            self._by_before[span.tensors, span.before] = number
        self._by_last[span.tensors, span.last] = number
        return number

    def joined(self) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return the first span that each is joined to, and if the tensors begin there."""
        first = np.array(self._first, np.int64)
        while len(first) and (first != first[first]).any():
            first = first[first]
        return first, np.array(self._begins, bool)[first]
