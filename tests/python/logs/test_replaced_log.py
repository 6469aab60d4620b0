"""Logs that are written again in the same directory."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from python.logs.logs import FILE, log, scalars
from smdwidgets import create_trial


def again(directory: Path, how: str) -> None:
    """Delete a log and write another one with as many bytes."""
    if how == "directory":
        shutil.rmtree(directory)
    (directory / FILE).unlink(missing_ok=True)
    name = FILE if how == "same name" else "events.out.tfevents.2"
    log(directory, scalars({"loss": [9, 8, 7]}), name)


@pytest.mark.parametrize("how", ["other name", "same name", "directory"])
def test_log_that_is_written_again_is_a_restart(tmp_path: Path, how: str) -> None:
    root = tmp_path / "run"
    log(root, scalars({"loss": [1, 2, 3], "old": [1, 2, 3]}))
    with create_trial(root) as trial:
        assert trial.tensor("loss").value(0).item() == 1
        assert trial.restarts == 0
        again(root, how)
        assert trial.steps() == [0, 1, 2]
        assert trial.tensor("loss").value(0).item() == 9
        assert trial.tensor_names() == ["loss"]
        assert trial.restarts == 1
        assert trial.restarted_at is not None
        assert abs(trial.restarted_at - time.time()) < 60


def test_growing_and_added_files_are_no_restart(tmp_path: Path) -> None:
    log(tmp_path, scalars({"loss": [1, 2]}))
    with create_trial(tmp_path) as trial:
        assert len(trial.steps()) == 2
        log(tmp_path, scalars({"loss": [3, 4]}, first=2))
        assert len(trial.steps()) == 4
        log(tmp_path, scalars({"loss": [5]}, first=4), "events.out.tfevents.2")
        assert len(trial.steps()) == 5
        (tmp_path / FILE).unlink()  # older files are deleted to save space
        assert trial.restarts == 0


def test_deleted_log_is_no_restart(tmp_path: Path) -> None:
    log(tmp_path, scalars({"loss": [1, 2]}))
    with create_trial(tmp_path) as trial:
        assert len(trial.steps()) == 2
        (tmp_path / FILE).unlink()
        trial.maybe_refresh()
        assert trial.restarts == 0
