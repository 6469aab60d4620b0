"""A name that is saved twice in one step, so that a value is lost."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from smdwidgets.config import SaveConfigMode
from smdwidgets.hooks.core.hook import Hook as BaseHook
from smdwidgets.numpy import Hook
from smdwidgets.trials import create_trial


@pytest.mark.parametrize("save", ["save_tensor", "save_scalar"])
def test_a_loop_without_step_warns_once_and_notes_it_in_the_run(tmp_path, caplog, save):
    with caplog.at_level(logging.WARNING), Hook(tmp_path / "run") as hook:
        for value in range(50):
            getattr(hook, save)("loss", float(value))
            getattr(hook, save)("other", float(value))
    [message] = caplog.messages
    name = "scalar/loss" if save == "save_scalar" else "loss"
    expected = f"'{name}' was saved twice in step 0, and only the last value is kept; call hook.step() at the end of"
    assert expected in message
    with create_trial(tmp_path / "run") as trial:
        assert trial.steps() == [0]
        assert [note for note in trial.notes() if expected in str(note)]


def test_a_tensor_that_is_not_due_counts_too(tmp_path, caplog):
    with caplog.at_level(logging.WARNING), Hook(tmp_path / "run", save_config=SaveConfigMode(save_steps=[5])) as hook:
        for _ in range(2):
            hook.save_tensor("w", np.ones(3))
    assert "'w' was saved twice in step 0" in caplog.text


def test_a_loop_with_steps_is_silent(tmp_path, caplog):
    with caplog.at_level(logging.WARNING), Hook(tmp_path / "run") as hook:
        for _ in range(3):
            for mode in ("TRAIN", "EVAL"):
                hook.set_mode(mode)
                hook.save_scalar("loss", 1.0)
                hook.save_tensor("loss", 1.0)
                hook.step()
    assert caplog.messages == []
    with create_trial(tmp_path / "run") as trial:
        assert trial.notes() == []


def test_a_hook_that_never_begins_a_step_says_that_values_are_replaced(tmp_path, caplog):
    with caplog.at_level(logging.WARNING), BaseHook(tmp_path / "run", save_all=True) as hook:
        for value in range(3):
            hook.save_scalar("loss", value)
    assert "'scalar/loss' was saved twice before step 0 began, and only the last value is kept" in caplog.text
    with create_trial(tmp_path / "run") as trial:
        assert trial.tensor("scalar/loss").value(0) == 2
        assert len([note for note in trial.notes() if "before step 0" in str(note)]) == 1
