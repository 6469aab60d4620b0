"""Many small objects at once: as many connections as may be, all served by the one thread that asks.

A thread for each connection spends more on waking up, and on waiting for its turn, than on its object. Here threads do nothing but
connect (which over TLS is several journeys); requests and answers pass through one loop. What does not come whole the first time is
not tried again here: it is told, and goes the long way.
"""

from __future__ import annotations

import selectors
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

from smdwidgets.storage.protocol import LARGEST_WHOLE
from smdwidgets.storage.s3.wire import PIECE, Head, Wires, read_head

_BUSY = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
#: Seconds after which it is looked whether somebody has given up.
_LOOK = 0.25


class Exchange:
    """A request that is under way on one connection, and what has come back."""

    __slots__ = ("connection", "data", "deadline", "head", "key", "length", "reused", "start", "to_send")

    def __init__(self, connection: Any, *, reused: bool) -> None:
        self.connection = connection
        self.reused = reused
        self.key = ""
        self.deadline = 0.0

    def begin(self, key: str, request: bytes) -> None:
        """Another request on the same connection."""
        self.key = key
        self.to_send = memoryview(request)
        self.data = bytearray()
        self.head: Head | None = None
        self.start = self.length = 0

    def send(self) -> bool:
        """Whether all of the request is gone."""
        with suppress(*_BUSY):
            self.to_send = self.to_send[self.connection.sock.send(self.to_send) :]
        return not self.to_send

    def receive(self) -> bool:
        """Take what has come; whether the answer is whole."""
        sock = self.connection.sock
        while True:
            try:
                piece = sock.recv(PIECE)
            except _BUSY:
                return False
            if not piece:
                raise ConnectionError("the connection ended before the answer did")
            self.data += piece
            if self.head is None:
                found = read_head(self.data)
                if found is not None:
                    self.head, self.start = found
                    self.length = self.head.length
                    if self.length > LARGEST_WHOLE:
                        raise ConnectionError("an answer too large to be taken in here")
            if self.head is not None and len(self.data) - self.start >= self.length:
                return True
            # Bytes that TLS has taken apart already make no socket readable.
            if not (isinstance(sock, ssl.SSLSocket) and sock.pending()):
                return False

    @property
    def content(self) -> bytes:
        """The answer's body."""
        return bytes(memoryview(self.data)[self.start : self.start + self.length])

    @property
    def can_go_on(self) -> bool:
        """Whether the connection serves another request."""
        assert self.head is not None
        return self.head.keep and len(self.data) == self.start + self.length


class Connecting:
    """Connections made by threads and handed over to the loop, which a byte on ``signal`` wakes."""

    def __init__(self, wires: Wires, most: int) -> None:
        self._wires = wires
        self._pool = ThreadPoolExecutor(most, thread_name_prefix="smdwidgets-s3-connect")
        self._made: SimpleQueue[Any] = SimpleQueue()
        self._lock = threading.Lock()
        self._over = False
        self.signal, self._bell = socket.socketpair()
        self.signal.setblocking(False)

    def start(self) -> None:
        """One more connection, please."""
        self._pool.submit(self._connect)

    def _connect(self) -> None:
        made: Any
        try:
            made = self._wires.connect()
        except Exception as error:  # many names for a server that can't be reached
            made = error
        with self._lock:
            if not self._over:
                self._made.put(made)
                self._bell.send(b".")
            elif not isinstance(made, Exception):
                self._wires.back(made, keep=True)

    def made(self) -> Iterator[Any]:
        """Connections that are ready, and errors in place of those that could not be made."""
        with suppress(*_BUSY):
            while self.signal.recv(1 << 10):
                pass
        with suppress(Empty):
            while True:
                yield self._made.get_nowait()

    def close(self) -> None:
        """What is made from now on is kept for others."""
        with self._lock:
            self._over = True
        self._pool.shutdown(wait=False, cancel_futures=True)
        for made in self.made():
            if not isinstance(made, Exception):
                self._wires.back(made, keep=True)
        self.signal.close()
        self._bell.close()


Answered = tuple[str, "Head | Exception | None", bytes]


def volley(
    wires: Wires, keys: Iterable[str], compose: Callable[[str], bytes | None], most: int, stopped: Callable[[], bool]
) -> Iterator[Answered]:
    """The answer to each key's request, in the order in which they arrive; an error in place of one that did not come whole.

    ``compose`` makes the request; once it makes none any more, that key is answered by None, and those after it stay in ``keys``. Up to
    ``most`` connections are used. Ends early once ``stopped``.
    """
    return _Volley(wires, keys, compose, most, stopped).answers()


