"""The curves that a page has requested, which are updated as their runs grow."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from smdwidgets.exceptions import SMDebugError
from smdwidgets.pictures import details
from smdwidgets.pictures.view import TensorView

SHARE = 20
"""Limits updates to 1/SHARE of the time: every update computes a whole curve, so slow updates must be rare."""


@dataclass
class Line:
    """One curve, and the number of steps that the page has received."""

    view: TensorView
    stat: str
    mode: str
    about: dict[str, Any]
    clock: bool = False
    sent: int = field(default=-1)

    def packet(self) -> bytes:
        """Return a packet with the whole curve."""
        self.sent = len(self.view.steps())
        return details.series(self.view, self.stat, self.mode, self.about, self.clock)

    @property
    def grown(self) -> bool:
        """Whether the curve has steps that were not sent."""
        return len(self.view.steps()) > self.sent


class Lines:
    """The curves of the most recent request."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self._lines = lines
        self._lock = threading.Lock()
        self._not_before = 0.0

    def __len__(self) -> int:
        return len(self._lines)

    def answer(self) -> Iterator[tuple[bytes | None, str]]:
        """Yield for each curve its packet, or None and an error message."""
        for line in self._lines:
            try:
                yield line.packet(), ""
            except SMDebugError as error:
                yield None, f"{line.view.name}: {error}"

    def updates(self, last: bool = False) -> list[bytes]:
        """Return packets of the curves that have grown; ``last`` disables rate limiting."""
        began = time.monotonic()
        if began < self._not_before and not last:
            return []
        with self._lock:
            packets = []
            for line in self._lines:
                try:
                    if line.grown:
                        packets.append(line.packet())
                except SMDebugError:
                    continue  # the reply to the request contained the error; later steps may be readable
        now = time.monotonic()
        self._not_before = now + SHARE * (now - began)
        return packets
