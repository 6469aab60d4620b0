"""The curves that a page has asked for, which grow with their runs."""

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
"""A curve is drawn whole each time, so the longer that takes the more seldom it is: a twentieth of the time goes into it."""


@dataclass
class Line:
    """One curve, and how much of it the page has been told."""

    view: TensorView
    stat: str
    mode: str
    about: dict[str, Any]
    told: int = field(default=-1)

    def packet(self) -> bytes:
        """All of it."""
        self.told = len(self.view.steps())
        return details.series(self.view, self.stat, self.mode, self.about)

    @property
    def grown(self) -> bool:
        """Whether there is more of it than was told."""
        return len(self.view.steps()) > self.told


class Lines:
    """The curves of the newest question about them."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self._lines = lines
        self._lock = threading.Lock()
        self._not_before = 0.0

    def __len__(self) -> int:
        return len(self._lines)

    def answer(self) -> Iterator[tuple[bytes | None, str]]:
        """Each curve's packet, or what is wrong with it."""
        for line in self._lines:
            try:
                yield line.packet(), ""
            except SMDebugError as error:
                yield None, f"{line.view.name}: {error}"

    def news(self, last: bool = False) -> list[bytes]:
        """Curves that have grown; the last time whatever it costs."""
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
                    continue  # the question was answered with what is wrong; it may be right later
        now = time.monotonic()
        self._not_before = now + SHARE * (now - began)
        return packets
