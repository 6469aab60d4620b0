"""Read many small objects over concurrent connections in one event loop.

With one thread per connection, wake-ups and the GIL cost more than reading the objects. Here, threads only open connections
(which takes several round trips over TLS); one loop sends requests and receives responses. Failed requests are not retried
here but reported to the caller, which retries them with boto3.
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
from smdwidgets.storage.s3.http_client import PIECE, ConnectionPool, Head, read_head

_BUSY = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
#: Seconds between checks for cancellation and timeouts.
_POLL = 0.25


class Exchange:
    """A request on one connection and the data received so far."""

    __slots__ = ("connection", "data", "deadline", "head", "key", "length", "reused", "start", "to_send")

    def __init__(self, connection: Any, *, reused: bool) -> None:
        self.connection = connection
        self.reused = reused
        self.key = ""
        self.deadline = 0.0

    def begin(self, key: str, request: bytes) -> None:
        """Start a request on the connection."""
        self.key = key
        self.to_send = memoryview(request)
        self.data = bytearray()
        self.head: Head | None = None
        self.start = self.length = 0

    def send(self) -> bool:
        """Send data and return whether the whole request was sent."""
        with suppress(*_BUSY):
            self.to_send = self.to_send[self.connection.sock.send(self.to_send) :]
        return not self.to_send

    def receive(self) -> bool:
        """Receive data and return whether the response is complete."""
        sock = self.connection.sock
        while True:
            try:
                piece = sock.recv(PIECE)
            except _BUSY:
                return False
            if not piece:
                raise ConnectionError("the connection closed before the end of the response")
            self.data += piece
            if self.head is None:
                found = read_head(self.data)
                if found is not None:
                    self.head, self.start = found
                    self.length = self.head.length
                    if self.length > LARGEST_WHOLE:
                        raise ConnectionError("the response is too large")
            if self.head is not None and len(self.data) - self.start >= self.length:
                return True
            # Data that TLS has already decrypted does not make the socket readable.
            if not (isinstance(sock, ssl.SSLSocket) and sock.pending()):
                return False

    @property
    def content(self) -> bytes:
        """Body of the response."""
        return bytes(memoryview(self.data)[self.start : self.start + self.length])

    @property
    def reusable(self) -> bool:
        """Whether the connection can be reused."""
        assert self.head is not None
        return self.head.keep_alive and len(self.data) == self.start + self.length


class Connecting:
    """Opens connections in threads and wakes the loop with a byte on ``signal``."""

    def __init__(self, pool: ConnectionPool, most: int) -> None:
        self._pool = pool
        self._threads = ThreadPoolExecutor(most, thread_name_prefix="smdwidgets-s3-connect")
        self._made: SimpleQueue[Any] = SimpleQueue()
        self._lock = threading.Lock()
        self._stopped_connecting = False
        self.signal, self._wakeup = socket.socketpair()
        self.signal.setblocking(False)

    def start(self) -> None:
        """Open another connection."""
        self._threads.submit(self._connect)

    def _connect(self) -> None:
        made: Any
        try:
            made = self._pool.connect()
        except Exception as error:  # connection errors have many types
            made = error
        with self._lock:
            if not self._stopped_connecting:
                self._made.put(made)
                self._wakeup.send(b".")
            elif not isinstance(made, Exception):
                self._pool.give_back(made, keep_alive=True)

    def made(self) -> Iterator[Any]:
        """Yield open connections, or exceptions of failed ones."""
        with suppress(*_BUSY):
            while self.signal.recv(1 << 10):
                pass
        with suppress(Empty):
            while True:
                yield self._made.get_nowait()

    def close(self) -> None:
        """Stop; connections that open later are returned to the pool."""
        with self._lock:
            self._stopped_connecting = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        for made in self.made():
            if not isinstance(made, Exception):
                self._pool.give_back(made, keep_alive=True)
        self.signal.close()
        self._wakeup.close()


Answered = tuple[str, "Head | Exception | None", bytes]


def prefetch(
    pool: ConnectionPool,
    keys: Iterable[str],
    compose: Callable[[str], bytes | None],
    most: int,
    stopped: Callable[[], bool],
) -> Iterator[Answered]:
    """Yield the response to each key's request in order of arrival, or an exception.

    Args:
        pool: the connection pool.
        keys: keys to request.
        compose: returns the request for a key. If it returns None, None is yielded for that key, and the following keys
            remain in ``keys``.
        most: maximum number of connections.
        stopped: returns whether to stop early.
    """
    return _Prefetch(pool, keys, compose, most, stopped).answers()


class _Prefetch:
    def __init__(
        self,
        pool: ConnectionPool,
        keys: Iterable[str],
        compose: Callable[[str], bytes | None],
        most: int,
        stopped: Callable[[], bool],
    ) -> None:
        self._pool = pool
        self._todo = iter(keys)
        #: Keys to retry because the server had closed an idle connection.
        self._again: deque[str] = deque()
        self._compose = compose
        self._most = most
        self._stopped = stopped
        self._connecting = Connecting(pool, most)
        #: Requests that wait for a connection.
        self._waiting: deque[tuple[str, bytes]] = deque()
        self._pending_connections = 0
        self._selector = selectors.DefaultSelector()
        self._running: set[Exchange] = set()
        self._ended = False
        self._next_check = 0.0

    def answers(self) -> Iterator[Answered]:
        """Implement :func:`prefetch`."""
        self._selector.register(self._connecting.signal, selectors.EVENT_READ)
        try:
            while True:
                yield from self._fill()
                if not self._running and not self._waiting:
                    for key in self._again:
                        yield key, None, b""
                    return
                ready = self._selector.select(_POLL)
                if self._stopped():
                    return
                for event, _ in ready:
                    if event.data is None:
                        yield from self._connected()
                    else:
                        yield from self._move(event.data)
                yield from self._check_timeouts()
        finally:
            for exchange in self._running:
                exchange.connection.close()
            self._selector.close()
            self._connecting.close()

    def _fill(self) -> Iterator[Answered]:
        """Start requests up to the limit."""
        while len(self._running) + len(self._waiting) < self._most:
            request = self._next()
            if request is None:
                return
            connection = self._pool.take_idle()
            if connection is not None:
                yield from self._start(Exchange(connection, reused=True), *request)
                continue
            self._waiting.append(request)
            if self._pending_connections < len(self._waiting):
                self._pending_connections += 1
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
            self._pending_connections -= 1
            if isinstance(made, Exception):
                if self._waiting:
                    yield self._waiting.popleft()[0], made, b""
            elif self._waiting:
                yield from self._start(Exchange(made, reused=False), *self._waiting.popleft())
            else:
                self._pool.give_back(made, keep_alive=True)

    def _start(self, exchange: Exchange, key: str, request: bytes) -> Iterator[Answered]:
        exchange.connection.sock.setblocking(False)
        self._selector.register(exchange.connection.sock, selectors.EVENT_READ, exchange)
        self._running.add(exchange)
        yield from self._send_request(exchange, key, request)

    def _send_request(self, exchange: Exchange, key: str, request: bytes) -> Iterator[Answered]:
        exchange.begin(key, request)
        exchange.deadline = time.monotonic() + self._pool.seconds
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
                exchange.deadline = time.monotonic() + self._pool.seconds
                return
        except OSError as error:
            yield from self._failed(exchange, error)
            return
        key, head, content = exchange.key, exchange.head, exchange.content
        assert head is not None
        # Send the connection's next request before the caller processes this response.
        request = self._next() if exchange.reusable else None
        if request is not None:
            exchange.reused = True
            yield from self._send_request(exchange, *request)
        else:
            self._release(exchange, keep_alive=exchange.reusable)
        yield key, head, content

    def _check_timeouts(self) -> Iterator[Answered]:
        now = time.monotonic()
        if now < self._next_check:
            return
        self._next_check = now + _POLL
        for exchange in [one for one in self._running if one.deadline < now]:
            yield from self._failed(exchange, TimeoutError(f"no response within {self._pool.seconds:g} s"))

    def _failed(self, exchange: Exchange, error: Exception) -> Iterator[Answered]:
        self._release(exchange, keep_alive=False)
        if exchange.reused and not exchange.data and not isinstance(error, TimeoutError):
            self._again.append(exchange.key)
        else:
            yield exchange.key, error, bytes(exchange.data[exchange.start :]) if exchange.head else b""

    def _release(self, exchange: Exchange, *, keep_alive: bool) -> None:
        self._running.discard(exchange)
        self._selector.unregister(exchange.connection.sock)
        self._pool.give_back(exchange.connection, keep_alive=keep_alive)
