"""Runs that grow by copies of one step.

Used by both sides; needs only Python.
"""

import json
import shutil
import struct
from pathlib import Path

STEP = "000000000000"
#: Position of an event's step: after its time; missing at step 0.
BEFORE_STEP = 9
STEP_SIZE = 6


def folder_of(step):
    """Return the index folder of a step."""
    return f"index/{step // 1000:09d}"


def masked_crc(data):
    """Return the checksum of a record's header."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def step_field(step):
    """Encode a step in a fixed number of bytes."""
    return b"\x10" + bytes([step >> 7 * at & 0x7F | 0x80 for at in range(4)]) + bytes([step >> 28])


class Growing:
    """A run of `steps` steps in a folder; `grow` adds the next."""

    def __init__(self, root, template, steps):
        self.root = Path(root)
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.copytree(template / "collections", self.root / "collections")
        event = (template / f"events/{STEP}/{STEP}_worker_0.tfevents").read_bytes()
        index = json.loads((template / f"{folder_of(0)}/{STEP}_worker_0.json").read_text())
        self.parts = []
        start = 0
        for place in index["tensor_payload"]:
            record = event[place["start_idx"] :][: place["length"]]
            length = struct.pack("<Q", len(record) - 16 + STEP_SIZE)
            before = length + struct.pack("<I", masked_crc(length)) + record[12 : 12 + BEFORE_STEP]
            self.parts.append((before, record[12 + BEFORE_STEP :]))
            # The checksum was that of step 0.
            place.pop("crc32c", None)
            place["start_idx"], place["length"] = start, len(record) + STEP_SIZE
            start += place["length"]
        self.index = json.dumps(index)
        self.next = 0
        for _ in range(steps):
            self.grow()

    def grow(self):
        """Write the next step, its event file first."""
        name = f"{self.next:012d}"
        event = self.root / f"events/{name}/{name}_worker_0.tfevents"
        event.parent.mkdir(parents=True, exist_ok=True)
        field = step_field(self.next)
        event.write_bytes(b"".join(before + field + behind for before, behind in self.parts))
        index = self.root / folder_of(self.next) / f"{name}_worker_0.json"
        index.parent.mkdir(parents=True, exist_ok=True)
        text = self.index.replace(STEP, name).replace('"mode_step": 0', f'"mode_step": {self.next}')
        partial = index.with_suffix(".tmp")
        partial.write_text(text)
        partial.replace(index)
        self.next += 1
        return self.next - 1
