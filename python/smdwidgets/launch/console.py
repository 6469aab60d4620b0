"""What a launch prints: lines on standard error, nothing on standard output."""

from __future__ import annotations

import logging
import os
import shlex
import sys
from pathlib import Path

from smdwidgets._text import visible
from smdwidgets.storage.address import scheme_of

__all__ = ["keep_logs_off_stdout", "say", "short_path"]

_LONGEST = 1000


def say(message: str) -> None:
    """Print a line on standard error, if there is one."""
    try:
        print(f"smdwidgets: {visible(message, _LONGEST)}", file=sys.stderr, flush=True)
    except Exception:  # closed, or an encoding without a character of the line
        return


def short_path(path: str) -> str:
    """Return a path, relative if it is below the working directory.

    >>> short_path("s3://bucket/run")
    's3://bucket/run'
    """
    if scheme_of(path):
        return path
    try:
        relative = os.path.relpath(path)
    except (ValueError, OSError):  # another drive; a working directory that was removed
        return shlex.quote(path)
    return shlex.quote(path if Path(relative).parts[:1] == ("..",) else relative)


class _StandardError(logging.Handler):
    """Prints warnings of the hooks.

    `sys.stderr` is looked up each time, because scripts replace it.
    """

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record, in one line also if it has a traceback."""
        try:
            error = record.exc_info[1] if record.exc_info else None
            say(record.getMessage() + (f" ({type(error).__name__}: {error})" if error is not None else ""))
        except Exception:
            self.handleError(record)


def keep_logs_off_stdout() -> None:
    """Print warnings of this package on standard error only."""
    logger = logging.getLogger("smdwidgets")
    if not logger.handlers:  # the script may have configured this logger itself
        logger.addHandler(_StandardError(logging.WARNING))
        logger.propagate = False
