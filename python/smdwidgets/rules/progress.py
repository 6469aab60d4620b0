"""Progress bar with rate and remaining time, on terminals and in notebooks."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self, TextIO

__all__ = ["Progress"]

#: No bar is shown before this many seconds.
QUIET_SECONDS = 1.0
BETWEEN = 0.2
WIDTH = 24


def _blocks(encoding: str | None) -> str:
    """Return the characters for full and empty parts of the bar.

    ASCII characters are used if the encoding lacks block characters.

    >>> _blocks("ascii")
    '#.'
    """
    try:
        "█░".encode(encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return "#."
    return "█░"


def _pace(done: int, total: int, seconds: float, amount: Callable[[int], str]) -> str:
    """Return the rate and the remaining time; empty at the begin and at the end.

    >>> _pace(100, 400, 2.0, str)
    '(50/s, 6 s left)'
    >>> _pace(1, 400, 10.0, str)
    '(0.1/s, 66 min left)'
    """
    if not 0 < done < total or seconds <= 0:
        return ""
    rate, left = done / seconds, (total - done) * seconds / done
    pace = amount(int(rate)) if rate >= 1 else f"{rate:.1g}"
    return f"({pace}/s, {left:.0f} s left)" if left < 120 else f"({pace}/s, {left / 60:.0f} min left)"


class Progress:
    """Progress bar on one line, cleared at the end.

    It reads `label ███░░░ 120/400 message (50/s, 6 s left)`.

    Args:
        label: what is done.
        stream: where it is written; default: standard error, in a notebook standard output.
        amount: writes a number of what is done.

    >>> with Progress("VanishingGradient") as progress:
    ...     progress.update(1, 10)
    """

    def __init__(self, label: str, stream: TextIO | None = None, amount: Callable[[int], str] = str) -> None:
        self.label = label
        self._amount = amount
        in_notebook = "ipykernel" in sys.modules  # which shows standard error as a fault, and what was cleared as a gap
        self._stream = stream if stream is not None else sys.stdout if in_notebook else sys.stderr
        self._shows = bool(getattr(self._stream, "isatty", lambda: False)()) or in_notebook
        self._blocks = _blocks(getattr(self._stream, "encoding", None))
        self._begun = time.monotonic()
        self._last = 0.0
        self._length = 0

    def update(self, done: int, total: int, message: str = "") -> None:
        """Update the bar."""
        now = time.monotonic()
        if not self._shows or now - self._begun < QUIET_SECONDS or now - self._last < BETWEEN:
            return
        self._last = now
        filled = WIDTH * done // total if total else 0
        full, empty = self._blocks[0], self._blocks[1]
        of = f"{self._amount(done)}/{self._amount(total)}"
        pace = _pace(done, total, now - self._begun, self._amount)
        words = (self.label, full * filled + empty * (WIDTH - filled), of, message, pace)
        self._write(" ".join(word for word in words if word))

    def _write(self, line: str) -> None:
        line = line[: shutil.get_terminal_size((110, 24)).columns - 1]
        self._stream.write("\r" + line + " " * (self._length - len(line)))
        self._stream.flush()
        self._length = len(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._length:
            self._write("")
            self._stream.write("\r")
            self._stream.flush()
