"""Every kind of value, killed writers and damage, also in growing logs."""

from __future__ import annotations

import io
import os
import signal
import struct
import subprocess
import sys
import time
import wave
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from python.logs.logs import FILE, accumulated, event, field, integer, log, scalars, shape, strings, tensor, value
from smdwidgets import create_trial
from smdwidgets.trials import TensorBoardTrial

#: Typed fields of a tensor by dtype: (number of the dtype, number of the field, encoding of an element).
TYPED = {
    "float32": (1, 5, "<f"), "float64": (2, 6, "<d"), "int32": (3, 7, None), "uint8": (4, 7, None), "int16": (5, 7, None),
    "int8": (6, 7, None), "int64": (9, 10, None), "bool": (10, 11, None), "uint16": (17, 7, None), "uint32": (22, 16, None),
    "uint64": (23, 17, None), "complex64": (8, 9, "<ff"), "complex128": (18, 12, "<dd"),
}  # fmt: skip


def packed(array: np.ndarray, number: int, in_field: int, form: str | None) -> bytes:
    """The tensor field of a value, with elements in the packed typed field."""
    if form is None:
        from python.logs.logs import varint

        elements = b"".join(varint(int(element)) for element in array.reshape(-1))
    else:
        parts = array.reshape(-1).view(array.real.dtype) if array.dtype.kind == "c" else array.reshape(-1)
        elements = b"".join(struct.pack("<" + form[-1], part) for part in parts.tolist())
    return field(8, integer(1, number) + shape(*array.shape) + field(in_field, elements))


def one_by_one(array: np.ndarray, number: int, in_field: int) -> bytes:
    """The same with one field per element."""
    elements = b"".join(integer(in_field, int(element)) for element in array.reshape(-1))
    return field(8, integer(1, number) + shape(*array.shape) + elements)


def test_every_dtype_packed_and_unpacked(tmp_path: Path) -> None:
    values, records, unsupported = {}, [], []
    for dtype, (number, in_field, form) in TYPED.items():
        array = (np.arange(6).reshape(2, 3) % 2 if dtype == "bool" else np.arange(6).reshape(2, 3)).astype(dtype)
        if array.dtype.kind in "ifc" and dtype != "uint8":
            array = array - array.dtype.type(2)
        # TensorBoard's reader supports the larger unsigned integers as raw content only.
        into = unsupported if dtype in ("uint32", "uint64") else records
        values[f"{dtype}/packed"] = array
        into.append(event(value(f"{dtype}/packed", packed(array, number, in_field, form), "mine"), 1))
        if form is None:
            values[f"{dtype}/single"] = array
            into.append(event(value(f"{dtype}/single", one_by_one(array, number, in_field), "mine"), 1))
    halves = np.array([1.5, -2.0, 0.25], np.float16)
    codes = b"".join(integer(13, int(code)) for code in halves.view(np.uint16))
    values["float16/single"] = halves
    records.append(event(value("float16/single", field(8, integer(1, 19) + shape(3) + codes), "mine"), 1))
    log(tmp_path, b"".join(records))
    theirs = accumulated(tmp_path)["tensors"]
    log(tmp_path, b"".join(unsupported))
    with create_trial(tmp_path) as trial:
        assert trial.problems() == []
        for name, array in values.items():
            found = trial.tensor(name).value(1)
            assert (found.dtype, found.shape) == (array.dtype, array.shape), name
            np.testing.assert_array_equal(found, array, err_msg=name)
            if not name.startswith(("uint32", "uint64")):
                [(_, _, sizes, elements)] = theirs[name]
                assert (sizes, elements) == ([*array.shape], [str(one) for one in array.reshape(-1).tolist()]), name


def test_bfloat16_as_raw_content_and_as_fields(tmp_path: Path) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    array = np.array([1.0, -0.5, 3.140625], ml_dtypes.bfloat16)
    codes = b"".join(integer(13, int(code)) for code in array.view(np.uint16))
    log(tmp_path, event(value("content", tensor(array, 14), "mine"), 1))
    log(tmp_path, event(value("fields", field(8, integer(1, 14) + shape(3) + codes), "mine"), 1))
    with create_trial(tmp_path) as trial:
        for name in ("content", "fields"):
            found = trial.tensor(name).value(1)
            assert found.dtype == array.dtype
            assert found.astype(float).tolist() == [1.0, -0.5, 3.140625]
            assert trial.tensor(name).reduction_value(1, "max") == 3.140625


def sound(frames: list[int], width: int = 2) -> bytes:
    out = io.BytesIO()
    with wave.open(out, "wb") as wav:
        wav.setparams((1, width, 8000, len(frames), "NONE", ""))
        wav.writeframes(np.array(frames, f"<i{width}").tobytes())
    return out.getvalue()


