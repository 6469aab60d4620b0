"""The logs of a hook are no tables of a training, wherever its directory is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from smdwidgets import create_trial, create_trials
from smdwidgets.exceptions import SeveralRuns, WaitTimeout
from smdwidgets.numpy import Hook
from smdwidgets.run_table import runs
from smdwidgets.trials import LocalTrial
from smdwidgets.trials.discovery import find_runs


def record(folder: Path, steps: int, end: bool = True) -> Hook:
    """Save a weight at some steps."""
    hook = Hook(folder)
    for step in range(steps):
        hook.save_tensor("weight", np.full(4, step, np.float32))
        hook.step()
    if end:
        hook.close()
    return hook


def test_a_run_that_has_just_begun_is_the_run(tmp_path: Path) -> None:
    hook = record(tmp_path / "run", 0, end=False)
    written = {
        path.relative_to(tmp_path / "run").as_posix() for path in (tmp_path / "run").rglob("*") if path.is_file()
    }
    assert {"capture/worker_0/plan.jsonl", "claim_worker_0.smd"} <= written
    with pytest.raises(WaitTimeout, match="first collection file"):
        create_trial(tmp_path / "run", wait=0)
    hook.save_tensor("weight", np.ones(4, np.float32))
    hook.step()
    hook.close()
    trial = create_trial(tmp_path / "run")
    assert isinstance(trial, LocalTrial)
    assert trial.tensor_names() == ["weight"]


@pytest.mark.parametrize("steps", [0, 3])
@pytest.mark.parametrize("end", [True, False])
def test_directories_of_hooks_below_are_runs_of_hooks(tmp_path: Path, steps: int, end: bool) -> None:
    hooks = [record(tmp_path / "runs" / name, steps, end) for name in ("a", "b")]
    assert {run: files.kind for run, files in find_runs(str(tmp_path / "runs")).items()} == {
        "a": "smdebug",
        "b": "smdebug",
    }
    with pytest.raises(SeveralRuns):
        create_trial(tmp_path / "runs")
    assert [run["name"] for run in runs(tmp_path / "runs", progress=False)] == ["a", "b"]
    for hook in hooks:
        hook.close()
    trials = create_trials(tmp_path / "runs")
    assert {name: type(trial) for name, trial in trials.items()} == {"a": LocalTrial, "b": LocalTrial}
    assert [trial.steps() for trial in trials.values()] == [list(range(steps))] * 2


def test_runs_of_hooks_and_others_are_opened_together(tmp_path: Path) -> None:
    record(tmp_path / "hook", 3)
    (tmp_path / "table").mkdir()
    (tmp_path / "table" / "metrics.csv").write_text("step,loss\n0,1.0\n1,0.5\n")
    (tmp_path / "website" / "index").mkdir(parents=True)
    trials = create_trials(tmp_path)
    assert {name: trial.steps() for name, trial in trials.items()} == {"hook": [0, 1, 2], "table": [0, 1]}
    with create_trial(tmp_path / "hook") as trial:
        assert trial.name == "hook"


def test_a_directory_that_is_waited_for_is_not_an_older_run_below_it(tmp_path: Path) -> None:
    record(tmp_path / "older", 3)
    with pytest.raises(WaitTimeout):
        create_trial(tmp_path, wait=0.1)
    assert create_trial(tmp_path).name == "older"


def test_a_table_beside_the_directory_of_a_hook_is_a_run(tmp_path: Path) -> None:
    record(tmp_path / "saved", 3)
    (tmp_path / "metrics.csv").write_text("step,loss\n0,1.0\n1,0.5\n")
    trial = create_trial(tmp_path)
    assert trial.tensor_names() == ["loss"]
    assert isinstance(create_trial(tmp_path / "saved"), LocalTrial)
