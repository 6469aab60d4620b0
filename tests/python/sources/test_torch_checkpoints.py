"""PyTorch checkpoints: read without unpickling, or refused with the reason."""

from __future__ import annotations

import io
import pickle
import struct
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import smdwidgets
from smdwidgets.exceptions import DataError, UnsupportedDataError
from smdwidgets.sources import Tree
from smdwidgets.sources.tensor_pickle import Opaque, PickledTensor, read_pickle, tensors_of
from smdwidgets.sources.torch_checkpoints import read_checkpoint


@pytest.fixture
def golden(source_runs):
    return smdwidgets.create_trial(source_runs / "torch")


def test_state_of_a_model(golden):
    assert golden.tensor("0.weight").steps() == [1, 2, 4]
    first, second = (golden.tensor("0.weight").value(step) for step in (1, 2))
    assert (first.shape, first.dtype) == ((3, 4), np.float32)
    assert second == pytest.approx(first + 1)
    assert golden.tensor("1.bias").value(1).shape == (1,)
    assert "0.weight" in golden.tensor_names(collection="weights")


def test_views_of_one_storage(golden):
    assert golden.tensor("transposed").value(3).tolist() == [[0, 4, 8], [1, 5, 9], [2, 6, 10], [3, 7, 11]]
    assert golden.tensor("row").value(3).tolist() == [4, 5, 6, 7]
    assert golden.tensor("half").value(3).dtype == np.float16
    assert golden.tensor("flag").value(3).tolist() == [True]


def test_refused_checkpoints_name_the_reason(golden):
    problems = dict(golden.problems())
    assert list(problems) == ["step_5.pt"]
    assert "the format of PyTorch before 1.6" in problems["step_5.pt"]


def test_whole_model_has_the_names_of_its_state(golden):
    for name in ("0.weight", "0.bias", "1.weight", "1.bias"):
        assert golden.tensor(name).steps() == [1, 2, 4]
        assert np.array_equal(golden.tensor(name).value(4), golden.tensor(name).value(2))


def test_checkpoints_of_lightning(source_runs):
    trial = smdwidgets.create_trial(source_runs / "lightning")
    assert trial.tensor("layer.weight").steps() == [4, 8, 12]
    assert trial.problems() == []


class Evil:
    """Runs when it is unpickled."""

    def __reduce__(self):
        return exec, ("import smdwidgets; smdwidgets.evil = True",)


def archive(path, root, **records):
    """Write an archive as torch.save does."""
    with zipfile.ZipFile(path, "w") as out:
        out.writestr("a/data.pkl", root if isinstance(root, bytes) else pickle.dumps(root, protocol=2))
        for name, data in records.items():
            out.writestr(f"a/data/{name}", data)
    return path


def tensor_pickle(key="0", kind="FloatStorage", offset=0, shape=(2,), strides=(1,)):
    """Return the pickle of a dictionary with one tensor."""

    def number(value):
        data = value.to_bytes(9, "little", signed=True)
        return b"\x8a\x09" + data

    def text(value):
        return b"X" + struct.pack("<I", len(value)) + value.encode()

    def numbers(values):
        return b"(" + b"".join(map(number, values)) + b"t"

    storage = b"(" + text("storage") + f"ctorch\n{kind}\n".encode() + text(key) + text("cpu") + number(2) + b"tQ"
    call = b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + number(offset) + numbers(shape) + numbers(strides)
    return b"\x80\x02}" + text("w") + call + b"\x89ccollections\nOrderedDict\n)RtRs."


def test_written_archive_is_read(tmp_path):
    data = np.array([1, 2], np.float32).tobytes()
    archive(tmp_path / "step_3.pt", tensor_pickle(), **{"0": data})
    assert smdwidgets.create_trial(tmp_path).tensor("w").value(3).tolist() == [1, 2]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"offset": 1}, "exceeds its record"),
        ({"shape": (2**40,)}, "exceeds its record"),
        ({"shape": (2**40,), "strides": (0,)}, "repeats its elements"),
        ({"shape": (-1,)}, "invalid sizes"),
        ({"strides": (-1,)}, "invalid sizes"),
        ({"strides": ()}, "invalid tensor"),
        ({"key": "1"}, "record 'data/1' is missing"),
        ({"key": "../0"}, "is missing"),
        ({"kind": "QInt8Storage"}, "no tensor that can be read; left out: w (storage QInt8Storage)"),
        ({"kind": "nn"}, "no tensor that can be read; left out: w (storage nn)"),
    ],
)
def test_tensors_that_lie_are_refused(tmp_path, given, reason):
    path = archive(tmp_path / "step_3.pt", tensor_pickle(**given), **{"0": bytes(8)})
    with pytest.raises(DataError) as caught:
        read_checkpoint(Tree(tmp_path), path.name)
    assert reason in str(caught.value)
    assert str(caught.value).startswith(str(path))


