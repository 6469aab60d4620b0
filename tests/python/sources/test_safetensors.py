"""safetensors checkpoints as steps: values, shards, hostile headers, growth."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import smdwidgets
from smdwidgets.exceptions import CorruptDataError, DataError, TruncatedDataError
from smdwidgets.sources import Tree
from smdwidgets.sources.safetensors import read_header


def encoded(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def entry(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def save(path, **arrays):
    header, data = {"__metadata__": {"format": "pt"}}, b""
    names = {"float32": "F32", "int64": "I64", "float16": "F16", "bool": "BOOL"}
    for name, array in arrays.items():
        header[name] = entry(names[array.dtype.name], list(array.shape), len(data), len(data) + array.nbytes)
        data += array.tobytes()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encoded(header, data))


def test_checkpoints_are_steps(tmp_path):
    for step in (5, 10):
        weight = np.arange(6, dtype=np.float32).reshape(2, 3) * step
        save(tmp_path / f"checkpoint-{step}" / "model.safetensors", weight=weight, bias=np.ones(2, np.float16))
    trial = smdwidgets.create_trial(tmp_path)
    assert trial.steps() == [5, 10]
    weight = trial.tensor("weight")
    assert weight.value(10).tolist() == [[0, 10, 20], [30, 40, 50]]
    assert (weight.shape(5), weight.dtype) == ((2, 3), np.float32)
    assert trial.tensor("bias").value(5).dtype == np.float16
    assert trial.tensor_names(collection="weights") == ["weight"]
    assert trial.tensor_names(collection="biases") == ["bias"]
    assert weight.reduction_value(10, "mean") == 25
    table = trial.statistics("weight")
    assert table["max"].tolist() == [25, 50]
    assert table["update"].tolist()[1] == pytest.approx(np.linalg.norm(np.arange(6) * 5), rel=1e-6)
    value = weight.value(5)
    value[:] = 7
    assert weight.value(5).tolist()[0] == [0, 5, 10]


def test_values_of_golden_shards(source_runs):
    trial = smdwidgets.create_trial(source_runs / "sharded")
    assert trial.tensor_names() == ["a.bias", "a.weight", "empty"]
    assert trial.tensor("a.weight").value(200).tolist() == [[200, 201, 202], [203, 204, 205]]
    assert trial.tensor("a.bias").value(100).astype(float).tolist() == [100, 100]
    assert trial.tensor("empty").value(100).shape == (0, 3)
    assert trial.statistics("a.bias", columns=["mean", "update"])["mean"].tolist() == [100, 200]
    assert trial.problems() == []


def test_missing_shard_is_a_problem(source_runs, tmp_path):
    target = tmp_path / "checkpoint-1"
    target.mkdir()
    for name in ("model-00001-of-00002.safetensors", "model.safetensors.index.json"):
        (target / name).write_bytes((source_runs / "sharded" / "checkpoint-100" / name).read_bytes())
    trial = smdwidgets.create_trial(tmp_path)
    assert trial.tensor_names() == ["a.weight"]
    [(_, message)] = trial.problems()
    path = target / "model.safetensors.index.json"
    assert message == f"{path}: 1 missing shards, such as 'checkpoint-1/model-00002-of-00002.safetensors'"


def test_one_checkpoint_without_a_step(tmp_path):
    save(tmp_path / "model.safetensors", w=np.ones(3, np.float32))
    assert smdwidgets.create_trial(tmp_path).steps() == [0]


def test_directory_of_one_checkpoint_has_its_step(tmp_path):
    save(tmp_path / "checkpoint-70" / "model.safetensors", w=np.ones(3, np.float32))
    assert smdwidgets.create_trial(tmp_path / "checkpoint-70").steps() == [70]


def test_checkpoint_that_appears_later_and_one_that_is_deleted(tmp_path):
    save(tmp_path / "checkpoint-1" / "model.safetensors", w=np.ones(3, np.float32))
    trial = smdwidgets.create_trial(tmp_path)
    assert trial.steps() == [1]
    save(tmp_path / "checkpoint-2" / "model.safetensors", w=np.full(3, 2, np.float32))
    assert trial.tensor("w").steps() == [1, 2]
    assert trial.tensor("w").value(2).tolist() == [2, 2, 2]
    (tmp_path / "checkpoint-1" / "model.safetensors").unlink()
    (tmp_path / "checkpoint-1").rmdir()
    assert trial.tensor("w").steps() == [2]


def test_checkpoint_that_is_being_written(tmp_path):
    save(tmp_path / "checkpoint-1" / "model.safetensors", w=np.ones(300, np.float32))
    path = tmp_path / "checkpoint-2" / "model.safetensors"
    save(path, w=np.ones(300, np.float32))
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    trial = smdwidgets.create_trial(tmp_path)
    assert trial.steps() == [1]
    [(_, message)] = trial.problems()
    assert f"{path}, byte 8: tensor 'w' ends at byte" in message
    path.write_bytes(whole)
    assert trial.steps() == [1, 2]
    assert trial.problems() == []


def test_file_that_was_truncated_after_it_was_opened(tmp_path):
    path = tmp_path / "checkpoint-1" / "model.safetensors"
    save(path, w=np.ones(300, np.float32))
    trial = smdwidgets.create_trial(tmp_path)
    assert trial.has_tensor("w")
    path.write_bytes(path.read_bytes()[:-100])
    with (
        pytest.raises(TruncatedDataError, match=r"model.safetensors, byte \d+: truncated file"),
        trial.refreshing(False),
    ):
        trial.tensor("w").value(1)


def test_diagnosis_of_weights(tmp_path):
    rng = np.random.default_rng(7)
    weight = rng.normal(size=(8, 8)).astype(np.float32)
    for step in range(1, 21):
        values = {"fc1.weight": weight + np.float32(step / 100), "fc2.weight": weight.copy()}
        if step > 15:
            values["fc1.weight"][0] = np.nan
        save(tmp_path / f"checkpoint-{step}" / "model.safetensors", **values)
    found = smdwidgets.diagnose(tmp_path)
    text = str(found)
    assert "explain not_finite" in text
    assert "`fc2.weight` never change" in text


def test_reductions_read_bounded_portions(tmp_path, monkeypatch):
    from smdwidgets.trials.sources import run as source_run

    monkeypatch.setattr(source_run, "_BATCH", 3000)
    for step in range(1, 5):
        save(tmp_path / f"checkpoint-{step}" / "model.safetensors", w=np.full(500, step, np.float32))
    trial = smdwidgets.create_trial(tmp_path)
    sizes = []
    read = trial.reader.run.values
    monkeypatch.setattr(trial.reader.run, "values", lambda rows, *given: sizes.append(len(rows)) or read(rows, *given))
    assert trial.reductions("w", reductions=["mean"])["mean"].tolist() == [1, 2, 3, 4]
    assert sizes == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "truncated file: expected 8 bytes, got 0"),
        (b"\xff" * 8 + b"{}", "exceeds the limit"),
        (struct.pack("<Q", 100) + b"{}", "header of 100 bytes exceeds the file of 10 bytes"),
        (encoded(b"[]"), "not a JSON object"),
        (encoded(b"{"), "invalid header"),
        (encoded(b"\xff\xfe\xfd"), "invalid header"),
        (encoded(b'{"a":' * 20_000), "invalid header"),
        (encoded(b'{"a": 1, "a": 2}'), "duplicate name"),
        (encoded({"a": 1}), "the entry must be an object"),
        (encoded({"a": entry("F33", [1], 0, 4)}, b"1234"), "unsupported dtype 'F33'"),
        (encoded({"a": entry(["F32"], [1], 0, 4)}, b"1234"), "unsupported dtype"),
        (encoded({"a": entry("F32", [-1], 0, 4)}, b"1234"), "invalid shape"),
        (encoded({"a": entry("F32", [True], 0, 4)}, b"1234"), "invalid shape"),
        (encoded({"a": entry("F32", [1.0], 0, 4)}, b"1234"), "invalid shape"),
        (encoded({"a": entry("F32", "1", 0, 4)}, b"1234"), "invalid shape"),
        (encoded({"a": entry("F32", [1] * 33, 0, 4)}, b"1234"), "invalid shape"),
        (encoded({"a": entry("F32", [1], 4, 0)}, b"1234"), "invalid data_offsets"),
        (encoded({"a": entry("F32", [1], -4, 0)}, b"1234"), "invalid data_offsets"),
        (encoded({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0]}}, b"1234"), "invalid data_offsets"),
        (encoded({"a": entry("F32", [2], 0, 4)}, b"1234"), "dtype and shape need 8"),
        (encoded({"a": entry("F32", [2**40, 2**40], 0, 4)}, b"1234"), "dtype and shape need"),
        (encoded({"a": entry("F32", [1], 4, 8)}, b"1234"), "ends at byte"),
        (encoded({"a": entry("F32", [2**50], 0, 2**52)}, b"1234"), "ends at byte"),
        (encoded({"a": entry("F32", [1], 0, 4), "b": entry("F32", [1], 2, 6)}, b"12345678"), "overlap at byte"),
    ],
)
def test_headers_that_lie_are_refused(tmp_path, content, message):
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(DataError, match=r"model\.safetensors, byte [08]: ") as caught:
        read_header(Tree(tmp_path), "model.safetensors")
    assert message in str(caught.value)


def test_a_refused_file_is_a_problem_of_its_run(tmp_path):
    save(tmp_path / "checkpoint-1" / "model.safetensors", w=np.ones(3, np.float32))
    bad = tmp_path / "checkpoint-2" / "model.safetensors"
    bad.parent.mkdir()
    bad.write_bytes(encoded({"a": entry("F32", [1], 0, 400)}, b"1234"))
    trial = smdwidgets.create_trial(tmp_path)
    assert (trial.steps(), trial.tensor_names()) == ([1], ["w"])
    [(key, message)] = trial.problems()
    assert (key, str(bad) in message) == ("checkpoint-2/model.safetensors", True)


def test_other_files_named_safetensors_are_ignored(tmp_path):
    (tmp_path / "a.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    with pytest.raises(FileNotFoundError):
        smdwidgets.create_trial(tmp_path)


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["dtype", "shape", "data_offsets", "w"]), inner)
    ),
    max_leaves=12,
)
_ENTRIES = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(["F32", "BF16", "BOOL", "F4", 3]),
        "shape": st.lists(st.integers(-2, 2**65), max_size=4) | _VALUES,
        "data_offsets": st.lists(st.integers(-2, 60) | st.integers(0, 2**65), max_size=3) | _VALUES,
    }
)


@given(
    st.dictionaries(st.text(max_size=4), _ENTRIES | _VALUES, max_size=5).map(lambda header: json.dumps(header).encode())
    | st.binary(max_size=60),
    st.integers(-9, 9),
    st.binary(max_size=40),
)
def test_any_header_is_read_within_the_file_or_refused(tmp_path_factory, text, off, data):
    path = tmp_path_factory.getbasetemp() / "any.safetensors"
    path.write_bytes(struct.pack("<q", len(text) + off) + text + data)
    try:
        found = read_header(Tree(path), path.name)
    except (CorruptDataError, TruncatedDataError):
        return
    end = 0
    for one in found:
        assert one.offset >= max(8, end)
        end = one.offset + one.length
        assert end <= path.stat().st_size
