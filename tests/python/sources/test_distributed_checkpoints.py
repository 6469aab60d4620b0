"""Distributed checkpoints: equal to what PyTorch reads, without unpickling."""

from __future__ import annotations

import hashlib
import io
import json
import pickle
import random
import shutil
import sys
import zipfile

import numpy as np
import pytest

import smdwidgets
from smdwidgets import cli
from smdwidgets.exceptions import CorruptDataError, DataError, RunNotFound, SMDebugError
from smdwidgets.sources import Tree
from smdwidgets.sources.distributed_checkpoints import read_metadata


@pytest.fixture
def run(source_runs, tmp_path):
    """Return a copy of the checkpoints that two processes wrote."""
    return shutil.copytree(source_runs / "distributed", tmp_path / "run")


def digest(value):
    return [str(value.dtype), list(value.shape), hashlib.sha256(value.tobytes()).hexdigest()]


def test_values_are_those_that_torch_reads(source_runs):
    truth = json.loads((source_runs / "distributed" / "truth.json").read_text())
    trial = smdwidgets.create_trial(source_runs / "distributed")
    assert trial.steps() == [1, 2]
    assert trial.problems() == []
    assert set(trial.tensor_names()) == set(truth["1"])
    for step, tensors in truth.items():
        for name, expected in tensors.items():
            assert digest(trial.tensor(name).value(int(step))) == expected, (name, step)
    assert {"0.weight", "2.weight"} <= set(trial.tensor_names(collection="weights"))


def test_one_checkpoint_and_statistics(source_runs):
    trial = smdwidgets.create_trial(source_runs / "distributed" / "step-2")
    assert trial.tensor("count").steps() == [2]
    assert trial.tensor("empty").value(2).shape == (0, 3)
    table = trial.statistics("columns")
    assert (table["count"].tolist(), table["mean"].tolist()) == ([12], [11])


def test_opening_reads_no_file_with_values(run, monkeypatch):
    read = []
    whole = Tree.read
    monkeypatch.setattr(Tree, "read", lambda tree, key, *place: read.append(key) or whole(tree, key, *place))
    trial = smdwidgets.create_trial(run)
    assert trial.tensor("0.weight").steps() == [1, 2]
    assert not [key for key in read if key.endswith(".distcp")]
    trial.tensor("0.weight").value(1)
    assert {key for key in read if key.endswith(".distcp")} == {"step-1/__0_0.distcp", "step-1/__1_0.distcp"}


def test_missing_file_is_named(run, capsys):
    shard = run / "step-2" / "__1_0.distcp"
    content = shard.read_bytes()
    shard.unlink()
    trial = smdwidgets.create_trial(run)
    [(key, problem)] = trial.problems()
    assert key == "step-2/.metadata"
    assert "1 of 2 files are missing ('__1_0.distcp'), with parts of " in problem
    with pytest.raises(CorruptDataError, match=r"__1_0\.distcp: this file of the distributed checkpoint is missing"):
        trial.tensor("0.weight").value(2)
    assert trial.tensor("0.weight").value(1).shape == (5, 3)
    assert cli.main(["verify", str(run)]) == 1
    assert "'__1_0.distcp'" in capsys.readouterr().out
    assert cli.main(["diagnose", str(run)]) == 0
    shard.write_bytes(content)
    assert trial.steps() == [1, 2]
    assert trial.problems() == []
    assert trial.tensor("0.weight").value(2).shape == (5, 3)


def test_truncated_file(run):
    shard = run / "step-1" / "__1_0.distcp"
    content = shard.read_bytes()
    shard.write_bytes(content[:5000])
    trial = smdwidgets.create_trial(run)
    [(_, problem)] = trial.problems()
    assert f"'__1_0.distcp' is truncated: 5,000 of {len(content):,} bytes" in problem
    with pytest.raises(CorruptDataError, match=r"__1_0\.distcp, byte \d+: truncated file"):
        trial.tensor("columns").value(1)