@pytest.mark.parametrize("protocol", range(6))
def test_nothing_is_executed(tmp_path, protocol):
    archive(tmp_path / "step_3.pt", pickle.dumps({"w": Evil()}, protocol=protocol))
    with pytest.raises(
        UnsupportedDataError, match=r"step_3\.pt: (no tensor .* w \((builtins|__builtin__)\.exec|pickle)"
    ):
        read_checkpoint(Tree(tmp_path), "step_3.pt")
    assert not hasattr(smdwidgets, "evil")
    if protocol < 1:
        with pytest.raises(UnsupportedDataError):
            read_pickle(pickle.dumps(Evil(), protocol=protocol))
    else:
        assert isinstance(read_pickle(pickle.dumps(Evil(), protocol=protocol)), Opaque)
    assert not hasattr(smdwidgets, "evil")


def test_compressed_and_truncated_archives(tmp_path):
    with zipfile.ZipFile(tmp_path / "step_1.pt", "w", zipfile.ZIP_DEFLATED) as out:
        out.writestr("a/data.pkl", bytes(100_000))
    whole = archive(tmp_path / "step_2.pt", tensor_pickle(), **{"0": bytes(8)}).read_bytes()
    (tmp_path / "step_2.pt").write_bytes(whole[:-30])
    problems = smdwidgets.create_trial(tmp_path).problems()
    assert ["is compressed" in problems[0][1], "damaged or incomplete archive" in problems[1][1]] == [True, True]


def test_checkpoint_that_is_complete_later(tmp_path):
    path = archive(tmp_path / "step_2.pt", tensor_pickle(), **{"0": bytes(8)})
    whole = path.read_bytes()
    path.write_bytes(whole[:-30])
    trial = smdwidgets.create_trial(tmp_path)
    assert len(trial.problems()) == 1
    path.write_bytes(whole)
    assert trial.tensor("w").steps() == [2]
    assert trial.problems() == []


def test_containers_without_end():
    loop = []
    loop.append(loop)
    with pytest.raises(UnsupportedDataError, match="nested too deeply"):
        tensors_of(read_pickle(pickle.dumps(loop, protocol=2)))
    level = [1]
    for _ in range(35):
        level = [level, level]
    with pytest.raises(UnsupportedDataError, match="nested too deeply"):
        tensors_of(read_pickle(pickle.dumps(level, protocol=2)))


@given(st.binary(max_size=300))
def test_any_pickle_is_read_or_refused(data):
    try:
        read_pickle(data)
    except UnsupportedDataError:
        return


_PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4) | st.tuples(inner, inner),
    max_leaves=20,
)


@given(_PLAIN, st.integers(2, 5))
def test_plain_values_are_those_of_pickle(value, protocol):
    data = pickle.dumps(value, protocol=protocol)
    assert read_pickle(data) == value


@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), min_size=1, max_size=8))
def test_any_damage_is_read_within_the_file_or_refused(tmp_path_factory, changes):
    path = tmp_path_factory.getbasetemp() / "step_1.pt"
    buffer = io.BytesIO()
    archive(buffer, tensor_pickle(), **{"0": bytes(8)})
    data = bytearray(buffer.getvalue())
    for at, byte in changes:
        data[at % len(data)] = byte
    path.write_bytes(data)
    try:
        found = read_checkpoint(Tree(path), path.name).tensors
    except DataError:
        return
    for tensor in found:
        assert tensor.offset + tensor.length <= len(data)


def test_a_tensor_is_no_container():
    assert list(tensors_of({"a": [PickledTensor(None, 0, (1,), (1,))]}).tensors) == ["a.0"]
