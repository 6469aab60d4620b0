"""How much memory a hook takes for its copies of tensors."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["LARGEST_RECORDER", "Memory"]

#: Copies take this share of what the process has when the hook is created, and may always take so many bytes.
_SHARE, _ALWAYS = 0.2, 256 << 20
#: Most bytes of the last steps.
LARGEST_RECORDER: Final = 512 << 20
#: Bytes that may wait to be written otherwise, and most of a share.
_MOST_QUEUED = 1 << 30


class Memory(NamedTuple):
    """Bytes that each part of a hook may take.

    Attributes:
        recorder: of the last steps.
        queue: of what waits to be written.
        previous: of whole parameters that are kept to measure their change.

    >>> Memory.of(recorder=None, queue=None, is_bounded=True).queue >= 40 << 20
    True
    >>> Memory.of(recorder=0, queue=1 << 20, is_bounded=True)[:2]
    (0, 1048576)
    """

    recorder: int
    queue: int
    previous: int

    @classmethod
    def of(cls, recorder: int | None, queue: int | None, is_bounded: bool) -> Memory:
        """Return the shares; None: by the memory of the process.

        Args:
            recorder: bytes of the last steps.
            queue: bytes that may wait to be written.
            is_bounded: whether what waits may take a share only, by default.
        """
        total = max(_ALWAYS, int(_SHARE * _resident()))
        if recorder is None:
            recorder = min(total // 2, LARGEST_RECORDER)
        if queue is None:
            queue = min(total // 4, _MOST_QUEUED) if is_bounded else _MOST_QUEUED
        return cls(recorder, queue, total // 8)


def _resident() -> int:
    """Return the memory of this process in bytes, or 0 where that is unknown."""
    try:
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):  # not on Linux
        pass
    try:
        import resource  # not on Windows

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak << 10
    except (ImportError, OSError):
        return 0
