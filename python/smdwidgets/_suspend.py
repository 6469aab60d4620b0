"""Whether recorded steps are executed again in this process.

No hook records meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["hooks_suspended", "suspended"]

_depth = 0


def suspended() -> bool:
    """Whether hooks are suspended.

    >>> with hooks_suspended():
    ...     suspended()
    True
    >>> suspended()
    False
    """
    return _depth > 0


@contextmanager
def hooks_suspended() -> Iterator[None]:
    """Suspend all hooks of this process."""
    global _depth
    _depth += 1
    try:
        yield
    finally:
        _depth -= 1
