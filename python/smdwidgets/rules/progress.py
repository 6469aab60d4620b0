"""Progress bar for long evaluations, on terminals and in notebooks."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self, TextIO

__all__ = ["Progress"]

#: No bar is shown before this many seconds.
QUIET_SECONDS = 2.0
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


class Progress:
    """Progress bar on one line, cleared at the end: `label ███░░░ 120/400 message`.

    >>> with Progress("VanishingGradient") as progress:
    ...     progress.update(1, 10)
    """

    def __init__(self, label: str, stream: TextIO | None = None) -> None:
        self.label = label
        self._stream = stream if stream is not None else sys.stderr
        self._shows = bool(getattr(self._stream, "isatty", lambda: False)()) or "ipykernel" in sys.modules
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
        self._write(f"{self.label} {full * filled}{empty * (WIDTH - filled)} {done}/{total} {message}".rstrip())

    def _write(self, line: str) -> None:
        line = line[:110]
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
