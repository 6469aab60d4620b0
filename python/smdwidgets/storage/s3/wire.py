"""GET over a connection that is kept: one request goes out, one answer of a stated length comes back.

Python's own client spends more time on understanding an answer's headers than a small object takes to arrive. What is needed of
them is little, and whatever is out of the ordinary (an answer in chunks, lengths that contradict each other) ends the connection and
is an error: whoever asks has another way.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

_STATUS = re.compile(rb"HTTP/1\.([01]) (\d{3})(?: |$)")
_LONGEST_HEAD = 1 << 16
_PIECE = 1 << 18
_MOST_IDLE = 64


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
            piece = self._connection.sock.recv(min(most, self._left, _PIECE))
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


@dataclass(frozen=True, slots=True)
class Answer:
    """Status, headers by their names in small letters, and the body."""

    status: int
    headers: Mapping[str, str]
    body: Body


class Wires:
    """Connections to one server, made by ``connect`` and kept for the next request."""

    def __init__(self, connect: Callable[[], Any]) -> None:
        self._connect = connect
        self._idle: deque[Any] = deque()
        self._process = os.getpid()
        self._closed = False

    def get(self, host: str, target: str, headers: Mapping[str, str]) -> Answer:
        """Ask for ``target``. A connection that breaks raises an OSError."""
        lines = [f"GET {target} HTTP/1.1", f"Host: {host}", *(f"{name}: {value}" for name, value in headers.items())]
        if any(mark in line for line in lines for mark in "\r\n"):
            raise ConnectionError("a header with a line break in it is not sent")
        request = "\r\n".join([*lines, "", ""]).encode("latin-1")
        connection = self._taken() or self._connect()
        try:
            connection.sock.sendall(request)
            status, told, begin = self._head(connection.sock)
            keep = told.get("connection", "").lower() != "close" and told.pop("", "") == "1"
            length = told.get("content-length", "")
            if "transfer-encoding" in told or not length.isdigit():
                raise ConnectionError("an answer of no stated length")
        except BaseException:
            connection.close()
            raise
        return Answer(status, told, Body(self, connection, begin, int(length), keep=keep))

    @staticmethod
    def _head(sock: Any) -> tuple[int, dict[str, str], bytes]:
        """Status, headers (under the name "" the version's last digit), and what came of the body along with them."""
        data = sock.recv(_PIECE)
        while (end := data.find(b"\r\n\r\n")) < 0:
            more = sock.recv(_PIECE)
            if not more or len(data) > _LONGEST_HEAD:
                raise ConnectionError("the connection ended before the answer began")
            data += more
        first, *lines = data[:end].split(b"\r\n")
        status = _STATUS.match(first)
        if status is None:
            raise ConnectionError("an answer that is not HTTP")
        told = {"": status[1].decode()}
        for line in lines:
            name, _, value = line.partition(b":")
            named, said = name.decode("latin-1").lower(), value.strip().decode("latin-1")
            if named == "content-length" and told.get(named, said) != said:
                raise ConnectionError("an answer of two lengths")
            told[named] = said
        return int(status[2]), told, data[end + 4 :]

    def _taken(self) -> Any:
        """A connection that was kept and is still there; None if there is none."""
        from urllib3.util.connection import is_connection_dropped

        if self._process != os.getpid():
            # Those of the process that this one was forked from are not ours to speak on.
            self._idle, self._process = deque(), os.getpid()
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

    def close(self) -> None:
        """End the connections that nobody uses."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()