def test_flipped_bit_is_noticed(run, capsys):
    value = smdwidgets.create_trial(run).tensor("0.weight").value(1)[4]
    shard = run / "step-1" / "__1_0.distcp"
    content = bytearray(shard.read_bytes())
    content[content.index(value.tobytes()) + 3] ^= 0x40
    shard.write_bytes(content)
    with pytest.raises(CorruptDataError, match=r"__1_0\.distcp, byte \d+: .*checksum mismatch"):
        smdwidgets.create_trial(run).tensor("0.weight").value(1)
    assert cli.main(["verify", str(run)]) == 1
    assert "checksum mismatch" in capsys.readouterr().out


def test_without_metadata_the_checkpoint_is_incomplete(run):
    for step in (1, 2):
        (run / f"step-{step}" / ".metadata").unlink()
    with pytest.raises(RunNotFound, match=r"without its index \.metadata, which is written last"):
        smdwidgets.create_trial(run)


@pytest.mark.parametrize("name", [".metadata", "__0_0.distcp"])
def test_one_file_is_refused_with_the_reason(run, name):
    with pytest.raises(RunNotFound, match="of a distributed checkpoint; open its directory"):
        smdwidgets.create_trial(run / "step-1" / name)


def test_links_to_other_places_are_not_followed(run, tmp_path):
    shard = run / "step-1" / "__0_0.distcp"
    shard.rename(tmp_path / "outside")
    shard.symlink_to(tmp_path / "outside")
    with pytest.raises(CorruptDataError, match="is missing"):
        smdwidgets.create_trial(run).tensor("0.weight").value(1)


# ------------------------------------------------------------------------------------------------- made without PyTorch


class _Pickler(pickle._Pickler):
    """Writes the names of classes that do not exist here."""

    def save_global(self, obj, name=None):
        self.write(f"c{obj.__module__}\n{obj.__qualname__}\n".encode())
        self.memoize(obj)

    dispatch = {**pickle._Pickler.dispatch, type: save_global}

    def persistent_id(self, obj):
        return obj.given if isinstance(obj, _Persistent) else None


class _Persistent:
    def __init__(self, *given):
        self.given = given


def dumps(root):
    out = io.BytesIO()
    _Pickler(out, protocol=2).dump(root)
    return out.getvalue()


def named(module, name):
    return type(name, (), {"__module__": module})


_CHECKPOINT = "torch.distributed.checkpoint"


def described(name, module=f"{_CHECKPOINT}.metadata", **attributes):
    """Return an object of a class of PyTorch."""
    instance = named(module, name)()
    instance.__dict__.update(attributes)
    return instance


class _Call:
    """A call in a pickle."""

    def __init__(self, module, name, *arguments):
        self._call = named(module, name), arguments

    def __reduce__(self):
        function, arguments = self._call
        return _Function(function), arguments


class _Function:
    """A class that pickle takes for a function."""

    def __new__(cls, function):
        return function


def size(*numbers):
    return _Call("torch", "Size", numbers)


class Metadata:
    """A checkpoint with one file, whose metadata tests change."""

    def __init__(self, dtype="float32"):
        self.tensors, self.places, self.paths, self.records = {}, {}, {}, b""
        self.dtype = dtype

    def add(self, name, shape, *regions, dtype=None, properties=None, file="__0_0.distcp", **about):
        """Add a tensor of regions (begin, values or the shape that is claimed)."""
        chunks = []
        for begin, content in regions:
            is_value = isinstance(content, np.ndarray)
            record = region(content) if is_value else region(np.zeros(2, np.float32))
            chunks.append(
                described(
                    "ChunkStorageMetadata", offsets=size(*begin), sizes=size(*(content.shape if is_value else content))
                )
            )
            index = _Index(name, begin)
            self.places[index] = described(
                "_StorageInfo", f"{_CHECKPOINT}.filesystem",
                **{"relative_path": file, "offset": len(self.records), "length": len(record), **about},
            )  # fmt: skip
            self.records += record
        self.tensors[name] = described(
            "TensorStorageMetadata",
            properties=properties or _Properties(dtype or self.dtype), size=size(*shape), chunks=chunks,
        )  # fmt: skip
        return self

    def write(self, folder):
        folder.mkdir(parents=True, exist_ok=True)
        root = described(
            "Metadata", state_dict_metadata=self.tensors, planner_data=self.paths, storage_data=self.places
        )
        (folder / ".metadata").write_bytes(dumps(root))
        (folder / "__0_0.distcp").write_bytes(self.records)
        return folder


