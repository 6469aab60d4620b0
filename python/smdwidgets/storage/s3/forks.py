"""A process that was forked begins anew: connections that two processes speak on give each the other's answers, and threads stay behind."""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Renewable(Protocol):
    """What holds connections, threads or locks."""

    def begin_anew(self) -> None:
        """Let go of those of the process that this one was forked from, without a word to the other side."""


_HELD: weakref.WeakSet[Renewable] = weakref.WeakSet()


def anew_in_a_fork(held: Renewable) -> None:
    """Have it begin anew in every process that will be forked from this one."""
    _HELD.add(held)


def _renew() -> None:
    for held in list(_HELD):
        held.begin_anew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