class _Volley:
    def __init__(
        self,
        wires: Wires,
        keys: Iterable[str],
        compose: Callable[[str], bytes | None],
        most: int,
        stopped: Callable[[], bool],
    ) -> None:
        self._wires = wires
        self._todo = iter(keys)
        #: Asked on a connection that the server had ended meanwhile: asked once more, on another.
        self._again: deque[str] = deque()
        self._compose = compose
        self._most = most
        self._stopped = stopped
        self._connecting = Connecting(wires, most)
        #: Keys that wait for a connection.
        self._waiting: deque[tuple[str, bytes]] = deque()
        self._coming = 0
        self._selector = selectors.DefaultSelector()
        self._under_way: set[Exchange] = set()
        self._ended = False
        self._next_look = 0.0

    def answers(self) -> Iterator[Answered]:
        """See :func:`volley`."""
        self._selector.register(self._connecting.signal, selectors.EVENT_READ)
        try:
            while True:
                yield from self._fill()
                if not self._under_way and not self._waiting:
                    for key in self._again:
                        yield key, None, b""
                    return
                ready = self._selector.select(_LOOK)
                if self._stopped():
                    return
                for event, _ in ready:
                    if event.data is None:
                        yield from self._connected()
                    else:
                        yield from self._move(event.data)
                yield from self._late()
        finally:
            for exchange in self._under_way:
                exchange.connection.close()
            self._selector.close()
            self._connecting.close()

    def _fill(self) -> Iterator[Answered]:
        """As many requests as may be."""
        while len(self._under_way) + len(self._waiting) < self._most:
            request = self._next()
            if request is None:
                return
            connection = self._wires.taken()
            if connection is not None:
                yield from self._start(Exchange(connection, reused=True), *request)
                continue
            self._waiting.append(request)
            if self._coming < len(self._waiting):
                self._coming += 1
                self._connecting.start()

    def _next(self) -> tuple[str, bytes] | None:
        if self._ended:
            return None
        key = self._again.popleft() if self._again else next(self._todo, None)
        if key is None:
            return None
        request = self._compose(key)
        if request is None:
            self._ended = True
            self._again.append(key)
            return None
        return key, request

    def _connected(self) -> Iterator[Answered]:
        for made in self._connecting.made():
            self._coming -= 1
            if isinstance(made, Exception):
                if self._waiting:
                    yield self._waiting.popleft()[0], made, b""
            elif self._waiting:
                yield from self._start(Exchange(made, reused=False), *self._waiting.popleft())
            else:
                self._wires.back(made, keep=True)

    def _start(self, exchange: Exchange, key: str, request: bytes) -> Iterator[Answered]:
        exchange.connection.sock.setblocking(False)
        self._selector.register(exchange.connection.sock, selectors.EVENT_READ, exchange)
        self._under_way.add(exchange)
        yield from self._ask(exchange, key, request)

    def _ask(self, exchange: Exchange, key: str, request: bytes) -> Iterator[Answered]:
        exchange.begin(key, request)
        exchange.deadline = time.monotonic() + self._wires.seconds
        try:
            if not exchange.send():
                self._selector.modify(exchange.connection.sock, selectors.EVENT_READ | selectors.EVENT_WRITE, exchange)
        except OSError as error:
            yield from self._failed(exchange, error)

    def _move(self, exchange: Exchange) -> Iterator[Answered]:
        try:
            if exchange.to_send and exchange.send():
                self._selector.modify(exchange.connection.sock, selectors.EVENT_READ, exchange)
            if not exchange.receive():
                exchange.deadline = time.monotonic() + self._wires.seconds
                return
        except OSError as error:
            yield from self._failed(exchange, error)
            return
        key, head, content = exchange.key, exchange.head, exchange.content
        assert head is not None
        # The connection's next request goes out before anybody looks at this answer.
        request = self._next() if exchange.can_go_on else None
        if request is not None:
            exchange.reused = True
            yield from self._ask(exchange, *request)
        else:
            self._let_go(exchange, keep=exchange.can_go_on)
        yield key, head, content

    def _late(self) -> Iterator[Answered]:
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + _LOOK
        for exchange in [one for one in self._under_way if one.deadline < now]:
            yield from self._failed(exchange, TimeoutError("no answer in time"))

    def _failed(self, exchange: Exchange, error: Exception) -> Iterator[Answered]:
        self._let_go(exchange, keep=False)
        if exchange.reused and not exchange.data and not isinstance(error, TimeoutError):
            self._again.append(exchange.key)
        else:
            yield exchange.key, error, bytes(exchange.data[exchange.start :]) if exchange.head else b""

    def _let_go(self, exchange: Exchange, *, keep: bool) -> None:
        self._under_way.discard(exchange)
        self._selector.unregister(exchange.connection.sock)
        self._wires.back(exchange.connection, keep=keep)