class _Index:
    def __init__(self, name, begin):
        self._given = name, begin

    def __reduce__(self):
        name, begin = self._given
        state = {"fqn": name, "index": None, "offset": None if begin is None else size(*begin)}
        return _Function(named("copyreg", "_made")), (named(f"{_CHECKPOINT}.metadata", "MetadataIndex"),), state


class _Properties:
    def __init__(self, dtype):
        self._dtype = dtype

    def __reduce__(self):
        state = (named("torch", self._dtype), None, False, None, False, None)
        return _Function(named("copyreg", "_made")), (named(f"{_CHECKPOINT}.metadata", "TensorProperties"),), state


_STORAGES = {"float32": "FloatStorage", "int64": "LongStorage"}


def region(value):
    """Return a tensor as ``torch.save`` writes it."""
    value = np.ascontiguousarray(value)
    storage = _Persistent("storage", named("torch", _STORAGES[value.dtype.name]), "0", "cpu", value.size)
    strides = [one // value.itemsize for one in value.strides]
    root = _Call("torch._utils", "_rebuild_tensor_v2", storage, 0, value.shape, tuple(strides), False, {})
    return archived(dumps(root), value.tobytes())


def archived(root, data=b""):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("archive/data.pkl", root)
        archive.writestr("archive/byteorder", "little")
        archive.writestr("archive/data/0", data)
    return out.getvalue()


NUMBERS = np.arange(12, dtype=np.float32).reshape(3, 4)


def test_regions_of_a_grid_are_joined(tmp_path):
    parts = [((row, column), NUMBERS[row : row + 2, column : column + 3]) for row in (0, 2) for column in (0, 3)]
    folder = Metadata().add("w", (3, 4), *parts).write(tmp_path / "step-3")
    assert smdwidgets.create_trial(folder).tensor("w").value(3).tolist() == NUMBERS.tolist()


@pytest.mark.parametrize(
    ("shape", "regions", "about", "reason"),
    [
        ((3, 4), [((0, 0), NUMBERS[:2])], {}, "its regions have 8 of 12 elements"),
        ((3, 4), [((0, 0), NUMBERS[:2]), ((1, 0), NUMBERS[:1])], {}, r"at \(0, 0\) and \(1, 0\) overlap"),
        ((3, 4), [((1, 0), NUMBERS)], {}, r"\(3, 4\) at \(1, 0\) exceeds its shape"),
        ((3, 4), [((0,), NUMBERS)], {}, "invalid shape"),
        ((2**40,), [((0,), (2**40,))], {}, "exceeds the [0-9,]+ bytes of its record"),
        ((2**40,), [((0,), (2**40,))], {"length": 2**50}, "bytes, but the files have"),
        ((3, 4), [((0, 0), NUMBERS)], {"offset": -1}, "invalid place"),
        ((3, 4), [((0, 0), NUMBERS)], {"length": "1"}, "invalid place"),
        ((3, 4), [((0, 0), NUMBERS)], {"relative_path": "../a.distcp"}, "not below the directory"),
        ((3, 4), [((0, 0), NUMBERS)], {"relative_path": "/etc/passwd"}, "not below the directory"),
        ((3, 4), [((0, 0), NUMBERS)], {"relative_path": 5}, "invalid place"),
        ((), [], {}, "invalid shape or regions"),
        ((2**70,), [((0,), NUMBERS[0])], {}, "invalid shape or regions"),
    ],
)  # fmt: skip
def test_metadata_that_lie_are_refused(tmp_path, shape, regions, about, reason):
    folder = Metadata().add("w", shape, *regions, **about).write(tmp_path / "step-3")
    with pytest.raises(CorruptDataError, match=reason) as caught:
        read_metadata(Tree(folder), ".metadata")
    assert str(caught.value).startswith(str(folder / ".metadata"))


def test_records_that_are_claimed_many_times(tmp_path):
    about = Metadata().add("w", (1000, 2), *(((row, 0), NUMBERS[:1, :2]) for row in range(1000)))
    for place in about.places.values():
        place.offset = 0
    about.records = about.records[:3000]
    with pytest.raises(CorruptDataError, match="bytes, but the files have 3,000"):
        read_metadata(Tree(about.write(tmp_path / "step-3")), ".metadata")


@pytest.mark.parametrize(
    ("shape", "dtype", "reason"),
    [((4, 3), "float32", r"float32 of shape \(3, 4\), but the metadata say float32"), ((3, 4), "int32", "say int32")],
)
def test_a_record_that_is_not_what_the_metadata_say(tmp_path, shape, dtype, reason):
    about = Metadata(dtype).add("w", (3, 4), ((0, 0), NUMBERS))
    about.tensors["w"].size = size(*shape)
    about.tensors["w"].chunks[0].sizes = size(*shape)
    trial = smdwidgets.create_trial(about.write(tmp_path / "step-3"))
    with pytest.raises(CorruptDataError, match=reason):
        trial.tensor("w").value(3)


def test_what_is_not_read_is_named(tmp_path):
    about = Metadata().add("w", (3, 4), ((0, 0), NUMBERS)).add("q", (2,), ((0,), NUMBERS[0, :2]), dtype="qint8")
    about.add("z", (2,), ((0,), NUMBERS[0, :2]), transform_descriptors=["stream.zstd"])
    trial = smdwidgets.create_trial(about.write(tmp_path / "step-3"))
    assert trial.tensor_names() == ["w"]
    [(_, problem)] = trial.problems()
    assert "left out: q (dtype qint8), z (records transformed by ['stream.zstd'])" in problem


@pytest.mark.parametrize(
    ("saved", "names"),
    [
        # torchtitan: the model without a name, the optimizer's states by parameter
        (
            {"fc.bias": None, "optimizer.state.fc.bias.exp_avg": ("optimizer", "state.fc.bias.exp_avg")},
            ["fc.bias", "optimizer/0/fc.bias/exp_avg"],
        ),
        # Megatron-LM: the states before the parameter
        ({"fc.bias": None, "optimizer.state.exp_avg.fc.bias": None}, ["fc.bias", "optimizer/0/fc.bias/exp_avg"]),
        (
            {"fc.bias": None, "chained_0.optimizer.state.exp_avg.fc.bias": None, "chained_1.optimizer.state.exp_avg.e.w": None},
            ["fc.bias", "optimizer/0/fc.bias/exp_avg", "optimizer/1/e.w/exp_avg"],
        ),
        # an object with all others, as in PyTorch's recipes
        (
            {"a.model.fc.bias": ("a", "model", "fc.bias"), "a.optim.state.0.step": ("a", "optim", "state", 0, "step")},
            ["fc.bias", "optimizer/0/0/step"],
        ),
        # Lightning
        (
            {"state_dict.fc.bias": ("state_dict", "fc.bias"), "optimizer_0.state.fc.bias.step": ("optimizer_0", "state", "fc.bias", "step")},
            ["fc.bias", "optimizer/0/fc.bias/step"],
        ),
        ({"a.b": None, "optimizer.shard": ("optimizer", "shard")}, ["a.b", "optimizer.shard"]),
    ],
)  # fmt: skip
def test_names_of_trainers(tmp_path, saved, names):
    about = Metadata()
    for name, path in saved.items():
        about.add(name, (4,), ((0,), NUMBERS[0]))
        if path is not None:
            about.paths[name] = path
    assert smdwidgets.create_trial(about.write(tmp_path / "step-3")).tensor_names() == names


def test_directories_of_accelerate(tmp_path):
    model, optimizer = Metadata(), Metadata()
    model.add("model.fc.bias", (4,), ((0,), NUMBERS[0])).paths["model.fc.bias"] = ("model", "fc.bias")
    model.write(tmp_path / "checkpoint-5" / "pytorch_model_fsdp_0")
    path = ("optimizer", "state", "fc.bias", "exp_avg")
    optimizer.add(".".join(path), (4,), ((0,), NUMBERS[1])).paths[".".join(path)] = path
    optimizer.write(tmp_path / "checkpoint-5" / "optimizer_0")
    trial = smdwidgets.create_trial(tmp_path)
    assert trial.tensor_names() == ["fc.bias", "optimizer/0/fc.bias/exp_avg"]
    assert trial.tensor("optimizer/0/fc.bias/exp_avg").values()[5].tolist() == [4, 5, 6, 7]


def test_step_of_the_training_where_the_path_has_none(tmp_path):
    about = Metadata().add("w", (3, 4), ((0, 0), NUMBERS))
    record = archived(dumps(700))
    about.tensors["global_step"] = described("BytesStorageMetadata")
    about.places[_Index("global_step", None)] = described(
        "_StorageInfo", relative_path="__0_0.distcp", offset=len(about.records), length=len(record)
    )
    about.records += record
    assert smdwidgets.create_trial(about.write(tmp_path / "last")).tensor("w").steps() == [700]


class Evil:
    """Runs when it is unpickled."""

    def __reduce__(self):
        return exec, ("import smdwidgets; smdwidgets.evil = True",)


@pytest.mark.parametrize("protocol", range(2, 6))
def test_nothing_is_executed(tmp_path, protocol):
    about = Metadata().add("w", (3, 4), ((0, 0), NUMBERS))
    evil = archived(pickle.dumps(Evil(), protocol=protocol), NUMBERS.tobytes())
    next(iter(about.places.values())).length = len(evil)
    about.records = evil
    folder = about.write(tmp_path / "step-3")
    with pytest.raises(CorruptDataError, match=r"not a tensor, but .*exec"):
        smdwidgets.create_trial(folder).tensor("w").value(3)
    (folder / ".metadata").write_bytes(pickle.dumps({"Metadata": Evil()}, protocol=protocol))
    trial = smdwidgets.create_trial(folder)
    assert trial.tensor_names() == []
    assert "not the index of a distributed checkpoint" in trial.problems()[0][1]
    assert not hasattr(smdwidgets, "evil")
    assert "torch" not in sys.modules


def test_changed_files_are_read_or_refused(run, tmp_path):
    truth = json.loads((run / "truth.json").read_text())["1"]
    generator = random.Random(11)
    originals = {path: path.read_bytes() for path in sorted((run / "step-1").iterdir())}
    refused = equal = 0
    for number in range(60):
        target = list(originals)[number % 3]
        changed = bytearray(originals[target])
        at = generator.randrange(len(changed))
        match number // 3 % 4:
            case 0:
                del changed[at:]
            case 1:
                changed[at] ^= 1 << generator.randrange(8)
            case 2:
                changed[at : at + 4] = generator.choice([b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", bytes(4)])
            case _:
                changed[at:at] = generator.randbytes(generator.randrange(1, 64))
        folder = tmp_path / f"{number}" / "step-1"
        folder.mkdir(parents=True)
        for path, content in originals.items():
            (folder / path.name).write_bytes(changed if path == target else content)
        try:
            trial = smdwidgets.create_trial(folder.parent)
        except SMDebugError as error:
            assert str(folder.parent) in str(error)  # noqa: PT017
            continue
        for name in trial.tensor_names():
            try:
                value = trial.tensor(name).value(trial.tensor(name).steps()[0])
            except DataError as error:
                refused += 1
                assert str(folder) in str(error)  # noqa: PT017
                continue
            if target.name != ".metadata":
                # A flipped bit of a value is never returned as a value.
                assert digest(value) == truth[name]
            equal += 1
    assert refused
    assert equal
