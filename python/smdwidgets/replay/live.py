"""Trainings of this process whose incidents can be executed again in it.

Only the last incident keeps its models alive.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Container
from types import CodeType, FrameType
from typing import Any

__all__ = ["find_live", "is_executed", "set_live"]

_lock = threading.Lock()
_last: tuple[str, Any] | None = None


def set_live(folder: str | os.PathLike[str], training: Any) -> None:
    """Note the training of an incident by the folder of its recording.

    It replaces the one before.
    """
    global _last
    with _lock:
        _last = os.path.realpath(folder), training


def find_live(folder: str | os.PathLike[str]) -> Any:
    """Return the training of an incident of this process, or None."""
    with _lock:
        return _last[1] if _last is not None and _last[0] == os.path.realpath(folder) else None


def is_executed(codes: Container[CodeType]) -> bool:
    """Whether another thread executes one of these functions or modules."""
    this = threading.get_ident()
    for thread, innermost in sys._current_frames().items():
        frame: FrameType | None = innermost if thread != this else None
        while frame is not None:
            if frame.f_code in codes:
                return True
            frame = frame.f_back
    return False
