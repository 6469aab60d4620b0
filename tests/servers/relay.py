"""Add network latency in front of a server.

Usage: `python relay.py PORT SECONDS [close]`.

Prints its own port. Responses are delayed by so many seconds as a whole. The relay is a separate process, so that its
CPU time counts for neither side. With ``close`` the server is asked to end each connection after its response.
"""

from __future__ import annotations

import asyncio
import sys


class Answers(asyncio.Protocol):
    """The connection to the server."""

    def __init__(self, asker: Questions, seconds: float) -> None:
        self.asker = asker
        self.seconds = seconds

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.asker.connected(transport)

    def data_received(self, data: bytes) -> None:
        asyncio.get_running_loop().call_later(self.seconds, self.asker.transport.write, data)

    def connection_lost(self, exc: Exception | None) -> None:
        asyncio.get_running_loop().call_later(self.seconds, self.asker.transport.close)


class Questions(asyncio.Protocol):
    """The connection from the client."""

    def __init__(self, port: int, seconds: float, *, close: bool) -> None:
        self.port = port
        self.seconds = seconds
        self.close = close
        self.waiting = bytearray()
        self.server: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.WriteTransport = transport  # type: ignore[assignment]
        loop = asyncio.get_running_loop()
        connecting = loop.create_connection(lambda: Answers(self, self.seconds), "127.0.0.1", self.port)
        self.connecting = loop.create_task(connecting)

    def connected(self, transport: asyncio.BaseTransport) -> None:
        self.server = transport  # type: ignore[assignment]
        transport.write(bytes(self.waiting))  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        if self.close:
            first, end, rest = data.partition(b"\r\n")
            if first.endswith(b" HTTP/1.1"):
                data = first + end + b"Connection: close\r\n" + rest
        if self.server is None:
            self.waiting += data
        else:
            self.server.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.server is not None:
            self.server.close()


async def main(port: int, seconds: float, *, close: bool) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Questions(port, seconds, close=close), "127.0.0.1", 0, backlog=256)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), float(sys.argv[2]), close="close" in sys.argv[3:]))
