"""Write logs with tensorboardX or byte by byte, and read them with TensorBoard."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from tensorboardX import SummaryWriter

from smdwidgets import _core

FILE = "events.out.tfevents.1700000000.host"


def log(directory: Path, content: bytes, file: str = FILE) -> Path:
    """Write or append to an event file of a directory."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / file).open("ab") as out:
        out.write(content)
    return directory


def field(number: int, content: bytes | str) -> bytes:
    """A length-delimited field of a protobuf message."""
    content = content.encode() if isinstance(content, str) else content
    return varint(number << 3 | 2) + varint(len(content)) + content


def varint(value: int) -> bytes:
    out = b""
    value &= (1 << 64) - 1
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def integer(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value)


def event(content: bytes, step: int = 0, wall_time: float = 100.0) -> bytes:
    """Return a record of an event with this content."""
    return _core.write_record(b"\x09" + struct.pack("<d", wall_time) + (integer(2, step) if step else b"") + content)


def value(tag: str, content: bytes, plugin: str = "", plugin_content: bytes = b"", data_class: int = 0) -> bytes:
    about = field(1, field(1, plugin) + field(2, plugin_content)) if plugin else b""
    about += integer(4, data_class) if data_class else b""
    metadata = field(9, about) if about else b""
    return field(5, field(1, field(1, tag) + content + metadata))


def shape(*sizes: int) -> bytes:
    return field(2, b"".join(field(2, integer(1, size)) for size in sizes))


def tensor(array: np.ndarray[Any, Any], number: int) -> bytes:
    """The tensor field of a value, with elements as raw content."""
    return field(8, integer(1, number) + shape(*array.shape) + field(4, array.tobytes()))


def strings(*texts: bytes, of: tuple[int, ...] | None = None) -> bytes:
    """The tensor field of a string value."""
    return field(8, integer(1, 7) + shape(*(of or (len(texts),))) + b"".join(field(8, text) for text in texts))


def scalars(tags: dict[str, list[float]], first: int = 0) -> bytes:
    """Records of scalars, one per step."""
    rows = zip(*tags.values(), strict=True)
    return b"".join(
        _core.scalar_record(tag, step, 100.0 + step, number)
        for step, row in enumerate(rows, first)
        for tag, number in zip(tags, row, strict=True)
    )


def writer(path: Path, **options: Any) -> SummaryWriter:
    return SummaryWriter(str(path), **options)


_ACCUMULATE = """
import json, sys
import numpy as np
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
unlimited = dict.fromkeys(
    ("scalars", "histograms", "images", "audio", "tensors", "compressedHistograms", "graph", "meta_graph", "run_metadata"), 0
)
log = EventAccumulator(sys.argv[1], size_guidance=unlimited)
log.Reload()
tags = log.Tags()
fields = ("min", "max", "num", "sum", "sum_squares", "bucket_limit", "bucket")
found = {"scalars": {}, "histograms": {}, "images": {}, "audio": {}, "tensors": {}}
for tag in tags["scalars"]:
    found["scalars"][tag] = [(e.step, e.wall_time, float(e.value)) for e in log.Scalars(tag)]
for tag in tags["histograms"]:
    found["histograms"][tag] = [
        (e.step, e.wall_time, [getattr(e.histogram_value, field) for field in fields]) for e in log.Histograms(tag)
    ]
for tag in tags["images"]:
    found["images"][tag] = [(e.step, e.wall_time, e.encoded_image_string.hex()) for e in log.Images(tag)]
for tag in tags["audio"]:
    found["audio"][tag] = [(e.step, e.sample_rate, e.encoded_audio_string.hex(), e.content_type) for e in log.Audio(tag)]
for tag in tags["tensors"]:
    from tensorboard.util.tensor_util import make_ndarray
    def plain(x):
        return x.decode() if isinstance(x, bytes) else str(x)
    found["tensors"][tag] = []
    for e in log.Tensors(tag):
        array = make_ndarray(e.tensor_proto)
        found["tensors"][tag].append((e.step, e.wall_time, list(array.shape), [plain(x) for x in array.reshape(-1).tolist()]))
print(json.dumps(found))
"""


def accumulated(path: Path) -> dict[str, dict[str, list[Any]]]:
    """Read a directory with TensorBoard's own reader, in a separate process."""
    asked = [sys.executable, "-W", "ignore", "-c", _ACCUMULATE, str(path)]
    done = subprocess.run(asked, capture_output=True, text=True, check=True)
    answer: dict[str, dict[str, list[Any]]] = json.loads(done.stdout)
    return answer
