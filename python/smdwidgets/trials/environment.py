"""Environment variables that smdebug's readers support."""

from __future__ import annotations

import os
from typing import Final

from smdwidgets.exceptions import SMDebugValueError

INCOMPLETE_STEP_WAIT_WINDOW_KEY: Final = "SMDEBUG_INCOMPLETE_STEP_WAIT_WINDOW"
INCOMPLETE_STEP_WAIT_WINDOW_DEFAULT: Final = 1000
MISSING_EVENT_FILE_RETRY_LIMIT_KEY: Final = "SMDEBUG_MISSING_EVENT_FILE_RETRY_LIMIT"
MISSING_EVENT_FILE_RETRY_LIMIT: Final = 100
#: Seconds between retries for a missing event file in smdebug.
MISSING_EVENT_FILE_RETRY_SECONDS: Final = 2.0
#: smdebug's code reads the longer name; its documentation uses the shorter one.
TRAINING_END_DELAY_REFRESH_KEY: Final = "SMDEBUG_TRAINING_END_DELAY_REFRESH"
TRAINING_END_DELAY_REFRESH_SHORT_KEY: Final = "TRAINING_END_DELAY_REFRESH"
TRAINING_END_DELAY_REFRESH_DEFAULT: Final = 1


def incomplete_step_window() -> int:
    """Return the maximum number of incomplete steps.

    If there are more, the older half is declared complete.
    """
    return int(_number(INCOMPLETE_STEP_WAIT_WINDOW_KEY, INCOMPLETE_STEP_WAIT_WINDOW_DEFAULT))


def event_file_patience() -> float:
    """Return the seconds to wait for an event file that an index file names.

    >>> event_file_patience()    # doctest: +SKIP
    200.0
    """
    tries = _number(MISSING_EVENT_FILE_RETRY_LIMIT_KEY, MISSING_EVENT_FILE_RETRY_LIMIT)
    return tries * MISSING_EVENT_FILE_RETRY_SECONDS


def end_delay() -> float:
    """Return the seconds after a run's end in which files may still arrive."""
    default = _number(TRAINING_END_DELAY_REFRESH_SHORT_KEY, TRAINING_END_DELAY_REFRESH_DEFAULT)
    return _number(TRAINING_END_DELAY_REFRESH_KEY, default)


def _number(name: str, default: float) -> float:
    text = os.environ.get(name, "").strip()
    try:
        number = float(text) if text else float(default)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise SMDebugValueError(f"environment variable {name} must be a number >= 0, got {text!r}")
    return number
