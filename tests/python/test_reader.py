"""`smdwidgets.core.reader.FileReader`: one event file, without its index."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from smdwidgets import modes
from smdwidgets.core.reader import FileReader
from smdwidgets.exceptions import DataError, SMDebugNotImplementedError
from smdwidgets.numpy import Hook


@pytest.fixture
def event_file(tmp_path: Path) -> Path:
    with Hook(tmp_path / "run") as hook:
        hook.set_mode(modes.TRAIN)
        hook.step()
        hook.set_mode(modes.EVAL)
        hook.save_tensor("w", np.arange(3, dtype="float32"))
        hook.save_tensor("names", np.array(["a", "b"]))
        hook.step()
    [path] = (tmp_path / "run" / "events").rglob("*.tfevents")
    return path


def test_tensors_with_steps_and_modes(event_file: Path) -> None:
    with FileReader(str(event_file)) as reader:
        found = {name: (value.tolist(), *rest) for name, step, value, *rest in reader.read_tensors() if step == 1}
    assert found == {"w": ([0, 1, 2], modes.EVAL, 0), "names": (["a", "b"], modes.EVAL, 0)}


def test_events_that_match_a_pattern(event_file: Path) -> None:
    reader = FileReader(event_file)
    assert sorted(event["name"] for event in reader.read_events()) == ["names", "w"]
    [event] = reader.read_events(check="minimal", regex_list=["^w$"])
    assert (event["step"], event["value"].tolist()) == (1, [0, 1, 2])
    assert event["timestamp"] > 1e9


def test_files_of_smdebug(golden_runs: Path) -> None:
    files = sorted(golden_runs.glob("*/*/events/*/*.tfevents"))
    assert files
    read = 0
    for file in files:
        with suppress(DataError):  # some of the runs are damaged
            for name, step, *_ in FileReader(file).read_tensors():
                assert name
                assert f"{step:012d}" in file.name
                read += 1
    assert read > 100


def test_damage_and_other_file_formats(event_file: Path) -> None:
    with pytest.raises(SMDebugNotImplementedError, match="invalid wtype 'csv'"):
        FileReader(event_file, wtype="csv")
    whole = event_file.read_bytes()
    event_file.write_bytes(whole[:-5])
    with pytest.raises(DataError, match=event_file.name):
        list(FileReader(event_file).read_tensors())
    event_file.write_bytes(whole[:8] + b"????" + whole[12:])
    with pytest.raises(DataError, match=event_file.name):
        list(FileReader(event_file).read_tensors())
