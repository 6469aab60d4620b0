"""Wait for a condition with a timeout, exponential backoff and log messages."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from smdwidgets.exceptions import WaitTimeout

logger = logging.getLogger("smdwidgets")

#: First and longest pause in seconds, and the growth factor of the pauses.
FIRST, LONGEST, GROWTH = 0.05, 2.0, 1.5
#: Seconds before the first log message. Each further message follows after twice the time waited so far.
LOG_AFTER = 5.0


def wait_until(
    done: Callable[[], bool],
    what: Callable[[], str],
    timeout: float | None = None,
    *,
    hint: str = "",
    log_after: float | None = None,
) -> None:
    """Poll ``done()`` until it is true, at intervals that grow from 50 ms to 2 s.

    Args:
        done: the condition.
        what: returns a description of the condition for the log and for :class:`WaitTimeout`.
        timeout: seconds after which :class:`WaitTimeout` is raised; None: no timeout.
        hint: advice appended to the log message.
        log_after: seconds before the first log message (default 5).

    >>> wait_until(lambda: True, lambda: "nothing")
    """
    if done():
        return
    start = time.monotonic()
    log_at = start + (LOG_AFTER if log_after is None else log_after)
    pause = FIRST
    while True:
        now = time.monotonic()
        # Before the timeout: a process that slept too long would otherwise end without the hint.
        if now >= log_at:
            limit = "" if timeout is None else f", timeout in {max(0.0, timeout - (now - start)):.0f} s"
            logger.warning(
                "Still waiting for %s (%.0f s elapsed%s).%s", what(), now - start, limit, hint and f" {hint}"
            )
            log_at = now + max(now - start, LOG_AFTER)
        if timeout is not None and now - start >= timeout:
            raise WaitTimeout(what(), timeout)
        left = pause if timeout is None else min(pause, start + timeout - now)
        time.sleep(left)
        pause = min(LONGEST, pause * GROWTH)
        if done():
            return
