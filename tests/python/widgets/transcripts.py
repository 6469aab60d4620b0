"""Record conversations between a page and the kernel in tests/transcripts/.

The front end's tests replay them. The kernel must still say what the files contain. After an intended change, write
them with::

    WRITE_TRANSCRIPTS=1 python -m pytest tests/python/widgets -k "transcripts or demo"
"""

from __future__ import annotations

import base64
import json
import math
import os
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from python.widgets.talk import Page
from smdwidgets.pictures import unpack
from smdwidgets.pictures.packet import pack
from smdwidgets.widgets.protocol import check_request

TRANSCRIPTS = Path(__file__).parents[2] / "transcripts"
WRITE = bool(os.environ.get("WRITE_TRANSCRIPTS"))


class Recorder(Page):
    """A page that records what it sends and receives."""

    def __init__(self, widget: Any) -> None:
        super().__init__(widget)
        self._received: list[dict[str, Any]] = []
        self.exchanges: list[dict[str, Any]] = []

    def _receive(self, message: dict[str, Any], buffers: Any) -> None:
        packets = [text(portable(buffer)) for buffer in buffers]
        self._received.append({"message": {**message, "id": "id"} if "id" in message else message, "packets": packets})
        super()._receive(message, buffers)

    def exchange(self, what: str, **arguments: Any) -> dict[str, Any]:
        """Send a request, and record and return the reply's last message."""
        sent = {"what": what, **arguments}
        check_request(sent, exact=True)
        message, _ = self.ask(what, **arguments)
        self._record(sent)
        return message

    def news(self) -> None:
        """Record what the kernel pushes."""
        self._widget.request_handler.poll()
        self._record(None)

    def _record(self, sent: dict[str, Any] | None) -> None:
        received, self._received = self._received, []
        assert not self.faults, self.faults
        self.exchanges.append({"sent": sent, "received": received})


def portable(packet: bytes) -> bytes:
    """Remove the directory, times and colours of this recording from a packet."""
    head, arrays = unpack(packet)
    if head["kind"] == "runs":
        return pack({**head, "root": "runs"}, arrays)
    if head["kind"] != "catalog":
        return bytes(packet)
    restarted = None if head["restarted_at"] is None else 1.7e9
    same = {"path": f"runs/{head['name']}", "last_write": None, "restarted_at": restarted, "colour": head["run"]}
    return pack({**head, **same}, arrays)


def text(packet: bytes) -> str:
    return base64.b64encode(zlib.compress(packet, 9)).decode("ascii")


def packet_of(text: str) -> bytes:
    return zlib.decompress(base64.b64decode(text))


def compare(name: str, now: Any) -> None:
    """Compare a recording with the stored one, exactly but for rounding errors."""
    path = TRANSCRIPTS / f"{name}.json"
    now = json.loads(json.dumps(now, allow_nan=False))
    if WRITE:
        path.write_text(lines(now) + "\n")
    stored = json.loads(path.read_text())
    same(now, stored, name)


def lines(recorded: Any) -> str:
    """Return JSON with one exchange a line."""
    if isinstance(recorded, dict) and "sent" not in recorded and "message" not in recorded:
        return "{\n" + ",\n".join(f"{json.dumps(key)}: {lines(value)}" for key, value in recorded.items()) + "\n}"
    if isinstance(recorded, list) and any(isinstance(each, (list, dict)) for each in recorded):
        return "[\n" + ",\n".join(map(lines, recorded)) + "\n]"
    return json.dumps(recorded, separators=(",", ":"))


def same(now: Any, stored: Any, where: str) -> None:
    """Raise AssertionError with the place at which two recordings differ."""
    if isinstance(now, dict) and isinstance(stored, dict):
        assert now.keys() == stored.keys(), where
        for key, value in now.items():
            if key == "packets":
                assert len(value) == len(stored[key]), f"{where}: packets"
                for i, (mine, its) in enumerate(zip(value, stored[key], strict=True)):
                    same_packet(mine, its, f"{where}.packets[{i}]")
            else:
                same(value, stored[key], f"{where}.{key}")
    elif isinstance(now, list) and isinstance(stored, list):
        assert len(now) == len(stored), f"{where}: {len(now)} now, {len(stored)} stored"
        for i, (mine, its) in enumerate(zip(now, stored, strict=True)):
            about = mine.get("sent") if isinstance(mine, dict) else None
            same(mine, its, f"{where}[{i}]" + (f" {about}" if about else ""))
    elif isinstance(now, float) and isinstance(stored, float):  # logarithms differ by machine in the last digit
        assert math.isclose(now, stored, rel_tol=1e-12), where
    else:
        assert now == stored, where


def same_packet(now: str, stored: str, where: str) -> None:
    (head, arrays), (stored_head, stored_arrays) = unpack(packet_of(now)), unpack(packet_of(stored))
    same(head, stored_head, where)
    assert arrays.keys() == stored_arrays.keys(), where
    for name, array in arrays.items():
        its = stored_arrays[name]
        assert (array.dtype, array.shape) == (its.dtype, its.shape), f"{where}: {name}"
        if head["kind"] == "survey" and name in {"lo", "mid", "hi", "shown"}:  # codes of rounded logarithms
            np.testing.assert_allclose(array.astype(int), its.astype(int), atol=1, err_msg=f"{where}: {name}")
        elif array.dtype.kind == "f":
            np.testing.assert_allclose(array, its, rtol=1e-9, atol=1e-12, err_msg=f"{where}: {name}")
        else:
            np.testing.assert_array_equal(array, its, err_msg=f"{where}: {name}")
