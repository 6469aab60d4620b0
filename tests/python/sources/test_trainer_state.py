"""The state of the Trainer of Hugging Face: several, incomplete, growing."""

from __future__ import annotations

import json
import math
import os
import time

import pytest

import smdwidgets


def write(path, rows, age=0.0, **more):
    path.parent.mkdir(parents=True, exist_ok=True)
    state = {"best_metric": None, "epoch": 1.0, "global_step": 2, "log_history": rows, "max_steps": 6, **more}
    path.write_text(json.dumps(state, indent=2))
    os.utime(path, (time.time() - age, time.time() - age))


def rows_until(step):
    return [{"epoch": at / 10, "loss": 1 / at, "step": at} for at in range(1, step + 1)]


def test_the_newest_state_counts(tmp_path):
    for step, age in ((2, 30), (10, 20), (4, 25)):
        write(tmp_path / f"checkpoint-{step}" / "trainer_state.json", rows_until(step), age)
    trial = smdwidgets.create_trial(tmp_path)
    assert trial.tensor("loss").steps() == list(range(1, 11))
    assert trial.sources() == ["checkpoint-10/trainer_state.json"]
    write(tmp_path / "checkpoint-12" / "trainer_state.json", rows_until(12))
    assert trial.tensor("loss").steps() == list(range(1, 13))


def test_a_state_that_is_being_written_is_skipped(tmp_path):
    write(tmp_path / "checkpoint-2" / "trainer_state.json", rows_until(2), 30)
    write(tmp_path / "checkpoint-4" / "trainer_state.json", rows_until(4))
    path = tmp_path / "checkpoint-4" / "trainer_state.json"
    whole = path.read_text()
    path.write_text(whole[:-40])
    trial = smdwidgets.create_trial(tmp_path)
    assert trial.tensor("loss").steps() == [1, 2]
    [(key, message)] = trial.problems()
    assert (key, f"{path}: JSON ends at byte" in message) == ("checkpoint-4/trainer_state.json", True)
    path.write_text(whole)
    assert trial.tensor("loss").steps() == [1, 2, 3, 4]
    assert trial.problems() == []


def test_numbers_of_a_row(tmp_path):
    rows = [{"loss": math.nan, "step": 1}, {"eval_loss": 2, "eval_ok": True, "eval_f": "text", "step": 1}, None, 5]
    write(tmp_path / "trainer_state.json", rows)
    trial = smdwidgets.create_trial(tmp_path)
    assert trial.tensor_names() == ["eval_loss", "loss"]
    assert math.isnan(trial.tensor("loss").value(1))


@pytest.mark.parametrize(
    "text",
    [
        '{"log_history": [], "global_step"',
        '{"log_history": {}, "global_step": 1}',
        '{"global_step": 1, "log_history": ' + "[" * 50_000,
    ],
)
def test_other_content_is_a_problem(tmp_path, text):
    write(tmp_path / "trainer_state.json", rows_until(1), 30)
    (tmp_path / "checkpoint-5").mkdir()
    (tmp_path / "checkpoint-5" / "state.json").write_text(text + ' "global_step"')
    trial = smdwidgets.create_trial(tmp_path)
    assert trial.steps() == [1]
    [(key, message)] = trial.problems()
    assert (key, str(tmp_path) in message) == ("checkpoint-5/state.json", True)


def test_golden_training(source_runs):
    trial = smdwidgets.create_trial(source_runs / "transformers")
    assert trial.tensor("loss").steps() == [1, 2, 3, 4, 5, 6]
    assert trial.tensor("eval_loss").steps() == [3, 6]
    assert trial.tensor("classifier.weight").steps() == [2, 4, 6]
    assert trial.tensor_names(collection="losses") == ["eval_loss", "loss", "train_loss"]
    assert trial.hparams()["train_batch_size"] == 4
    assert trial.run_end() is not None
    assert trial.loaded_all_steps
