"""Packets: self-describing little-endian blocks that carry run data to a browser.

The layout is described in docs/widget-protocol.md.

>>> head, arrays = unpack(pack({"kind": "series"}, {"y": np.array([1.5, 2.5])}))
>>> head["kind"], arrays["y"].tolist()
('series', [1.5, 2.5])
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

VERSION = 1
LARGEST = 1 << 20
"""Maximum total size of the buffers of one message: a larger message would delay all later ones."""

LARGEST_STEP = 1 << 53
"""Largest step that is shown: browser numbers are float64, which are exact only up to here."""

_MAGIC = b"SMDP"
_PREFIX = struct.Struct("<4sHHII")
_DTYPES = {"u1", "u2", "u4", "i4", "f4", "f8"}


def pack(head: Mapping[str, Any], arrays: Mapping[str, ArrayLike] | None = None) -> bytes:
    """Encode a head and named arrays; integers of more than 32 bits become float64."""
    layout: dict[str, tuple[str, list[int], int]] = {}
    parts: list[bytes] = []
    at = 0
    for name, given in (arrays or {}).items():
        array = _portable(np.asarray(given))
        data = array.tobytes()
        layout[name] = (array.dtype.str[1:], list(array.shape), at)
        padding = -len(data) % 8
        parts += [data, bytes(padding)]
        at += len(data) + padding
    text = json.dumps({**head, "arrays": layout}, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # A name can hold a lone surrogate, which UTF-8 cannot encode.
    encoded = text.encode("utf-8", "replace")
    gap = -(_PREFIX.size + len(encoded)) % 8
    size = _PREFIX.size + len(encoded) + gap + at
    return b"".join([_PREFIX.pack(_MAGIC, VERSION, 0, len(encoded), size), encoded, bytes(gap), *parts])


def unpack(packet: bytes | memoryview) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Decode a packet to its head and arrays, as the browser does.

    Used by tests and to inspect exported pages.
    """
    magic, version, _, length, size = _PREFIX.unpack_from(packet)
    if magic != _MAGIC or version > VERSION or size != len(packet):
        raise ValueError(
            f"invalid packet: magic {magic!r}, version {version}, size {size}; "
            f"expected magic {_MAGIC!r}, version {VERSION} or lower, size {len(packet)}"
        )
    head: dict[str, Any] = json.loads(bytes(packet[_PREFIX.size : _PREFIX.size + length]))
    start = _PREFIX.size + length + (-(_PREFIX.size + length) % 8)
    arrays = {}
    for name, (dtype, shape, offset) in head.pop("arrays").items():
        count = int(np.prod(shape, dtype=np.int64))
        arrays[name] = np.frombuffer(packet, "<" + dtype, count, start + offset).reshape(shape).copy()
    return head, arrays


def _portable(array: NDArray[Any]) -> NDArray[Any]:
    """Convert the array to one of the dtypes that packets support."""
    if array.dtype.str[1:] not in _DTYPES:
        array = array.astype(np.float64)
    return np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(array.shape)
