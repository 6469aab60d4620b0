"""Waiting that ends, can be interrupted, and says what it waits for."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from smdwidgets.exceptions import WaitTimeout

logger = logging.getLogger("smdwidgets")

#: The first pause, the longest pause, and by how much each is longer than the one before, in seconds.
FIRST, LONGEST, GROWTH = 0.05, 2.0, 1.5
#: After this many seconds a person is told, and again after each time as much as was waited so far.
TELL_AFTER = 5.0


def wait_until(
    done: Callable[[], bool],
    what: Callable[[], str],
    timeout: float | None = None,
    *,
    hint: str = "",
    tell_after: float | None = None,
) -> None:
    """Return when ``done()`` is true; asked from every 50 ms to every 2 s, the longer it takes the more seldom.

    ``what`` says what is waited for, in the log after 5 s and in the :class:`WaitTimeout` that ends it after ``timeout``
    seconds. Ctrl-C works at any time. ``hint`` says in the log what a person can do, ``tell_after`` how soon.

    >>> wait_until(lambda: True, lambda: "nothing")
    """
    if done():
        return
    start = time.monotonic()
    tell = start + (TELL_AFTER if tell_after is None else tell_after)
    pause = FIRST
    while True:
        now = time.monotonic()
        if timeout is not None and now - start >= timeout:
            raise WaitTimeout(what(), timeout)
        if now >= tell:
            limit = "" if timeout is None else f", for {timeout - (now - start):.0f} s more at most"
            logger.warning("Still waiting for %s (%.0f s so far%s).%s", what(), now - start, limit, hint and f" {hint}")
            tell = now + max(now - start, TELL_AFTER)
        left = pause if timeout is None else min(pause, start + timeout - now)
        time.sleep(left)
        pause = min(LONGEST, pause * GROWTH)
        if done():
            return
