"""Trials of a directory in which another run is written."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from smdwidgets import create_trial
from smdwidgets.numpy import Hook
from smdwidgets.rules import Rule, RuleRunner
from smdwidgets.trials import Trial


def train(path: Path, steps: range, value: float, tensor: str = "w", *, overwrite: bool = False) -> None:
    with Hook(path, overwrite=overwrite, save_all=True) as hook:
        for step in range(steps.stop):
            if step in steps:
                hook.save_tensor(tensor, np.full(4, value + step, np.float32))
            hook.step()


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("again", [range(5), range(20), range(3, 40, 2)], ids=["shorter", "longer", "other steps"])
@pytest.mark.parametrize("delete", [False, True])
def test_a_run_that_is_trained_again_is_read_again(tmp_path: Path, again: range, delete: bool) -> None:
    path = tmp_path / "mlp"
    train(path, range(10), 0)
    trial = create_trial(path)
    held = trial.tensor("w")
    assert held.value(4)[0] == 4
    until(lambda: trial.loaded_all_steps or trial.maybe_refresh())
    assert trial.restarted_at is None
    if delete:
        shutil.rmtree(path)
    train(path, again, 100, overwrite=not delete)
    until(lambda: trial.steps() == list(again))
    assert trial.restarted_at is not None
    assert abs(trial.restarted_at - time.time()) < 60
    assert {step: held.value(step)[0] for step in again} == {step: 100 + step for step in again}
    assert trial.tensor("w").values().keys() == set(again)
    assert trial.restarts == 1


def test_tensors_of_the_earlier_run_are_gone(tmp_path: Path) -> None:
    path = tmp_path / "mlp"
    train(path, range(10), 0, "w")
    trial = create_trial(path)
    train(path, range(10), 0, "v", overwrite=True)
    until(lambda: trial.tensor_names() == ["v"])
    assert not trial.has_tensor("w")
    assert list(trial.reductions(["v"], reductions=["mean"])["mean"]) == [float(step) for step in range(10)]


def test_a_run_that_is_trained_again_while_it_is_read_is_live_until_it_ends(tmp_path: Path) -> None:
    path = tmp_path / "mlp"
    train(path, range(10), 0)
    trial = create_trial(path)
    with Hook(path, overwrite=True, save_all=True) as hook:
        hook.save_tensor("w", np.full(4, 100, np.float32))
        hook.step()
        hook.flush()
        until(lambda: trial.steps() == [0])
        assert not trial.loaded_all_steps
    until(lambda: trial.loaded_all_steps or trial.maybe_refresh())
    assert trial.restarts == 1


def test_a_run_that_grows_or_resumes_is_not_a_new_run(tmp_path: Path) -> None:
    path = tmp_path / "mlp"
    train(path, range(3), 0)
    (path / "training_job_end.ts").unlink()
    trial = create_trial(path)
    with Hook(path, resume=True, save_all=True) as hook:
        for step in range(3, 9):
            hook.save_tensor("w", np.full(4, step, np.float32))
            hook.step()
            trial.refresh_data()
    until(lambda: len(trial.steps()) == 9)
    assert trial.restarts == 0
    assert trial.restarted_at is None


def test_a_deleted_run_stays_readable(tmp_path: Path) -> None:
    path = tmp_path / "mlp"
    train(path, range(3), 0)
    trial = create_trial(path)
    shutil.rmtree(path)
    trial.refresh_data()
    assert trial.steps() == [0, 1, 2]
    assert trial.restarts == 0


class Large(Rule):
    """Fires at values of 100 or more, and remembers the largest."""

    def __init__(self, base_trial: Trial) -> None:
        super().__init__(base_trial)
        self.largest = 0.0

    def invoke_at_step(self, step: int) -> bool:
        self.largest = max(self.largest, float(self.base_trial.tensor("w").value(step)[0]))
        return self.largest >= 100


def test_a_running_rule_starts_over(tmp_path: Path) -> None:
    path = tmp_path / "mlp"
    train(path, range(10), 100)
    (path / "training_job_end.ts").unlink()
    runner = RuleRunner(create_trial(path), [Large]).start()
    until(lambda: runner["Large"].done == 10)
    train(path, range(5), 0, overwrite=True)
    assert runner.wait(30)
    assert runner.status == {"Large": "NoIssuesFound"}
    assert runner["Large"].outcomes.keys() == set(range(5))
    assert runner["Large"].restarts == 1
