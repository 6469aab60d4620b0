"""Types of arrays, and arrays that grow."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Steps = NDArray[np.int64]

T = TypeVar("T", bound=np.generic)


class Growing(Generic[T]):
    """An array that grows at its end. Views of it stay valid.

    >>> array = Growing(np.array([1.0, 2.0]))
    >>> array.extend(np.array([3.0]))
    >>> array.view.tolist()
    [1.0, 2.0, 3.0]
    """

    def __init__(self, first: NDArray[T]) -> None:
        self._space = first
        #: The content so far.
        self.view = first

    def extend(self, more: NDArray[T]) -> None:
        """Append values, in constant time per value in the long run."""
        known = len(self.view)
        length = known + len(more)
        if length > len(self._space):
            space: NDArray[Any] = np.empty(max(16, length + length // 4), dtype=self._space.dtype)
            space[:known] = self.view
            self._space = space
        self._space[known:length] = more
        self.view = self._space[:length]
