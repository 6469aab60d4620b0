"""The random states of the workers of a data loader.

Imported in the processes of the workers, so it imports the standard library only.
"""

from __future__ import annotations

import random
import sys
import zlib
from collections.abc import Callable
from typing import Any

__all__ = ["StateDigests"]


class StateDigests:
    """A `worker_init_fn` that also stores digests of the random states.

    It calls that of the script before.

    Args:
        original: the function of the script, or None.
        states: an array that the processes share, with two numbers per worker.
    """

    def __init__(self, original: Callable[[int], Any] | None, states: Any) -> None:
        self._original = original
        self._states = states

    def __call__(self, worker: int) -> Any:
        """Initialize a worker."""
        result = None if self._original is None else self._original(worker)
        try:
            numpy = sys.modules.get("numpy")
            state = b"" if numpy is None else numpy.random.get_state()[1].tobytes()
            # Without NumPy, each worker has another number.
            self._states[2 * worker] = zlib.crc32(state) + 1 if state else worker + 1
            self._states[2 * worker + 1] = zlib.crc32(repr(random.getstate()).encode()) + 1
        except Exception:  # the worker goes on
            return result
        return result
