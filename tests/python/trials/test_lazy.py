"""Opening a long run to read one step does not read the other index files."""

from __future__ import annotations

from pathlib import Path

import pytest

from python.trials import runs
from smdwidgets import create_trial, modes
from smdwidgets.exceptions import IndexReaderException, StepUnavailable, TensorUnavailable, TensorUnavailableForStep
from smdwidgets.trials import Trial
from smdwidgets.trials.smdebug import run as smdebug_run

STEPS = range(0, 500, 10)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    runs.collections(tmp_path)
    for step in STEPS:
        values = {"x": [float(step)], **({"odd": [step]} if step == 100 else {})}
        runs.step(tmp_path, step, values, mode=modes.TRAIN, mode_step=step // 10)
    return runs.end(tmp_path)


def unread(trial: Trial) -> int:
    return len(trial.reader.run.catalog.unread())


def test_one_value_reads_one_index_file(path: Path) -> None:
    trial = create_trial(path, lazy=True)
    assert trial.steps() == list(STEPS)
    assert trial.has_passed_step(490).name == "AVAILABLE"
    assert trial.workers() == ["worker_0"]
    repr(trial)
    assert unread(trial) == len(STEPS)
    assert trial.tensor("x").value(490).tolist() == [490]
    assert unread(trial) == len(STEPS) - 1
    assert trial.tensor("x").value(20).tolist() == [20]
    assert trial.mode(30) == modes.TRAIN
    assert trial.tensor_names(step=100) == ["odd", "x"]
    with pytest.raises(StepUnavailable):
        trial.tensor("x").value(491)
    assert unread(trial) == len(STEPS) - 4
    assert trial.values({"x": [200, 300]})["value"].reshape(-1).tolist() == [200, 300]
    assert unread(trial) == len(STEPS) - 6


@pytest.mark.parametrize(
    "ask",
    [
        lambda trial: trial.tensor_names() == ["odd", "x"],
        lambda trial: trial.modes() == [modes.TRAIN],
        lambda trial: trial.global_step(modes.TRAIN, 3) == 30,
        lambda trial: trial.tensor("x").steps() == list(STEPS),
        lambda trial: trial.tensor("x").value(3, modes.TRAIN)[0] == 30,
        lambda trial: trial.tensor("odd").value(100)[0] == 100,
        lambda trial: trial.steps(modes.TRAIN) == [step // 10 for step in STEPS],
        lambda trial: trial.reductions("x", reductions="mean").num_rows == len(STEPS),
        lambda trial: trial.tensor("x").dtype.name == "float64",
    ],
)
def test_queries_over_all_steps_read_all_index_files(path: Path, ask: object) -> None:
    assert ask(create_trial(path, lazy=True))  # type: ignore[operator]


def test_missing_tensor_is_reported_after_reading_all_index_files(path: Path) -> None:
    trial = create_trial(path, lazy=True)
    with pytest.raises(TensorUnavailable, match="'odd'"):
        trial.tensor("od")
    assert unread(trial) == 0


def test_long_runs_are_opened_lazily_by_default(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert unread(create_trial(path)) == 0
    monkeypatch.setattr(smdebug_run, "LAZY_ABOVE", 20)
    trial = create_trial(path)
    assert unread(trial) == len(STEPS)
    assert unread(create_trial(path, lazy=False)) == 0
    (path / "training_job_end.ts").unlink()
    trial = create_trial(path)
    runs.step(path, 1000)
    assert trial.steps()[-1] == 1000
    assert unread(trial) == len(STEPS)  # new steps are read at once


def test_bad_index_file_that_is_read_later(path: Path) -> None:
    bad = path / "index/000000000/000000000020_worker_0.json"
    bad.write_text("{")
    with pytest.raises(IndexReaderException):
        create_trial(path)
    trial = create_trial(path, lazy=True)
    assert trial.tensor("x").value(10)[0] == 10
    with pytest.raises(TensorUnavailableForStep, match="index file"):
        trial.tensor("x").value(20)
    assert len(trial.tensor("x").steps()) == len(STEPS) - 1
