"""Frames over a pipe: a length and as many bytes."""

from __future__ import annotations

import struct
from typing import IO

_LENGTH = struct.Struct(">Q")


def write_frame(stream: IO[bytes], content: bytes) -> None:
    """Write one frame.

    >>> import io
    >>> write_frame(stream := io.BytesIO(), b"task")
    >>> read_frame(io.BytesIO(stream.getvalue()))
    b'task'
    """
    stream.write(_LENGTH.pack(len(content)))
    stream.write(content)
    stream.flush()


def read_frame(stream: IO[bytes]) -> bytes:
    """Read one frame; raise EOFError if the other side ended."""
    (length,) = _LENGTH.unpack(_read(stream, _LENGTH.size))
    return _read(stream, length)


def _read(stream: IO[bytes], count: int) -> bytes:
    content = stream.read(count)
    if len(content) < count:
        raise EOFError("the other process ended")
    return content
