"""Trainings of this process whose incidents can be executed again in it.

Only the last incident keeps its models alive.
"""

from __future__ import annotations

import os
import threading
from typing import Any

__all__ = ["find_live", "set_live"]

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
