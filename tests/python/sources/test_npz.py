"""Archives of NumPy arrays as checkpoints."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import smdwidgets
from smdwidgets import cli
from smdwidgets.exceptions import RunNotFound
from smdwidgets.numpy import Hook, SaveConfig


def save(path: Path, **arrays: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **arrays)
    return path


def test_arrays_are_tensors_at_the_steps_of_their_names(tmp_path: Path) -> None:
    arrays = {
        "layer/w": np.arange(6, dtype=np.float32).reshape(2, 3),
        "fortran": np.asfortranarray(np.arange(24, dtype=np.int16).reshape(2, 3, 4)),
        "scalar": np.float64(2.5),
        "flags": np.array([True, False]),
        "complex": np.array([1 + 2j]),
        "empty": np.zeros((0, 3)),
    }
    save(tmp_path / "step_10.npz", **arrays)
    save(tmp_path / "checkpoint-20" / "model.npz", **{name: value * 0 for name, value in arrays.items()})
    with smdwidgets.create_trial(tmp_path) as trial:
        assert set(trial.tensor_names()) == set(arrays)
        for name, array in arrays.items():
            assert trial.tensor(name).steps() == [10, 20]
            value = trial.tensor(name).value(10)
            assert (value.dtype, value.shape) == (np.asarray(array).dtype, np.shape(array))
            assert np.array_equal(value, array)
        assert trial.statistics("layer/w")["max"].tolist() == [5, 0]
        assert trial.problems() == []
    assert cli.main(["verify", str(tmp_path)]) == 0


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    save(
        tmp_path / "step_1.npz",
        w=np.ones(2),
        objects=np.array([{}], object),
        text=np.array(["a"]),
        big=np.ones(2, ">f4"),
    )
    np.savez_compressed(tmp_path / "step_2.npz", w=np.ones(2))
    with smdwidgets.create_trial(tmp_path) as trial:
        assert trial.tensor_names() == ["w"]
        assert trial.tensor("w").steps() == [1]
        [first, second] = (message for _, message in trial.problems())
    assert "objects (objects, which are not unpickled)" in first
    assert "text (dtype <U1), big (dtype >f4)" in first
    assert "w (record 'w.npy' is compressed)" in second


def test_a_flipped_bit_is_found(tmp_path: Path) -> None:
    path = save(tmp_path / "step_1.npz", w=np.full(100, 2000.0))
    content = bytearray(path.read_bytes())
    content[content.find(np.float64(2000).tobytes()) + 7] ^= 0x40
    path.write_bytes(content)
    assert cli.main(["verify", str(tmp_path)]) == 1


@pytest.mark.parametrize(
    "header",
    [b"", b"\x93NUMPY\x01\x00\xff\xff{", b"\x93NUMPY\x01\x00\x10\x00{'descr': (1,2)}\n", b"\x80\x04cos\nsystem\n"],
)
def test_damaged_arrays(tmp_path: Path, header: bytes) -> None:
    with zipfile.ZipFile(tmp_path / "step_1.npz", "w") as archive:
        archive.writestr("w.npy", header)
    with smdwidgets.create_trial(tmp_path) as trial:
        assert trial.tensor_names() == []
        [(key, message)] = trial.problems()
    assert key == "step_1.npz"
    assert "array 'w'" in message


def test_an_array_larger_than_its_record(tmp_path: Path) -> None:
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": "<f8", "fortran_order": False, "shape": (10**12,)})
    with zipfile.ZipFile(tmp_path / "step_1.npz", "w") as archive:
        archive.writestr("w.npy", stream.getvalue())
    with smdwidgets.create_trial(tmp_path) as trial:
        assert "exceeds its record" in trial.problems()[0][1]


def test_data_sets_are_no_checkpoints(tmp_path: Path) -> None:
    save(tmp_path / "mnist.npz", x_train=np.zeros((4, 2)))
    with pytest.raises(RunNotFound, match="maybe a data set"):
        smdwidgets.create_trial(tmp_path)
    with smdwidgets.create_trial(tmp_path / "mnist.npz") as trial:
        assert trial.tensor("x_train").value(0).shape == (4, 2)


def test_an_export_comes_back(tmp_path: Path) -> None:
    with Hook(tmp_path / "run", save_config=SaveConfig(save_interval=1), save_all=True) as hook:
        for step in range(3):
            hook.save_tensor("a/w", np.full((2, 2), step, np.float32))
            hook.step()
    assert cli.main(["export", str(tmp_path / "run"), "--to", "npz", "-o", str(tmp_path / "out.npz")]) == 0
    with smdwidgets.create_trial(tmp_path / "out.npz") as trial:
        assert trial.tensor_names() == ["a/w"]
        assert {step: value[0, 0] for step, value in trial.tensor("a/w").values().items()} == {0: 0, 1: 1, 2: 2}
