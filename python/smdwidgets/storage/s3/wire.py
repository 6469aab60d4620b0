"""GET over a connection that is kept: one request goes out, one answer of a stated length comes back.

Python's own client spends more time on understanding an answer's headers than a small object takes to arrive. What is needed of
them is little, and whatever is out of the ordinary (an answer in chunks, lengths that contradict each other) ends the connection and
is an error: whoever asks has another way.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

_STATUS = re.compile(r"HTTP/1\.([01]) (\d{3})(?: |$)")
_LONGEST_HEAD = 1 << 16
PIECE = 1 << 18
_MOST_IDLE = 64


@dataclass(frozen=True, slots=True)
class Head:
    """Status, headers by their names in small letters, bytes of the body, and whether the connection goes on after it."""

    status: int
    headers: Mapping[str, str]
    length: int
    keep: bool


def read_head(data: bytes | bytearray) -> tuple[Head, int] | None:
    """What an answer begins with, and where its body begins; None while more is to come.

    >>> head, begin = read_head(b"HTTP/1.1 200 OK\\r\\nContent-Length: 3\\r\\n\\r\\nabc")
    >>> head.status, head.length, head.keep, begin
    (200, 3, True, 38)
    """
    end = data.find(b"\r\n\r\n")
    if end < 0:
        if len(data) > _LONGEST_HEAD:
            raise ConnectionError("an answer that does not begin")
        return None
    first, *lines = data[:end].decode("latin-1").split("\r\n")
    status = _STATUS.match(first)
    if status is None:
        raise ConnectionError("an answer that is not HTTP")
    told: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        name, value = name.lower(), value.strip()
        if name == "content-length" and told.get(name, value) != value:
            raise ConnectionError("an answer of two lengths")
        told[name] = value
    length = told.get("content-length", "")
    if "transfer-encoding" in told or not (length.isascii() and length.isdigit()):
        raise ConnectionError("an answer of no stated length")
    keep = status[1] == "1" and told.get("connection", "").lower() != "close"
    return Head(int(status[2]), told, int(length), keep), end + 4


def compose(host: str, target: str, headers: Mapping[str, str]) -> bytes:
    """A request for ``target``."""
    lines = [f"GET {target} HTTP/1.1", f"Host: {host}", *(f"{name}: {value}" for name, value in headers.items())]
    if any(mark in line for line in lines for mark in "\r\n"):
        raise ConnectionError("a header with a line break in it is not sent")
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


class Body:
    """What is still to come of an answer. Read to its end, its connection serves the next request."""

    def __init__(self, wires: Wires, connection: Any, begin: bytes, length: int, *, keep: bool) -> None:
        self._wires = wires
        self._connection = connection
        self._begin = memoryview(begin)[:length]
        self._left = length
        self._keep = keep and len(begin) <= length
        if not length:
            self._let_go(self._keep)

    def read(self, most: int) -> bytes:
        """Up to so many bytes more; none where the answer ends, or breaks off."""
        if not self._left or self._connection is None:
            return b""
        if self._begin:
            piece = bytes(self._begin[:most])
            self._begin = self._begin[most:]
        else:
            piece = self._connection.sock.recv(min(most, self._left, PIECE))
        self._left -= len(piece)
        if not self._left:
            self._let_go(self._keep)
        return piece

    def close(self) -> None:
        """What was not read ends with its connection."""
        self._let_go(False)

    def _let_go(self, keep: bool) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._wires.back(connection, keep=keep)


class Wires:
    """Connections to one server, made by ``connect`` and kept for the next request; no answer takes longer than ``seconds``."""

    def __init__(self, connect: Callable[[], Any], seconds: float) -> None:
        self.connect = connect
        self.seconds = seconds
        self._idle: deque[Any] = deque()
        self._closed = False

    def get(self, request: bytes) -> tuple[Head, Body]:
        """Ask as :func:`compose` says. A connection that breaks raises an OSError."""
        connection = self.taken() or self.connect()
        try:
            sock = connection.sock
            sock.settimeout(self.seconds)
            sock.sendall(request)
            data = bytearray()
            while (found := read_head(data)) is None:
                piece = sock.recv(PIECE)
                if not piece:
                    raise ConnectionError("the connection ended before the answer began")
                data += piece
        except BaseException:
            connection.close()
            raise
        head, start = found
        return head, Body(self, connection, bytes(data[start:]), head.length, keep=head.keep)

    def taken(self) -> Any:
        """A connection that was kept and is still there; None if there is none."""
        if not self._idle:
            return None
        from urllib3.util.connection import is_connection_dropped

        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return None
            if not is_connection_dropped(connection):
                return connection
            connection.close()

    def back(self, connection: Any, *, keep: bool) -> None:
        """A connection that is no longer needed."""
        if keep and not self._closed and len(self._idle) < _MOST_IDLE:
            self._idle.append(connection)
        else:
            connection.close()

    def drop(self) -> None:
        """Let go of the connections that nobody uses."""
        while self._idle:
            self._idle.pop().close()

    def close(self) -> None:
        """The same for good."""
        self._closed = True
        self.drop()
