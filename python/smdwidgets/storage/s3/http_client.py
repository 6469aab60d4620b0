"""Minimal HTTP/1.1 client for GET requests over keep-alive connections.

Python's http.client spends more time on parsing headers than a small object takes to arrive. This client parses only what
it needs. Unsupported responses (chunked, or with contradictory lengths) close the connection and raise an exception; the
caller then uses boto3.
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
    """Status, headers (lower-case names), body length, and keep-alive."""

    status: int
    headers: Mapping[str, str]
    length: int
    keep_alive: bool


def read_head(data: bytes | bytearray) -> tuple[Head, int] | None:
    """Parse a response head and return it with the body offset; None if incomplete.

    >>> head, begin = read_head(b"HTTP/1.1 200 OK\\r\\nContent-Length: 3\\r\\n\\r\\nabc")
    >>> head.status, head.length, head.keep_alive, begin
    (200, 3, True, 38)
    """
    end = data.find(b"\r\n\r\n")
    if end < 0:
        if len(data) > _LONGEST_HEAD:
            raise ConnectionError("response headers are too long")
        return None
    first, *lines = data[:end].decode("latin-1").split("\r\n")
    status = _STATUS.match(first)
    if status is None:
        raise ConnectionError("invalid HTTP status line")
    headers: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        name, value = name.lower(), value.strip()
        if name == "content-length" and headers.get(name, value) != value:
            raise ConnectionError("conflicting Content-Length headers")
        headers[name] = value
    length = headers.get("content-length", "")
    if "transfer-encoding" in headers or not (length.isascii() and length.isdigit()):
        raise ConnectionError("response without Content-Length")
    keep_alive = status[1] == "1" and headers.get("connection", "").lower() != "close"
    return Head(int(status[2]), headers, int(length), keep_alive), end + 4


def compose(host: str, target: str, headers: Mapping[str, str]) -> bytes:
    """Return a GET request for ``target``."""
    lines = [f"GET {target} HTTP/1.1", f"Host: {host}", *(f"{name}: {value}" for name, value in headers.items())]
    if any(mark in line for line in lines for mark in "\r\n"):
        raise ConnectionError("request header contains a line break")
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


class Body:
    """Body of a response. After it is read to the end, its connection is reused."""

    def __init__(self, pool: ConnectionPool, connection: Any, begin: bytes, length: int, *, keep_alive: bool) -> None:
        self._pool = pool
        self._connection = connection
        self._begin = memoryview(begin)[:length]
        self._left = length
        self._keep = keep_alive and len(begin) <= length
        if not length:
            self._release(self._keep)

    def read(self, most: int) -> bytes:
        """Return up to ``most`` bytes; empty if the response ends or breaks off."""
        if not self._left or self._connection is None:
            return b""
        if self._begin:
            piece = bytes(self._begin[:most])
            self._begin = self._begin[most:]
        else:
            piece = self._connection.sock.recv(min(most, self._left, PIECE))
        self._left -= len(piece)
        if not self._left:
            self._release(self._keep)
        return piece

    def close(self) -> None:
        """Close the connection if the body was not read to its end."""
        self._release(False)

    def _release(self, keep_alive: bool) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._pool.give_back(connection, keep_alive=keep_alive)


class ConnectionPool:
    """Pool of keep-alive connections to one server.

    ``connect`` opens a connection; ``seconds`` is the timeout of a response.
    """

    def __init__(self, connect: Callable[[], Any], seconds: float) -> None:
        self.connect = connect
        self.seconds = seconds
        self._idle: deque[Any] = deque()
        self._closed = False

    def get(self, request: bytes) -> tuple[Head, Body]:
        """Send a request of :func:`compose`. A broken connection raises an OSError."""
        connection = self.take_idle() or self.connect()
        try:
            sock = connection.sock
            sock.settimeout(self.seconds)
            sock.sendall(request)
            data = bytearray()
            while (found := read_head(data)) is None:
                piece = sock.recv(PIECE)
                if not piece:
                    raise ConnectionError("the connection closed before the response headers")
                data += piece
        except BaseException:
            connection.close()
            raise
        head, start = found
        return head, Body(self, connection, bytes(data[start:]), head.length, keep_alive=head.keep_alive)

    def take_idle(self) -> Any:
        """Return an idle connection that is still open, or None."""
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

    def give_back(self, connection: Any, *, keep_alive: bool) -> None:
        """Return a connection to the pool, or close it."""
        if keep_alive and not self._closed and len(self._idle) < _MOST_IDLE:
            self._idle.append(connection)
        else:
            connection.close()

    def drop(self) -> None:
        """Close idle connections."""
        while self._idle:
            self._idle.pop().close()

    def close(self) -> None:
        """Close idle connections, and others when they are returned."""
        self._closed = True
        self.drop()
