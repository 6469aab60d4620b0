"""Write small PNG files with a palette."""

from __future__ import annotations

import struct
import zlib

import numpy as np
from numpy.typing import NDArray


def encode(indices: NDArray[np.uint8], palette: NDArray[np.uint8]) -> bytes:
    """Return an image as PNG.

    Args:
        indices: the palette index of each pixel.
        palette: colours, of shape (n, 3).

    >>> encode(np.zeros((2, 3), np.uint8), np.zeros((1, 3), np.uint8))[:8]
    b'\\x89PNG\\r\\n\\x1a\\n'
    """
    height, width = indices.shape
    rows = np.zeros((height, width + 1), np.uint8)  # each row begins with its filter: none
    rows[:, 1:] = indices
    head = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    chunks = (
        (b"IHDR", head),
        (b"PLTE", palette.tobytes()),
        (b"IDAT", zlib.compress(rows.tobytes(), 6)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
