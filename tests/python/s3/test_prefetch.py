"""Prefetch many objects in one event loop: each key gets exactly one result."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any

import pytest

from smdwidgets.storage.s3.http_client import ConnectionPool, Head, compose
from smdwidgets.storage.s3.prefetch import Exchange, prefetch

CONTENTS = {f"/{n:03}": random.Random(n).randbytes(2000 + 37 * n) for n in range(80)}
CONTENTS["/large"] = random.Random("large").randbytes(3 << 20)
CONTENTS["/empty"] = b""


class Server:
    """A server that calls ``play`` for each request.

    ``play`` gets the path and the number of requests on the connection. It writes a response, or returns False to close
    the connection.
    """

    def __init__(self, play: Callable[[socket.socket, str, int], bool]) -> None:
        self._play = play
        self._lock = threading.Lock()
        self.asked: list[str] = []
        self.open = 0
        self.accepted = 0
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = int(self._listening.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            with self._lock:
                self.accepted += 1
                self.open += 1
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        data, count, go_on = b"", 0, True
        try:
            with connection:
                while go_on:
                    while b"\r\n\r\n" not in data:
                        piece = connection.recv(65536)
                        if not piece:
                            return
                        data += piece
                    head, _, data = data.partition(b"\r\n\r\n")
                    path = head.split(b" ")[1].decode()
                    with self._lock:
                        self.asked.append(path)
                    count += 1
                    go_on = self._play(connection, path, count)
        except OSError:
            pass
        finally:
            with self._lock:
                self.open -= 1

    def close(self) -> None:
        with suppress(OSError):  # wakes the thread that waits in accept
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()


class Connected:
    """The parts of a urllib3 connection that the pool uses."""

    is_closed = False

    def __init__(self, port: int) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port))

    @property
    def is_connected(self) -> bool:
        return True

    def close(self) -> None:
        self.sock.close()


@contextmanager
def served(
    play: Callable[[socket.socket, str, int], bool], seconds: float = 60.0
) -> Iterator[tuple[Server, ConnectionPool]]:
    server = Server(play)
    pool = ConnectionPool(lambda: Connected(server.port), seconds)
    try:
        yield server, pool
    finally:
        pool.close()
        server.close()


def responses(
    pool: ConnectionPool, keys: list[str], most: int = 16, stopped: Callable[[], bool] = lambda: False
) -> Any:
    return prefetch(pool, iter(keys), lambda key: compose("host", key, {}), most, stopped)


def contents(answers: Any) -> dict[str, bytes | str]:
    """Return contents, and names of exceptions."""
    found: dict[str, bytes | str] = {}
    for key, head, content in answers:
        assert key not in found, "answered twice"
        found[key] = content if isinstance(head, Head) else type(head).__name__
    return found


def answer(path: str, extra: str = "") -> bytes:
    content = CONTENTS[path]
    return f"HTTP/1.1 200 OK\r\n{extra}Content-Length: {len(content)}\r\n\r\n".encode() + content


def whole(connection: socket.socket, path: str, _: int) -> bool:
    connection.sendall(answer(path))
    return True


def test_objects_are_read_over_the_maximum_of_kept_connections() -> None:
    with served(whole) as (server, pool):
        assert contents(responses(pool, list(CONTENTS), most=8)) == CONTENTS
        assert server.accepted <= 8
        assert sorted(server.asked) == sorted(CONTENTS)
        before = server.accepted
        assert contents(responses(pool, list(CONTENTS), most=before)) == CONTENTS
        assert server.accepted == before, "connections of the first time serve the second"


@pytest.mark.parametrize("said", ["Connection: close\r\n", "", "Connection: Keep-Alive\r\n"])
def test_server_that_closes_after_each_response(said: str) -> None:
    def play(connection: socket.socket, path: str, _: int) -> bool:
        connection.sendall(answer(path, said))
        return False

    with served(play) as (_, pool):
        assert contents(responses(pool, list(CONTENTS))) == CONTENTS


def test_slow_responses_arrive_complete() -> None:
    def play(connection: socket.socket, path: str, _: int) -> bool:
        response = answer(path)
        for at in range(0, 120, 7):
            connection.sendall(response[at : at + 7])
            time.sleep(0.0005)
        connection.sendall(response[at + 7 :])
        return True

    with served(play) as (_, pool):
        assert contents(responses(pool, list(CONTENTS))) == CONTENTS


def test_truncated_response_is_an_error_of_that_object() -> None:
    def play(connection: socket.socket, path: str, _: int) -> bool:
        number = int(path[1:]) if path[1:].isdigit() else 0
        if number % 5 == 1:
            connection.sendall(answer(path)[: 500 + number])
            return False
        if number % 5 == 2:
            connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n")
            return False
        return whole(connection, path, 0)

    with served(play) as (_, pool):
        found = contents(responses(pool, list(CONTENTS)))
    broken = {key for key in CONTENTS if key[1:].isdigit() and int(key[1:]) % 5 in (1, 2)}
    assert {key for key, content in found.items() if content == "ConnectionError"} == broken
    assert {key: content for key, content in found.items() if key not in broken} == {
        key: content for key, content in CONTENTS.items() if key not in broken
    }


def test_silent_connection_times_out_and_others_continue() -> None:
    def play(connection: socket.socket, path: str, _: int) -> bool:
        if path == "/007":
            connection.sendall(answer(path)[:100])
            connection.recv(1)
            return False
        return whole(connection, path, 0)

    with served(play, seconds=1.0) as (_, pool):
        found = contents(responses(pool, list(CONTENTS)))
        assert found.pop("/007") == "TimeoutError"
        assert found == {key: content for key, content in CONTENTS.items() if key != "/007"}


def test_unreachable_server_is_an_error_of_each_key() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    pool = ConnectionPool(lambda: Connected(port), 5.0)
    assert contents(responses(pool, list(CONTENTS))) == dict.fromkeys(CONTENTS, "ConnectionRefusedError")


def test_excess_data_closes_the_connection() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(answer("/001") + b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
        exchange = Exchange(SimpleNamespace(sock=ours), reused=False)
        exchange.begin("/001", b"")
        assert exchange.receive()
        assert exchange.content == CONTENTS["/001"]
        assert not exchange.reusable


def test_early_stop_leaves_no_open_connection() -> None:
    with served(whole) as (server, pool):
        answers = responses(pool, list(CONTENTS))
        next(answers)
        answers.close()
        pool.close()
        deadline = time.monotonic() + 30
        while server.open and time.monotonic() < deadline:
            time.sleep(0.01)
        assert server.open == 0


def test_stops_on_cancellation_and_when_no_request_is_made() -> None:
    def silence(connection: socket.socket, path: str, _: int) -> bool:
        connection.recv(1)
        return False

    with served(silence) as (_, pool):
        assert contents(responses(pool, list(CONTENTS), stopped=lambda: True)) == {}
    with served(whole) as (_, pool):
        keys = iter(CONTENTS)
        made: list[str] = []

        def some(key: str) -> bytes | None:
            made.append(key)
            return compose("host", key, {}) if len(made) <= 20 else None

        found = contents(prefetch(pool, keys, some, 4, lambda: False))
        assert [key for key in found if found[key] == "NoneType"] == made[20:] == ["/020"]
        assert set(found) | set(keys) == set(CONTENTS), "no key is lost"
