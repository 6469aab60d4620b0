"""An independent parser of TFRecord framing, to check files with."""

from __future__ import annotations

import struct
from typing import NamedTuple

from smdwidgets import _core


class Record(NamedTuple):
    """A record: offset, payload, and whether the footer is the payload's checksum."""

    offset: int
    payload: bytes
    checked: bool


def records(data: bytes) -> list[Record]:
    """Return the complete records of a file whose headers are valid."""
    found, at = [], 0
    while at + 12 <= len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        if at + 16 + length > len(data):
            break
        payload = data[at + 12 : at + 12 + length]
        (footer,) = struct.unpack_from("<I", data, at + 12 + length)
        found.append(Record(at, payload, footer == _core.masked_crc(payload)))
        at += 16 + length
    return found