def test_audio_in_the_format_of_tensorflow_2(tmp_path: Path) -> None:
    several = strings(sound([1, -2, 3]), b"left", sound([4, 5, 6]), b"right", of=(2, 2))
    written = {
        "one": strings(sound([7, -8], width=4), b"", of=(1, 2)),
        "several": several,
        "unequal": strings(sound([1]), b"", sound([2, 3]), b"", of=(2, 2)),
        "no labels": strings(sound([9])),
        "another coding": strings(b"ID3\x04", b"", of=(1, 2)),
        "cut short": strings(sound([1, 2, 3])[:20], b"", of=(1, 2)),
    }
    for tag, content in written.items():
        log(tmp_path, event(value(tag, content, "audio"), 1))
    with create_trial(tmp_path) as trial:
        assert trial.problems() == []
        assert set(trial.tensor_names(collection="audio")) == set(written)
        found = {tag: trial.tensor(tag).value(1) for tag in written}
        assert (found["one"].dtype, found["one"].tolist()) == (np.int32, [[7], [-8]])
        assert found["several"].tolist() == [[[1], [-2], [3]], [[4], [5], [6]]]
        assert [one.tolist() for one in found["unequal"]] == [[[1]], [[2], [3]]]
        assert found["no labels"].tolist() == [[9]]
        assert found["another coding"].tobytes() == b"ID3\x04"
        assert found["cut short"].tobytes() == sound([1, 2, 3])[:20]


SCALAR, TENSOR, BLOB_SEQUENCE = 1, 2, 3


def test_data_class_determines_the_kind_for_unknown_plugins(tmp_path: Path) -> None:
    number, row = np.float32(0.5).reshape(()), np.arange(3, dtype=np.float32)
    written = {
        ("mine/number", "custom plugin", SCALAR): (tensor(number, 1), "scalars"),
        ("no plugin/number", "", SCALAR): (tensor(number, 1), "scalars"),
        ("mine/row", "custom plugin", TENSOR): (tensor(row, 1), "tensors"),
        ("mine/blobs", "custom plugin", BLOB_SEQUENCE): (strings(b"\x00\xff", b"b"), "tensors"),
        ("mine/unsaid", "custom plugin", 0): (tensor(number, 1), "tensors"),
        ("mine/unknown", "custom plugin", 9): (tensor(number, 1), "tensors"),
        ("scalars/number", "scalars", SCALAR): (tensor(number, 1), "scalars"),
        ("scalars/row", "scalars", TENSOR): (tensor(row, 1), "tensors"),
        ("histograms", "histograms", TENSOR): (tensor(np.ones((2, 3)), 2), "histograms"),
        ("images", "images", BLOB_SEQUENCE): (strings(b"1", b"1", png(np.zeros((1, 1, 4), np.uint16), 6)), "images"),
        ("text", "text", TENSOR): (strings(b"a", of=()), "text"),
    }
    for (tag, plugin, data_class), (content, _) in written.items():
        log(tmp_path, event(value(tag, content, plugin, data_class=data_class), 1))
        # Only the first value of a tag must state its kind.
        log(tmp_path, event(value(tag, content), 2))
    with create_trial(tmp_path) as trial:
        assert trial.problems() == []
        assert set(trial.tensor_names()) == {tag for tag, _, _ in written}
        for (tag, _, _), (_, collection) in written.items():
            assert tag in trial.tensor_names(collection=collection), tag
            assert trial.tensor(tag).steps() == [1, 2]
        for tag in ("mine/number", "no plugin/number", "scalars/number"):
            assert trial.scalars(tag)["value"].tolist() == [0.5, 0.5]
        assert trial.tensor("mine/row").value(2).tolist() == trial.tensor("scalars/row").value(1).tolist() == [0, 1, 2]
        assert trial.tensor("mine/unsaid").value(1).dtype == np.float32
        assert trial.tensor("mine/blobs").value(1).tolist() == [b"\x00\xff", b"b"]


def test_invalid_value_of_a_scalar_tag_is_reported(tmp_path: Path) -> None:
    log(tmp_path, event(value("row", tensor(np.arange(3.0), 2), "mine", data_class=SCALAR), 1) + scalars({"loss": [1]}))
    with create_trial(tmp_path) as trial:
        [(_, message)] = trial.problems()
        assert "'row'" in message or '"row"' in message
        assert "scalar" in message
        assert trial.tensor_names() == ["loss"]


def encoded(pixels: np.ndarray, kind: str) -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, kind)
    return out.getvalue()


