"""Recordings are read without PyTorch, and bad ones are errors that name the file."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from python.replay.recordings import FOLDER, content, write
from smdwidgets.exceptions import CannotReplay, CorruptDataError
from smdwidgets.incident import Incident
from smdwidgets.replay.files import RECORDING, Recording
from smdwidgets.storage import LocalStorage
from smdwidgets.trials.incidents import read_incidents


def incident(run):
    records = read_incidents(LocalStorage(run))
    assert records.problems == []
    [one] = records.combined()
    return one


def test_batches_and_rows_are_read(tmp_path):
    write(tmp_path)
    one = incident(tmp_path)
    assert "rows 302, 88 of the data set" in str(one)
    assert one.row_ids(36) == [4, 8]
    x, y = one.batch(36)
    assert x.tolist() == [[0, 1], [2, 3]]
    assert y.dtype == np.float32
    assert y.tolist() == [1, 2]  # bfloat16
    assert one.replay.steps == range(36, 38)
    assert one.replay.expected == 2
    with pytest.raises(LookupError, match="step 99 was not recorded; the recording has steps 36 to 37"):
        one.batch(99)


def test_rows_that_are_not_known_are_none_and_lost_batches_an_error(tmp_path):
    write(tmp_path)
    one = incident(tmp_path)
    assert one.row_ids(37) is None  # the rows of its second batch are not known
    with pytest.raises(LookupError, match="only its rows were kept"):
        one.batch(37)


def test_several_batches_of_a_step_are_a_list(tmp_path):
    recording_json = content()
    recording_json["deliveries"][2] = {**recording_json["deliveries"][1], "rows": [5]}
    write(tmp_path, deliveries=recording_json["deliveries"])
    one = incident(tmp_path)
    assert [batch["name"] for batch in one.batch()] == ["second", "second"]
    assert one.row_ids() == [302, 88, 5]


def test_incident_without_recording_says_so(tmp_path):
    folder = write(tmp_path)
    plain = Incident("worker_0", 37, ("why",))
    folder.with_suffix(".json").write_bytes(plain.to_json())
    one = incident(tmp_path)
    assert one.replay is None
    with pytest.raises(LookupError, match="no batches were recorded"):
        one.batch()


def test_record_keeps_rows_and_recording():
    rows = (302, "name", (1, 7))
    summary = {"keyframe": 3, "steps": [3, 7], "bytes": 9, "why_not": "no"}
    one = Incident("worker_0", 7, ("why",), rows=rows, recorded=summary)
    read = Incident.parse(one.to_json(), "worker_0")
    assert read == one
    assert (
        Incident("w", 1, ("why",), rows=((0, 12), (0, 13))).rows_text
        == "rows 12 of worker 0, 13 of worker 0 of the data set"
    )
    assert (
        Incident("w", 1, ("why",), rows=tuple(range(9))).rows_text == "rows 0, 1, 2, 3, 4, 5 and 3 more of the data set"
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"rows": {}},
        {"rows": [{"a": 1}]},
        {"replay": []},
        {"replay": {"steps": [1]}},
        {"replay": {"steps": [-5, 2]}},
        {"replay": {"bytes": "many"}},
    ],
)
def test_record_with_bad_rows_is_a_problem_not_a_crash(tmp_path, changes):
    folder = write(tmp_path)
    record = folder.with_suffix(".json")
    record.write_text(json.dumps({**json.loads(record.read_text()), **changes}))
    records = read_incidents(LocalStorage(tmp_path))
    assert records.incidents == []
    assert "invalid incident" in records.problems[0][1]


def test_reading_imports_no_framework(tmp_path):
    write(tmp_path)
    code = (
        "import sys, smdwidgets\n"
        "from smdwidgets.storage import LocalStorage\n"
        "from smdwidgets.trials.incidents import read_incidents\n"
        f"[one] = read_incidents(LocalStorage({str(tmp_path)!r})).combined()\n"
        "print(one.batch(36)[0].sum(), one.row_ids(36), 'torch' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=250)
    assert done.stdout.split() == ["6.0", "[4,", "8]", "False"]


def test_another_process_cannot_execute_and_says_how(tmp_path):
    write(tmp_path)
    replay = incident(tmp_path).replay
    assert not replay.is_live
    with pytest.raises(CannotReplay, match=r"smdwidgets replay RUN -- python train\.py"):
        replay.run()
    write(tmp_path, why_not="no keyframe: the budget holds none")
    with pytest.raises(CannotReplay, match="the budget holds none"):
        incident(tmp_path).replay.run()


# ------------------------------------------------------------------------------------------------------ malicious runs


def test_header_of_ten_gigabytes_is_refused(tmp_path):
    folder = write(tmp_path)
    file = folder / "state.safetensors"
    file.write_bytes((10 << 30).to_bytes(8, "little") + file.read_bytes()[8:])
    with pytest.raises(CorruptDataError, match=r"state.safetensors, byte 0: a header of 10,737,418,240 bytes"):
        incident(tmp_path).batch(36)


def test_tensor_of_many_gigabytes_is_refused_before_memory_is_taken(tmp_path):
    folder = write(tmp_path)
    size = 1 << 40
    header = json.dumps({"batch/0/0": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    (folder / "state.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    recording_json = content(files={"state.safetensors": size + len(header) + 8})
    (folder / RECORDING).write_text(json.dumps(recording_json))
    with pytest.raises(CorruptDataError, match="a tensor of 1,099,511,627,776 bytes"):
        incident(tmp_path).batch(36)


def test_every_truncation_is_an_error_that_names_the_file(tmp_path):
    folder = write(tmp_path)
    file = folder / "state.safetensors"
    whole = file.read_bytes()
    for length in (0, 4, 8, 20, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:length])
        recording = incident(tmp_path).replay.recording
        with pytest.raises(CorruptDataError, match=r"state\.safetensors"):
            [recording.array(name) for name in ("batch/0/0", "batch/0/1", "batch/1/0", "rng/0/0")]
    file.unlink()
    with pytest.raises(CorruptDataError, match="the file is missing"):
        incident(tmp_path).batch(36)


def test_pickle_in_place_of_a_tensor_file_runs_nothing(tmp_path):
    folder = write(tmp_path)
    trace = tmp_path / "trace"
    (folder / "state.safetensors").write_bytes(b"cos\nsystem\n(S'touch " + str(trace).encode() + b"'\ntR.")
    with pytest.raises(CorruptDataError):
        incident(tmp_path).batch(36)
    assert not trace.exists()


@pytest.mark.parametrize("text", ['{"version": 1', "[]", "null", '{"version": 2}', "[" * 200_000, '{"a":' * 100_000])
def test_recording_that_is_no_recording_is_an_error(tmp_path, text):
    folder = write(tmp_path)
    (folder / RECORDING).write_text(text)
    with pytest.raises(CorruptDataError, match=r"replay\.json: not a recording"):
        incident(tmp_path).batch(36)


@pytest.mark.parametrize(
    "batch",
    [
        {"$call": "os.system"},
        {"$tensor": "no such"},
        {"$tensor": 3},
        {"$float": "1e5"},
        {"$int": "9" * 5000},
        {"$dict": [[[1], 2]]},
        {"$dict": 3},
        {"$tuple": 3},
    ],
)
def test_values_that_nobody_writes_are_errors(tmp_path, batch):
    recording_json = content()
    recording_json["deliveries"][0]["batch"] = batch
    write(tmp_path, deliveries=recording_json["deliveries"])
    with pytest.raises(CorruptDataError):
        incident(tmp_path).batch(36)


def test_unknown_types_are_named_and_not_imported(tmp_path):
    recording_json = content()
    recording_json["deliveries"][0]["batch"] = {"$lost": "antigravity.Thing"}
    write(tmp_path, deliveries=recording_json["deliveries"])
    assert incident(tmp_path).batch(36).type == "antigravity.Thing"
    assert "antigravity" not in sys.modules


@pytest.mark.parametrize("name", ["../../outside.safetensors", "/etc/passwd", ".hidden", "a\\b"])
def test_tensor_files_of_other_folders_are_refused(tmp_path, name):
    write(tmp_path, files={name: 100})
    with pytest.raises(CorruptDataError, match="another folder"):
        incident(tmp_path).batch(36)


@given(
    st.dictionaries(
        st.sampled_from(sorted(content())), st.none() | st.integers() | st.text() | st.lists(st.integers())
    ),
)
@pytest.mark.slow
def test_any_field_of_another_type_is_an_error_or_read(tmp_path_factory, changes):
    run = tmp_path_factory.mktemp("run")
    write(run, **changes)
    with contextlib.suppress(CorruptDataError):
        recording = Recording.open(LocalStorage(run), FOLDER)
        assert recording is not None
        list(recording.steps)


def test_killed_while_writing_leaves_a_whole_recording_or_none(tmp_path):
    """A process is killed before each rename of the writer; what is there is read."""
    code = """
import os, signal, sys
sys.path.insert(0, sys.argv[3])
from pathlib import Path
from smdwidgets import _atomic
from replay import recordings
left = int(sys.argv[2])
real = Path.replace
def replace(self, target):
    global left
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    left -= 1
    return real(self, target)
Path.replace = replace
recordings.write(Path(sys.argv[1]))
"""
    tests = str(next(parent for parent in __import__("pathlib").Path(__file__).parents if parent.name == "python"))
    for renames in range(3):
        run = tmp_path / str(renames)
        command = [sys.executable, "-c", code, str(run), str(renames), tests]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=250)
        assert done.returncode == (0 if renames == 2 else -9), done.stderr
        recording = Recording.open(LocalStorage(run), FOLDER)
        assert (recording is not None) == (renames == 2)
        if recording is not None:
            assert recording.batch(36)[0].tolist() == [[0, 1], [2, 3]]
