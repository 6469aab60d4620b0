"""A proxy in front of a server that counts requests and injects faults."""

from __future__ import annotations

import http.client
import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler
from urllib.parse import urlsplit

from servers.loopback import Loopback, LoopbackServer

FAULTS = ("slow_down", "too_many", "internal_error", "reset_before", "reset_in_body", "short_body", "late")
#: The seconds of the longest delay of a `late` answer; others overtake it.
LATE = 0.2
#: How each kind of store says that it is busy, and that a token has expired.
BUSY = {"s3": "SlowDown", "gs": "SlowDown", "az": "ServerBusy", "https": "ServiceUnavailable"}
EXPIRED = {"s3": (400, "ExpiredToken"), "gs": (401, "AuthenticationRequired"), "az": (401, "InvalidAuthenticationInfo")}


class FaultyProxy(Loopback):
    """A proxy that counts requests and injects seeded faults.

    ``share`` of the requests fail while ``faults`` lasts; ``latency`` is added to every response; ``always`` answers
    every request with one error. While ``hanging`` is set, requests with ``hangs_below`` in their path are never
    answered. A request that ``refuses`` returns true for is answered with the store's error of an expired token. While
    ``stale`` is set, a listing that was answered before is answered with the same content again.
    """

    def __init__(
        self,
        upstream: str,
        *,
        seed: int = 0,
        share: float = 0.0,
        faults: int = 0,
        latency: float = 0.0,
        keep_alive: bool = True,
        kinds: tuple[str, ...] = FAULTS,
        dialect: str = "s3",
    ) -> None:
        target = urlsplit(upstream)
        self._upstream = (str(target.hostname), int(target.port or 80))
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self._kinds, self._dialect = kinds, dialect
        self.share, self.faults_left, self.latency = share, faults, latency
        self.always: tuple[int, str] | None = None
        self.refuses: Callable[[Mapping[str, str]], bool] | None = None
        self.hanging, self.hangs_below = False, ""
        self.held = 0
        self.stale = False
        self.played: Counter[str] = Counter()
        self.seen: Counter[str] = Counter()
        self.paths: list[str] = []
        self.times: list[float] = []
        self.headers: list[dict[str, str]] = []
        self._listings: dict[str, tuple[int, list[tuple[str, str]], bytes]] = {}
        self._ended = threading.Event()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1" if keep_alive else "HTTP/1.0"
            disable_nagle_algorithm = True  # headers and body are written separately

            def handle_any(self) -> None:
                proxy._answer(self)

            do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = handle_any

            def log_message(self, format: str, *args: object) -> None:
                pass

        class Server(LoopbackServer):
            def handle_error(self, request: object, client_address: object) -> None:
                pass  # connections are closed on purpose

        super().__init__(Handler, Server)
        self.endpoint = self.address + target.path

    def __exit__(self, *exc: object) -> None:
        self._ended.set()
        super().__exit__(*exc)

    def _pick(self) -> str:
        with self._lock:
            if self.faults_left <= 0 or self._random.random() >= self.share:
                return "pass"
            fault = self._random.choice(self._kinds)
            self.faults_left -= 1
            self.played[fault] += 1
            return fault

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        headers = dict(request.headers.items())
        listing = request.command == "GET" and ("list-type=2" in request.path or "comp=list" in request.path)
        with self._lock:
            self.seen["LIST" if listing else request.command] += 1
            self.paths.append(request.path)
            self.times.append(time.monotonic())
            self.headers.append(headers)
        if self.latency:
            time.sleep(self.latency)
        fault = self._pick()
        if (self.hanging and self.hangs_below in request.path) or fault == "silent":
            self._hold(request)
        elif self.always is not None:
            self._error(request, *self.always)
        elif self.refuses is not None and self.refuses(headers):
            with self._lock:
                self.played["expired"] += 1
            self._error(request, *EXPIRED[self._dialect])
        elif fault == "slow_down":
            self._error(request, 503, BUSY[self._dialect])
        elif fault == "too_many":
            self._error(request, 429, "TooManyRequests")
        elif fault == "internal_error":
            self._error(request, 500, "InternalError")
        elif fault == "reset_before":
            self._reset(request)
        else:
            if fault == "late":
                with self._lock:
                    seconds = self._random.random() * LATE
                time.sleep(seconds)
            self._pass(request, body, headers, fault, listing=listing)

    def _pass(
        self, request: BaseHTTPRequestHandler, body: bytes, headers: dict[str, str], fault: str, *, listing: bool
    ) -> None:
        known = self._listings.get(request.path) if listing and self.stale else None
        if known is not None:
            with self._lock:
                self.played["stale"] += 1
        status, given, content = known or self._ask(request, body, headers)
        if listing:
            self._listings[request.path] = (status, given, content)
        request.send_response_only(status)
        length = str(len(content))
        for name, value in given:
            if name.lower() == "content-length" and request.command == "HEAD":
                length = value
            elif name.lower() not in {"transfer-encoding", "content-length", "connection"}:
                request.send_header(name, value)
        request.send_header("Content-Length", length)
        request.end_headers()
        if request.command == "HEAD":
            return
        if fault == "reset_in_body":
            request.wfile.write(content[: self._random.randrange(len(content) + 1)])
            request.wfile.flush()
            self._reset(request)
        elif fault == "short_body":
            request.wfile.write(content[: len(content) // 2])
            request.close_connection = True
        else:
            request.wfile.write(content)

    def _ask(
        self, request: BaseHTTPRequestHandler, body: bytes, headers: dict[str, str]
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        upstream = http.client.HTTPConnection(*self._upstream, timeout=30)
        try:
            # Requests to a proxy name the whole address.
            path = request.path.removeprefix(f"http://{request.headers['Host']}")
            upstream.request(request.command, path, body or None, headers)
            response = upstream.getresponse()
            return response.status, response.getheaders(), response.read()
        finally:
            upstream.close()

    def _hold(self, request: BaseHTTPRequestHandler) -> None:
        with self._lock:
            self.held += 1
        self._ended.wait()
        self._reset(request)

    @staticmethod
    def _error(request: BaseHTTPRequestHandler, status: int, code: str) -> None:
        content = (
            f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{code}, on purpose</Message></Error>".encode()
        )
        request.send_response_only(status)
        request.send_header("Content-Type", "application/xml")
        request.send_header("x-ms-error-code", code)
        request.send_header("Content-Length", str(len(content)))
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(content)

    @staticmethod
    def _reset(request: BaseHTTPRequestHandler) -> None:
        request.close_connection = True
        # With a linger of zero, close() resets the connection.
        request.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        request.connection.shutdown(socket.SHUT_RDWR)
