"""Replies to the browser's requests, in messages of limited size."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any

from smdwidgets.pictures.packet import LARGEST
from smdwidgets.widgets.send_queue import SendQueue


class Cancelled(Exception):
    """The browser cancelled the request."""


class Reply:
    """The reply to one request."""

    def __init__(self, queue: SendQueue, request_id: str, cancelled: threading.Event) -> None:
        self._queue = queue
        self.id = request_id
        self.cancelled = cancelled

    def part(self, packets: Sequence[bytes]) -> None:
        """Send a part of the reply; raise :class:`Cancelled` if the request was cancelled."""
        self.check()
        for group in grouped(packets):
            self._queue.post({"kind": "part", "id": self.id}, group)

    def progress(self, done: int, total: int) -> None:
        """Send the number of steps done and their total."""
        self.check()
        self._queue.post({"kind": "progress", "id": self.id, "done": done, "total": total})

    def answer(self, packets: Sequence[bytes] = (), **fields: Any) -> None:
        """Send the last part of the reply."""
        groups = list(grouped(packets)) or [[]]
        for group in groups[:-1]:
            self._queue.post({"kind": "part", "id": self.id}, group)
        self._queue.post({"kind": "answer", "id": self.id, **fields}, groups[-1])

    def error(self, kind: str, message: str) -> None:
        """Send an error as the last part of the reply."""
        self._queue.post({"kind": "error", "id": self.id, "error": {"type": kind, "message": message}})

    def check(self) -> None:
        """Raise :class:`Cancelled` if the request was cancelled."""
        if self.cancelled.is_set():
            raise Cancelled


Handler = Callable[[dict[str, Any], Reply], None]
"""Answers one kind of request."""


def grouped(packets: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Group packets into messages of limited size.

    >>> [len(group) for group in grouped([bytes(600_000), bytes(600_000), b""])]
    [1, 2]
    """
    group: list[bytes] = []
    size = 0
    for packet in packets:
        if group and size + len(packet) > LARGEST:
            yield group
            group, size = [], 0
        group.append(packet)
        size += len(packet)
    if group:
        yield group


def fitting(packets: Sequence[bytes], room: int) -> list[bytes]:
    """Return the first packets that have at most so many bytes together."""
    sizes = accumulate(map(len, packets))
    return [packet for packet, size in zip(packets, sizes, strict=True) if size <= room]
