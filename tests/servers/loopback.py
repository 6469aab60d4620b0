"""A server of a test, which answers in threads of the test's process."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self


class LoopbackServer(ThreadingHTTPServer):
    """A server that many connections can reach at once."""

    request_queue_size = 256


class Loopback:
    """A server on loopback that runs while a `with` block lasts.

    Attributes:
        address: its URL without a path.
    """

    def __init__(self, handler: type[BaseHTTPRequestHandler], server: type[LoopbackServer] = LoopbackServer) -> None:
        self._server = server(("127.0.0.1", 0), handler)
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
