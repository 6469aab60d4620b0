"""Logs are read as by TensorBoard's EventAccumulator with unlimited sizes."""

from __future__ import annotations

import io
import struct
import wave
from pathlib import Path

import numpy as np
from PIL import Image

from python.logs.logs import accumulated, event, field, integer, shape, strings, tensor, value, writer
from smdwidgets import create_trial
from smdwidgets.trials import TensorBoardTrial


def sound_header(frames: int) -> bytes:
    """A WAV file of that many frames, as writers store it in a summary."""
    wav = io.BytesIO()
    with wave.open(wav, "wb") as out:
        out.setparams((1, 2, 8000, frames, "NONE", ""))
        out.writeframes(np.arange(frames, dtype="<i2").tobytes())
    header = b"\x0d" + struct.pack("<f", 8000) + integer(2, 1) + integer(3, frames)
    return header + field(4, wav.getvalue()) + field(5, "audio/wav")


def test_log_of_tensorboardx(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    with writer(tmp_path) as log:
        for step in range(12):
            log.add_scalar("loss/train", 1 / (step + 1), step)
            log.add_scalar("accuracy", step / 12, step)
            if step % 3 == 0:
                log.add_histogram("weights", rng.normal(size=500), step)
                log.add_image("picture", rng.integers(0, 255, (3, 5, 7), dtype=np.uint8), step)
                log.add_text("notes", f"step *{step}*", step)
        log.add_pr_curve("curve", rng.integers(0, 2, 100), rng.uniform(size=100), 3, num_thresholds=11)
    (tmp_path / "events.out.tfevents.9.host").write_bytes(event(value("sound", field(6, sound_header(400))), 2))
    theirs = accumulated(tmp_path)
    with create_trial(tmp_path) as trial:
        assert isinstance(trial, TensorBoardTrial)
        assert trial.problems() == []
        for tag, rows in theirs["scalars"].items():
            table = trial.scalars(tag)
            ours = zip(table["step"], table["wall_time"], table["value"], strict=True)
            assert [tuple(row) for row in rows] == list(ours)
            assert [trial.tensor(tag).value(row[0]).item() for row in rows] == [row[2] for row in rows]
        for tag, rows in theirs["histograms"].items():
            assert trial.tensor(tag).steps() == [row[0] for row in rows]
            for step, wall_time, (low, high, num, total, squares, limits, counts) in rows:
                fields = trial.event(tag, step).value
                assert (fields["min"], fields["max"], fields["num"]) == (low, high, num)
                assert (fields["sum"], fields["sum_squares"]) == (total, squares)
                assert (fields["limits"].tolist(), fields["counts"].tolist()) == (limits, counts)
                buckets = trial.tensor(tag).value(step)
                assert buckets.shape == (len(limits), 3)
                assert buckets[:, 2].sum() == num
                assert trial.wall_time(tag, step) == wall_time
        for tag, rows in theirs["images"].items():
            assert [(step, trial.event(tag, step).value["encoded"].hex()) for step, _, _ in rows] == [
                (step, encoded) for step, _, encoded in rows
            ]
            assert trial.tensor(tag).value(rows[0][0]).shape == (5, 7, 3)
        for tag, rows in theirs["audio"].items():
            for step, rate, encoded, content_type in rows:
                header = trial.event(tag, step).value
                assert (header["sample_rate"], header["content_type"]) == (rate, content_type)
                assert header["encoded"].hex() == encoded
                assert trial.tensor(tag).value(step)[:, 0].tolist() == list(range(400))
        assert theirs["tensors"].keys() == {"notes/text_summary", "curve"}
        for tag, tensors in theirs["tensors"].items():
            for step, _, sizes, elements in tensors:
                ours = trial.tensor(tag).value(step)
                assert (list(ours.shape), [str(one) for one in ours.reshape(-1).tolist()]) == (sizes, elements)
        everything = {tag for kind in theirs.values() for tag in kind}
        assert set(trial.tensor_names()) == everything


NUMBERS = {
    "float32": 1, "float64": 2, "int32": 3, "uint8": 4, "int16": 5, "int8": 6, "complex64": 8, "int64": 9, "bool": 10,
    "uint16": 17, "complex128": 18, "float16": 19, "uint32": 22, "uint64": 23,
}  # fmt: skip


def test_tensors_of_every_dtype(tmp_path: Path) -> None:
    arrays = {dtype: np.arange(6).reshape(2, 3).astype(dtype) for dtype in NUMBERS}
    records = [event(value(dtype, tensor(array, NUMBERS[dtype]), "mine"), 4) for dtype, array in arrays.items()]
    (tmp_path / "events.out.tfevents.1.host").write_bytes(b"".join(records))
    theirs = accumulated(tmp_path)["tensors"]
    with create_trial(tmp_path) as trial:
        for dtype, array in arrays.items():
            found = trial.tensor(dtype).value(4)
            assert found.dtype == array.dtype
            np.testing.assert_array_equal(found, array)
            [(step, _, sizes, elements)] = theirs[dtype]
            assert (step, sizes, elements) == (4, [2, 3], [str(one) for one in array.reshape(-1).tolist()])


def test_typed_fields_of_a_tensor_packed_and_unpacked(tmp_path: Path) -> None:
    packed = field(8, integer(1, 9) + shape(3) + field(10, b"\x01\x02\x03"))
    single = field(8, integer(1, 3) + shape(2) + integer(7, 5) + integer(7, 6))
    filled = field(8, integer(1, 3) + shape(2, 2) + integer(7, 9))
    values = {"packed": packed, "single": single, "filled": filled}
    content = b"".join(event(value(tag, one, "mine"), 1) for tag, one in values.items())
    (tmp_path / "events.out.tfevents.1.host").write_bytes(content)
    theirs = accumulated(tmp_path)["tensors"]
    with create_trial(tmp_path) as trial:
        for tag in values:
            [(_, _, sizes, elements)] = theirs[tag]
            found = trial.tensor(tag).value(1)
            assert (list(found.shape), [str(one) for one in found.reshape(-1).tolist()]) == (sizes, elements)


def test_forms_of_tensorflow_2(tmp_path: Path) -> None:
    png = io.BytesIO()
    Image.fromarray(np.arange(12, dtype=np.uint8).reshape(2, 2, 3)).save(png, "PNG")
    buckets = np.array([[0.0, 1.0, 3.0], [1.0, 2.0, 4.0]])
    content = [
        event(field(3, "brain.Event:2")),
        event(value("epoch_loss", tensor(np.float32(0.5).reshape(()), 1), "scalars"), 1),
        # Only the first value of a tag must name its plugin.
        event(value("epoch_loss", tensor(np.float32(0.25).reshape(()), 1)), 2),
        event(value("kernel", tensor(buckets, 2), "histograms"), 1),
        event(value("image", strings(b"2", b"2", png.getvalue(), png.getvalue()), "images"), 1),
        event(value("text", strings("naïve".encode(), of=()), "text"), 1),
    ]
    (tmp_path / "events.out.tfevents.1.host.v2").write_bytes(b"".join(content))
    with create_trial(tmp_path) as trial:
        assert trial.problems() == []
        assert {step: one.item() for step, one in trial.tensor("epoch_loss").values().items()} == {1: 0.5, 2: 0.25}
        np.testing.assert_array_equal(trial.tensor("kernel").value(1), buckets)
        assert trial.tensor("image").value(1).shape == (2, 2, 2, 3)
        assert trial.tensor("text").value(1) == "naïve"
        assert trial.tensor_names(collection="scalars") == ["epoch_loss"]
        assert trial.tensor_names(collection="histograms") == ["kernel"]
        assert trial.tensor_names(collection="images") == ["image"]
        assert trial.tensor_names(collection="text") == ["text"]
        assert trial.tensor_names(collection="losses") == ["epoch_loss"]


def test_hyperparameters(tmp_path: Path) -> None:
    with writer(tmp_path) as log:
        log.add_hparams({"lr": 0.1, "optimizer": "sgd", "nesterov": True}, {"accuracy": 0.5}, name="trial")
    with create_trial(tmp_path / "trial") as trial:
        assert trial.hparams() == {"lr": 0.1, "optimizer": "sgd", "nesterov": True}
        assert trial.tensor("accuracy").value(0).item() == 0.5
