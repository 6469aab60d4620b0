"""Every wait ends: with a result, an error that names what is missing, or Ctrl-C."""

from __future__ import annotations

import _thread
import logging
import threading
import time
from pathlib import Path

import pytest

from python.trials import runs
from smdwidgets import create_trial, modes
from smdwidgets.exceptions import (
    MissingCollectionFiles,
    NoMoreData,
    RunNotFound,
    StepUnavailable,
    TensorUnavailableForStep,
    WaitTimeout,
)
from smdwidgets.trials import LocalTrial, StepState, wait
from smdwidgets.trials.wait import wait_until


def later(seconds: float, do: object, *args: object) -> threading.Timer:
    timer = threading.Timer(seconds, do, args)  # type: ignore[arg-type]
    timer.start()
    return timer


def test_step_that_arrives(tmp_path: Path) -> None:
    trial = create_trial(runs.run(tmp_path, range(2), ended=False))
    timer = later(0.2, runs.step, tmp_path, 2)
    trial.wait_for_steps([0, 2], timeout=30)
    assert trial.tensor("x").value(2)[0] == 2
    trial.wait_for_steps(1)  # type: ignore[arg-type]  # one step need not be put in a list
    trial.wait_for_steps([])
    timer.join()


def test_step_that_does_not_arrive(tmp_path: Path) -> None:
    trial = create_trial(runs.run(tmp_path, [0, 2], ended=False))
    with pytest.raises(WaitTimeout, match=r"step 3 of GLOBAL.*last step so far: 2"):
        trial.wait_for_steps([3], timeout=0.1)
    with pytest.raises(TimeoutError):
        trial.wait_for_steps([0], mode=modes.EVAL, timeout=0)
    with pytest.raises(StepUnavailable):
        trial.wait_for_steps([1])
    with pytest.raises(ValueError, match="timeout"):
        trial.wait_for_steps([3], timeout=-1)
    timer = later(0.2, runs.end, tmp_path)
    with pytest.raises(NoMoreData) as raised:
        trial.wait_for_steps([3], timeout=30)
    assert (raised.value.step, raised.value.mode, raised.value.last_step) == (3, modes.GLOBAL, 2)
    with pytest.raises(StepUnavailable):
        trial.wait_for_steps([1])
    timer.join()


def test_ctrl_c(tmp_path: Path) -> None:
    trial = create_trial(runs.run(tmp_path, [0], ended=False))
    timer = later(0.2, _thread.interrupt_main)
    with pytest.raises(KeyboardInterrupt):
        trial.wait_for_steps([1], timeout=60)
    timer.join()
    assert trial.dynamic_refresh
    assert trial.steps() == [0]


def test_polling_interval_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    now = [0.0]
    monkeypatch.setattr(wait.time, "monotonic", lambda: now[0])

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        now[0] += seconds

    monkeypatch.setattr(wait.time, "sleep", sleep)
    with pytest.raises(WaitTimeout, match=r"^timed out after 60 s waiting for rain"):
        wait_until(lambda: False, lambda: "rain", 60)
    assert pauses[0] == 0.05
    assert max(pauses) == 2.0
    assert pauses[:-1] == sorted(pauses[:-1])
    assert sum(pauses) == pytest.approx(60)