def png(pixels: np.ndarray, colour: int) -> bytes:
    """A PNG with 16 bits and alpha, which Pillow cannot write."""
    import zlib

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in pixels)
    head = struct.pack(">IIBBBBB", pixels.shape[1], pixels.shape[0], 16, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def test_images_of_all_formats(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    deep = rng.integers(0, 65535, (3, 5, 4), dtype=np.uint16)
    grey = rng.integers(0, 65535, (3, 5, 2), dtype=np.uint16)
    flat = np.full((8, 8, 3), [200, 40, 90], np.uint8)
    images = {
        "deep with alpha": (png(deep, 6), deep, 0),
        "deep grey with alpha": (png(grey, 4), grey, 0),
        "jpeg": (encoded(flat, "JPEG"), flat, 3),
        "gif": (encoded(flat, "GIF"), flat, 0),
    }
    for tag, (content, _, _) in images.items():
        log(tmp_path, event(value(tag, field(4, field(4, content))), 2))
        log(tmp_path, event(value(tag + ", TF2", strings(b"5", b"3", content), "images"), 2))
    with create_trial(tmp_path) as trial:
        assert trial.problems() == []
        for tag, (_, pixels, near) in images.items():
            for name in (tag, tag + ", TF2"):
                found = trial.tensor(name).value(2)
                assert (found.dtype, found.shape) == (pixels.dtype, pixels.shape), name
                np.testing.assert_allclose(found.astype(int), pixels.astype(int), atol=near, err_msg=name)
        assert len(trial.tensor_names(collection="images")) == 8


def test_damage_between_valid_records_of_a_growing_log(tmp_path: Path) -> None:
    with create_trial(log(tmp_path, scalars({"loss": [0, 1]})), live=True) as trial:
        assert trial.steps() == [0, 1]
        broken = bytearray(scalars({"loss": [2]}, first=2))
        broken[3] ^= 0xFF  # its length
        log(tmp_path, bytes(broken))
        assert trial.steps() == [0, 1]
        assert "no valid record follows" in trial.problems()[0][1]
        log(tmp_path, scalars({"loss": [3, 4]}, first=3))
        assert trial.steps() == [0, 1, 3, 4]
        assert "reading resumed at byte" in trial.problems()[0][1]
        assert len(trial.problems()) == 1


WRITE = """
import sys, time
from tensorboardX import SummaryWriter
log = SummaryWriter(sys.argv[1], filename_suffix=sys.argv[2], flush_secs=1, purge_step=int(sys.argv[3]) or None)
for step in range(int(sys.argv[3]), 10**9):
    log.add_scalar("loss", step, step)
    log.flush()
    print(step, flush=True)
    time.sleep(0.001)
"""


@pytest.mark.skipif(os.name == "nt", reason="there is no SIGKILL")
@pytest.mark.slow
def test_reader_continues_after_writers_are_killed(tmp_path: Path) -> None:
    trial: TensorBoardTrial | None = None
    begin = 0
    for life in range(3):
        command = [sys.executable, "-c", WRITE, str(tmp_path), f".{life}", str(begin)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout
            try:
                written = int(writer.stdout.readline())
                end = time.monotonic() + 60
                while trial is None or trial.tensor("loss").steps()[-1:] < [begin + 40]:
                    assert time.monotonic() < end
                    written = int(writer.stdout.readline())
                    if trial is None and written > 5:
                        opened = create_trial(tmp_path, live=True)
                        assert isinstance(opened, TensorBoardTrial)
                        trial = opened
            finally:
                writer.send_signal(signal.SIGKILL)
                writer.stdout.read()
        assert trial is not None
        steps = trial.tensor("loss").steps()
        assert steps == list(range(steps[-1] + 1))
        assert trial.problems() == []
        # The next writer resumes from a checkpoint before the end.
        begin = steps[-1] - 15
    assert trial is not None
    assert [step for step in trial.orphans("loss")["step"].tolist() if step < begin] != []
    theirs = accumulated(tmp_path)["scalars"]["loss"]
    assert [(step, number) for step, _, number in theirs] == [
        (step, one.item()) for step, one in trial.tensor("loss").values().items()
    ]
    with create_trial(tmp_path, keep_orphans=True) as everything:
        assert set(everything.tensor("loss").steps()) >= set(trial.tensor("loss").steps())
    trial.close()


def test_file_truncated_by_its_writer_is_read_again(tmp_path: Path) -> None:
    whole = scalars({"loss": [0, 1, 2, 3]})
    with create_trial(log(tmp_path, whole), live=True) as trial:
        assert trial.steps() == [0, 1, 2, 3]
        os.truncate(tmp_path / FILE, len(whole) // 2)
        assert trial.steps() == [0, 1]
