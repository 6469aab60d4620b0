"""Reset connections, threads and locks in a forked process.

A fork copies open connections, which two processes must not share, but does not copy threads.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Resettable(Protocol):
    """An object with connections, threads or locks."""

    def reset_after_fork(self) -> None:
        """Drop those of the parent process, without notifying the server."""


_REGISTERED: weakref.WeakSet[Resettable] = weakref.WeakSet()


def reset_in_forks(instance: Resettable) -> None:
    """Reset the object in every process that is forked from this one."""
    _REGISTERED.add(instance)


def _reset_all() -> None:
    for instance in list(_REGISTERED):
        instance.reset_after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_all)