def test_long_wait_is_logged(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(wait, "LOG_AFTER", 0.05)
    with caplog.at_level(logging.WARNING, "smdwidgets"), pytest.raises(WaitTimeout):
        wait_until(lambda: False, lambda: "rain", 0.3)
    assert "Still waiting for rain" in caplog.text


def test_run_that_starts_later(tmp_path: Path) -> None:
    root = tmp_path / "later"
    timer = later(0.2, runs.run, root, range(2))
    trial = create_trial(root, wait=30)
    assert trial.steps()[:1] == [0]
    timer.join()
    with pytest.raises(WaitTimeout, match="a run to start at"):
        create_trial(tmp_path / "never", wait=0.1)
    with pytest.raises(RunNotFound, match="no such file or directory"):  # not "timed out after 0 s"
        create_trial(tmp_path / "never", wait=0)


def test_collection_files_of_all_workers(tmp_path: Path) -> None:
    runs.collections(tmp_path, workers=3, written=[0])
    with pytest.raises(WaitTimeout, match=r"all 3 workers.*1 found"):
        create_trial(tmp_path, wait=0.1)
    timer = later(0.2, lambda: runs.collections(tmp_path, workers=3))
    trial = create_trial(tmp_path, wait=30)
    assert trial.num_workers == 3
    assert trial.workers() == ["worker_0", "worker_1", "worker_2"]
    timer.join()


def test_run_that_ended_without_collection_files(tmp_path: Path) -> None:
    runs.collections(tmp_path, workers=2, written=[1])
    runs.end(tmp_path)
    with pytest.raises(MissingCollectionFiles, match="1 of 2"):
        create_trial(tmp_path)


# ---------------------------------------------------------------------------------------------------- several workers


def test_incomplete_steps(tmp_path: Path) -> None:
    runs.collections(tmp_path, workers=2)
    for step in range(4):
        runs.step(tmp_path, step, mode=modes.TRAIN, mode_step=step)
    for step in (0, 2):
        runs.step(tmp_path, step, worker="worker_1", mode=modes.TRAIN, mode_step=step)
    trial = create_trial(tmp_path)
    x = trial.tensor("x")
    # Step 1 counts as complete: worker_1 has a later step.
    assert trial.steps() == x.steps() == x.steps(modes.TRAIN) == trial.steps(modes.TRAIN) == [0, 1, 2]
    assert trial.steps(show_incomplete_steps=True) == x.steps(modes.TRAIN, show_incomplete_steps=True) == [0, 1, 2, 3]
    assert [trial.has_passed_step(step).name for step in range(5)] == ["AVAILABLE"] * 3 + ["NOT_YET_AVAILABLE"] * 2
    assert x.workers(1) == ["worker_0"]
    assert x.value(3)[0] == 3  # available data may be read
    assert trial.last_complete_step == 2
    runs.step(tmp_path, 3, worker="worker_1")
    assert trial.has_passed_step(3) == StepState.AVAILABLE
    runs.step(tmp_path, 4)
    runs.end(tmp_path)
    assert trial.steps() == [0, 1, 2, 3, 4]


def test_worker_that_has_stopped_is_not_waited_for_indefinitely(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SMDEBUG_INCOMPLETE_STEP_WAIT_WINDOW", "10")
    runs.collections(tmp_path, workers=2)
    for step in range(10):
        runs.step(tmp_path, step * 3)
    trial = create_trial(tmp_path)
    assert trial.steps() == []
    runs.step(tmp_path, 30)
    assert trial.steps() == [0, 3, 6, 9, 12]
    assert trial.has_passed_step(15) == StepState.NOT_YET_AVAILABLE


def test_workers_with_two_digits(tmp_path: Path) -> None:
    runs.collections(tmp_path, workers=12)
    for rank in range(12):
        runs.step(tmp_path, 0, {"x": [rank]}, worker=f"worker_{rank}")
    trial = create_trial(runs.end(tmp_path))
    assert trial.workers() == sorted(f"worker_{rank}" for rank in range(12))
    assert trial.tensor("x").value(0, worker="worker_10").tolist() == [10]
    assert "worker_0, worker_1, worker_2, worker_3" in repr(trial)


# ------------------------------------------------------------------------------------------- index before event file


def hide(root: Path, step: int) -> Path:
    event = root / f"events/{step:012d}/{step:012d}_worker_0.tfevents"
    return event.rename(event.with_suffix(".hidden"))


def test_event_file_that_arrives_after_its_index(tmp_path: Path) -> None:
    trial = create_trial(runs.run(tmp_path, range(2), ended=False))
    hidden = hide(tmp_path, 1)
    timer = later(0.2, hidden.rename, hidden.with_suffix(".tfevents"))
    assert trial.tensor("x").value(1)[0] == 1
    timer.join()


def test_event_file_that_never_arrives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SMDEBUG_MISSING_EVENT_FILE_RETRY_LIMIT", "0")
    trial = create_trial(runs.run(tmp_path, range(4), ended=False))
    x = trial.tensor("x")
    hide(tmp_path, 3)
    with pytest.raises(TensorUnavailableForStep, match="did not appear within 0 s"):
        x.value(3)
    monkeypatch.delenv("SMDEBUG_MISSING_EVENT_FILE_RETRY_LIMIT")
    trial = create_trial(tmp_path)
    hide(tmp_path, 1)
    start = time.monotonic()
    with pytest.raises(TensorUnavailableForStep, match="the file of a later step exists"):
        trial.tensor("x").value(1)
    runs.end(tmp_path)
    with pytest.raises(TensorUnavailableForStep, match="the run has ended"):
        trial.tensor("x").reduction_value(3, "mean")
    assert time.monotonic() - start < 100  # of the 200 s that it would wait for a running training


def test_run_that_is_deleted(tmp_path: Path) -> None:
    import shutil

    root = tmp_path / "run"
    trial = create_trial(runs.run(root, range(2), ended=False))
    shutil.rmtree(root)
    assert trial.steps() == [0, 1]
    with pytest.raises(FileNotFoundError, match="no run at"):
        trial.tensor("x").value(0)


def test_directory_without_a_run_is_waited_for_with_a_hint(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(WaitTimeout):
        create_trial(tmp_path, wait=1.2)
    assert "Set the timeout with create_trial(path, wait=seconds), or press Ctrl-C." in caplog.text


def test_local_trial_of_a_log_names_the_right_function(tmp_path: Path) -> None:
    (tmp_path / "events.out.tfevents.1.host").touch()
    with pytest.raises(RunNotFound, match="TensorBoard event files"):
        LocalTrial("log", tmp_path)
