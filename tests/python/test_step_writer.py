"""Steps written from Python: complete or not at all."""

import json
import threading
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from smdwidgets import _core

EVENTS = "events/000000000005/000000000005_worker_0.tfevents"
INDEX = "index/000000000/000000000005_worker_0.json"


def files(root: Path) -> list[str]:
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())


def read(root: Path) -> dict[str, np.ndarray]:
    index = json.loads((root / INDEX).read_text(encoding="ascii"))
    data = (root / index["meta"]["event_file_name"]).read_bytes()
    values = {}
    for entry in index["tensor_payload"]:
        start, end = entry["start_idx"], entry["start_idx"] + entry["length"]
        assert _core.crc32c(data[start + 12 : end - 4]) == entry["crc32c"]
        values[entry["tensorname"]] = _core.decode(data[start:end])
    return values


dtypes = st.one_of(
    hnp.boolean_dtypes(),
    hnp.integer_dtypes(endianness="?"),
    hnp.unsigned_integer_dtypes(endianness="?"),
    hnp.floating_dtypes(endianness="?", sizes=(16, 32, 64)),
    hnp.complex_number_dtypes(endianness="?", sizes=(64, 128)),
    hnp.unicode_string_dtypes(endianness="?", max_len=5),
)


@given(value=dtypes.flatmap(lambda d: hnp.arrays(d, hnp.array_shapes(min_dims=0, min_side=0, max_side=4))))
def test_written_values_are_read(tmp_path_factory, value):
    root = tmp_path_factory.mktemp("run")
    with _core.StepWriter(root, 5) as step:
        step.tensor("plain", value)
        step.tensor("transposed", value.T)
    values = read(root)
    for name, expected in (("plain", value), ("transposed", value.T)):
        assert values[name].shape == expected.shape
        if value.dtype.kind == "U":
            assert (values[name] == expected).all()
        else:
            assert values[name].dtype == value.dtype.newbyteorder("<")
            assert values[name].tobytes() == expected.astype(value.dtype.newbyteorder("<")).tobytes()


def test_numbers_lists_strings_and_bfloat16(tmp_path):
    with _core.StepWriter(tmp_path, 5, mode=1, mode_step=2) as step:
        step.tensor("float", 0.5)
        step.tensor("list", [1, 2])
        step.tensor("text", ["ü", ""])
        step.tensor("objects", np.array([["a"], ["bc"]], object))
        step.tensor("bfloat16", np.array([1.5], ml_dtypes.bfloat16))
        step.tensor("日本/w:0", np.float32(1))
        step.tensor(_core.reduction_name("l2", True, "w"), np.float32(2))
    values = read(tmp_path)
    assert (values["float"].dtype, values["float"].shape, values["list"].tolist()) == (np.float64, (), [1, 2])
    assert (values["text"].tolist(), values["objects"].tolist()) == (["ü", ""], [["a"], ["bc"]])
    assert values["bfloat16"].dtype == ml_dtypes.bfloat16
    assert values["日本/w:0"] == 1
    assert values["smdebug/reductions/abs_l2/w"] == 2
    meta = json.loads((tmp_path / INDEX).read_text())["meta"]
    assert meta == {"mode": "TRAIN", "mode_step": 2, "event_file_name": EVENTS}


def test_shapes(tmp_path):
    step = _core.StepWriter(str(tmp_path), 5)
    step.shape("w", "layer.w", [2, 3])
    event_key, index_key, size = step.finish()
    assert (event_key, index_key) == (None, INDEX)
    content = (tmp_path / INDEX).read_bytes()
    assert size == len(content)
    entry = {"tensorname": "w", "originalname": "layer.w", "shape": [2, 3]}
    assert json.loads(content)["shape_payload"] == [entry]
    assert "event_file_name" not in json.loads(content)["meta"]


@pytest.mark.parametrize("value", [np.array(["2020-01-01"], "M8[D]"), np.zeros(1, [("a", "i4")]), np.array([object()])])
def test_unsupported_values_are_rejected_and_the_step_continues(tmp_path, value):
    with _core.StepWriter(tmp_path, 5) as step:
        with pytest.raises(TypeError, match="can"):
            step.tensor("x", value)
        step.tensor("y", 1)
    assert list(read(tmp_path)) == ["y"]


def test_failing_block_leaves_no_files(tmp_path):
    def fail() -> None:
        with _core.StepWriter(tmp_path, 5) as step:
            step.tensor("x", np.zeros(10**6))
            assert files(tmp_path) == [EVENTS + ".tmp"]
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert files(tmp_path) == []


def test_finished_step_is_immutable(tmp_path):
    with _core.StepWriter(tmp_path, 5, fsync=True) as step:
        step.tensor("x", 1)
        assert step.finish()[:2] == (EVENTS, INDEX)
    step.discard()
    assert files(tmp_path) == [EVENTS, INDEX]
    with pytest.raises(ValueError, match="finished"):
        step.tensor("x", 1)
    with pytest.raises(ValueError, match="finished"):
        step.finish()


def test_full_disk_leaves_no_file_and_is_reported(tmp_path, run_python):
    # The operating system's file size limit fails a write in its middle, like a full disk.
    code = f"""
import resource, numpy as np
from smdwidgets import _core
from smdwidgets.exceptions import RunIOError
resource.setrlimit(resource.RLIMIT_FSIZE, (3_000_000, 3_000_000))
step = _core.StepWriter({str(tmp_path)!r}, 5)
step.tensor("fits", np.zeros(100_000))
for attempt in (lambda: step.tensor("does not", np.zeros(1_000_000)), lambda: step.tensor("later", 1), step.finish):
    try:
        attempt()
    except RunIOError as error:
        print("RunIOError", error.errno, error.filename.endswith(".tfevents.tmp"))
    except ValueError as error:
        print("ValueError", error)
"""
    first, second, third = run_python(code).splitlines()
    assert first.startswith("RunIOError ")
    assert first.endswith("True")
    assert "earlier write failed" in second
    assert "earlier write failed" in third
    assert files(tmp_path) == []


@pytest.mark.parametrize("worker", ["", "a\\b", "a\0b", "x" * 201])
def test_invalid_file_names(tmp_path, worker):
    with pytest.raises(ValueError, match="worker"):
        _core.StepWriter(tmp_path, 5, worker)


def test_device_names_are_workers(tmp_path):
    device = "/job:worker/replica:0/task:1/device:GPU:0"
    with _core.StepWriter(tmp_path, 1000, device) as step:
        step.tensor("x", 1)
    name = f"000000001000_{_core.worker_file_name(device)}"
    assert name == "000000001000__job-worker_replica-0_task-1_device-GPU-0"
    assert files(tmp_path) == [f"events/000000001000/{name}.tfevents", f"index/000000001/{name}.json"]


def test_concurrent_workers_and_threads(tmp_path):
    shared = _core.StepWriter(tmp_path, 5)

    def work(worker: int) -> None:
        with _core.StepWriter(tmp_path, 6, f"worker_{worker}") as own:
            for i in range(50):
                own.tensor(str(i), np.full(100, worker))
                shared.tensor(f"{worker}/{i}", np.full(100, i))

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    shared.finish()
    values = read(tmp_path)
    assert len(values) == 200
    assert all((values[f"{w}/{i}"] == i).all() for w in range(4) for i in range(50))
    assert len(files(tmp_path)) == 10
