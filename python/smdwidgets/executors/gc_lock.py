"""A cure for a deadlock of Python before 3.11.8 and 3.12.1, in workers of Dask.

Dask's profiler calls `sys._current_frames`, which holds a lock of the interpreter. If the garbage collector runs in it,
it calls back Dask, which can give up the GIL; a thread of the core that detaches from Python then waits for the lock
and keeps the GIL. Later versions of Python do not collect garbage in this call.
"""

from __future__ import annotations

import functools
import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Final

#: Whether this version of Python has the fault.
FAULTY: Final = sys.version_info < (3, 11, 8) or sys.version_info[:3] == (3, 12, 0)


def without_collection(function: Callable[[], dict[int, FrameType]]) -> Callable[[], dict[int, FrameType]]:
    """Return a function during which no garbage is collected.

    >>> without_collection(gc.isenabled)(), gc.isenabled()
    (False, True)
    """

    @functools.wraps(function)
    def wrapped() -> dict[int, FrameType]:
        enabled = gc.isenabled()
        gc.disable()
        try:
            return function()
        finally:
            if enabled:
                gc.enable()

    return wrapped


@functools.cache
def repair() -> None:
    """Repair this process, once."""
    if FAULTY:
        sys._current_frames = without_collection(sys._current_frames)
