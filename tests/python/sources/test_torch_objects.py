"""Checkpoints of PyTorch with more than weights, and their checksums."""

from __future__ import annotations

import argparse
import io
import pickle
import sys
import types
import zipfile
from collections import OrderedDict

import numpy as np
import pytest

import smdwidgets
from smdwidgets import cli
from smdwidgets.exceptions import CorruptDataError
from smdwidgets.sources.tensor_pickle import Opaque, read_pickle


class FakeStorage:
    def __init__(self, key):
        self.key = key


class FakeTensor:
    """A tensor as torch.save describes it, without PyTorch."""

    def __init__(self, values):
        self.values = np.asarray(values, np.float32)


class FakeModule:
    """An object with the attributes of a module of PyTorch."""

    def __init__(self, parameters=(), modules=(), buffers=()):
        self._parameters = dict(parameters)
        self._modules = dict(modules)
        self._buffers = dict(buffers)
        self.training = True
        self.hook = argparse.Namespace(a=1)


class Sparse:
    def __init__(self, indices, values, size):
        self.parts = indices, values, size


@pytest.fixture
def saved(monkeypatch):
    """Return a function that writes a checkpoint as torch.save does."""

    def placeholder(name):
        def call(*_):
            raise AssertionError("called")

        call.__module__, call.__qualname__, call.__name__ = "torch._utils", name, name
        return call

    torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")
    torch._utils = utils
    for name in ("_rebuild_tensor_v2", "_rebuild_sparse_tensor"):
        setattr(utils, name, placeholder(name))
    torch.FloatStorage = type("FloatStorage", (), {"__module__": "torch"})
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "torch._utils", utils)

    def write(path, root, compress=zipfile.ZIP_STORED):
        storages = []

        class Writer(pickle.Pickler):
            def persistent_id(self, value):
                return ("storage", torch.FloatStorage, value.key, "cpu", 4) if isinstance(value, FakeStorage) else None

            def reducer_override(self, value):
                if isinstance(value, Sparse):
                    return utils._rebuild_sparse_tensor, ("torch.sparse_coo", value.parts)
                if not isinstance(value, FakeTensor):
                    return NotImplemented
                storages.append(value.values.tobytes())
                shape = value.values.shape
                strides = tuple(stride // 4 for stride in value.values.strides)
                storage = FakeStorage(str(len(storages) - 1))
                return utils._rebuild_tensor_v2, (storage, 0, shape, strides, False, OrderedDict())

        buffer = io.BytesIO()
        Writer(buffer, protocol=2).dump(root)
        with zipfile.ZipFile(path, "w", compress) as out:
            out.writestr("a/data.pkl", buffer.getvalue())
            for at, data in enumerate(storages):
                out.writestr(f"a/data/{at}", data)
        return path

    return write


def test_objects_beside_the_weights_are_left_out(saved, tmp_path):
    for step in (1, 2, 3):
        args = argparse.Namespace(lr=0.1, nested=argparse.Namespace())
        saved(
            tmp_path / f"checkpoint_{step}.pth",
            {
                "model": {"fc.weight": FakeTensor([[step, 2]])},
                "args": args,
                "best": np.float64(0.5),
                "epoch": step,
            },
        )
    trial = smdwidgets.create_trial(tmp_path)
    assert trial.tensor_names() == ["fc.weight"]
    assert trial.tensor("fc.weight").steps() == [1, 2, 3]
    assert trial.tensor("fc.weight").value(2).tolist() == [[2, 2]]
    [(key, message)] = trial.problems()
    assert key == "checkpoint_1.pth"
    assert "left out: args (argparse.Namespace), best (numpy" in message
    assert message.endswith("; the same in 2 more checkpoints")


def test_weights_with_an_object_among_them(saved, tmp_path):
    saved(tmp_path / "step_1.pt", {"a": FakeTensor([1]), "b": argparse.Namespace(x=FakeTensor([2])), "c": np.arange(3)})
    trial = smdwidgets.create_trial(tmp_path)
    assert trial.tensor_names() == ["a", "b.x"]
    assert trial.tensor("b.x").value(1).tolist() == [2]
    [(_, message)] = trial.problems()
    assert "left out: c (numpy" in message
    assert "argparse" not in message


def test_whole_module(saved, tmp_path):
    inner = FakeModule({"weight": FakeTensor([1, 2]), "bias": None}, (), {"running_mean": FakeTensor([3])})
    saved(tmp_path / "model_4.pt", FakeModule({"scale": FakeTensor([5])}, {"0": inner}))
    trial = smdwidgets.create_trial(tmp_path)
    assert trial.tensor_names() == ["0.running_mean", "0.weight", "scale"]
    assert trial.tensor("0.weight").value(4).tolist() == [1, 2]
    assert trial.problems() == []


def test_module_in_a_dictionary(saved, tmp_path):
    saved(tmp_path / "step_1.pt", {"model": FakeModule({"w": FakeTensor([1])}), "ema": FakeModule()})
    assert smdwidgets.create_trial(tmp_path).tensor_names() == ["w"]


def test_state_of_optimizers(saved, tmp_path):
    state = {
        "state": {at: {"step": FakeTensor(7), "exp_avg_sq": FakeTensor([at, at])} for at in (0, 1)},
        "param_groups": [{"lr": 0.1, "params": [0, 1]}],
    }
    weights = {"fc.weight": FakeTensor([1, 2]), "bn.running_var": FakeTensor([1]), "fc.bias": FakeTensor([3, 4])}
    saved(tmp_path / "step_1.pt", {"model_state_dict": weights, "optimizer_state_dict": state})
    saved(tmp_path / "step_2.pt", {"state_dict": {"w": FakeTensor([1])}, "optimizer_states": [state]})
    trial = smdwidgets.create_trial(tmp_path)
    assert trial.tensor("optimizer/0/fc.bias/exp_avg_sq").value(1).tolist() == [1, 1]
    assert trial.tensor("optimizer/0/fc.weight/step").value(1).item() == 7
    assert trial.tensor("optimizer/0/1/exp_avg_sq").steps() == [2], "as many names as parameters are needed"
    assert trial.problems() == []


def test_parts_of_a_sparse_tensor(saved, tmp_path):
    sparse = Sparse(FakeTensor([[0, 1]]), FakeTensor([5, 6]), (3,))
    saved(tmp_path / "step_1.pt", {"dense": FakeTensor([1]), "sparse": sparse})
    trial = smdwidgets.create_trial(tmp_path)
    assert trial.tensor_names() == ["dense", "sparse.indices", "sparse.values"]
    assert trial.tensor("sparse.values").value(1).tolist() == [5, 6]


def test_flipped_bit_in_a_checkpoint(saved, tmp_path, capsys):
    path = saved(tmp_path / "ckpt_1.pt", {"w": FakeTensor(np.arange(4096)), "v": FakeTensor([1])})
    assert cli.main(["verify", str(tmp_path)]) == 0
    assert "3 checksums verified" in capsys.readouterr().out
    data = bytearray(path.read_bytes())
    at = data.find(np.float32(2000).tobytes())
    data[at + 3] ^= 0x40
    path.write_bytes(data)
    trial = smdwidgets.create_trial(tmp_path)
    with pytest.raises(CorruptDataError, match=r"ckpt_1\.pt, byte \d+: tensor 'w': checksum mismatch: stored"):
        trial.tensor("w").value(1)
    assert trial.tensor("v").value(1).tolist() == [1]
    assert trial.statistics()["name"].tolist() == ["v"]
    assert cli.main(["verify", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert "ckpt_1.pt at byte" in out
    assert "record 'data/0': checksum mismatch" in out
    assert "1 fault." in out


def test_flipped_bit_in_the_names(saved, tmp_path):
    path = saved(tmp_path / "ckpt_1.pt", {"weight": FakeTensor([1])})
    path.write_bytes(path.read_bytes().replace(b"weight", b"weighs"))
    [(_, message)] = smdwidgets.create_trial(tmp_path).problems()
    assert "record 'data.pkl': checksum mismatch" in message


def test_checkpoint_without_checksums(saved, tmp_path, capsys):
    path = saved(tmp_path / "ckpt_1.pt", {"w": FakeTensor([1, 2])})
    with zipfile.ZipFile(path) as archive:
        sums = [entry.CRC.to_bytes(4, "little") for entry in archive.infolist()]
    data = path.read_bytes()
    for one in sums:
        data = data.replace(one, bytes(4))
    path.write_bytes(data)
    assert smdwidgets.create_trial(tmp_path).tensor("w").value(1).tolist() == [1, 2]
    assert cli.main(["verify", str(tmp_path)]) == 0
    assert "0 checksums verified" in capsys.readouterr().out


def test_containers_of_other_classes():
    class Config(dict):
        pass

    Config.__module__, Config.__qualname__ = "__main__", "Config"
    sys.modules["__main__"].Config = Config
    try:
        data = pickle.dumps({"config": Config(a=1), "tags": {"x"}, "frozen": frozenset([1])}, protocol=4)
    finally:
        del sys.modules["__main__"].Config
    found = read_pickle(data)
    assert isinstance(found["config"], Opaque)
    assert (found["config"].kind, found["config"].entries) == ("__main__.Config", {"a": 1})
    assert (found["tags"], found["frozen"]) == (["x"], [1])
