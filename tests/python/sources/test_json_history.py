"""Histories in one JSON file."""

from __future__ import annotations

import json

import pytest

import smdwidgets
from smdwidgets.exceptions import RunNotFound


def curves(folder):
    trial = smdwidgets.create_trial(folder)
    return {
        name: {step: value.item() for step, value in trial.tensor(name).values().items()}
        for name in trial.tensor_names()
    }


def test_list_of_objects(tmp_path):
    (tmp_path / "history.json").write_text(json.dumps([{"epoch": at + 1, "loss": 1 / (at + 1)} for at in range(3)]))
    assert curves(tmp_path) == {"loss": {1: 1, 2: 0.5, 3: 1 / 3}}


def test_object_of_lists(tmp_path):
    (tmp_path / "history.json").write_text(json.dumps({"loss": [3, 2, 1], "val_loss": [5, 4], "note": "x"}))
    assert curves(tmp_path) == {"loss": {0: 3, 1: 2, 2: 1}, "val_loss": {0: 5, 1: 4}}


def test_rewritten_and_damaged_history(tmp_path):
    path = tmp_path / "history.json"
    path.write_text('{"loss": [3, 2]}')
    trial = smdwidgets.create_trial(tmp_path)
    path.write_text('{"loss": [3, 2, 1')
    assert trial.tensor("loss").steps() == [0, 1]
    [(key, message)] = trial.problems()
    assert (key, f"{path}: JSON ends at byte 17" in message) == ("history.json", True)
    path.write_text('{"loss": [3, 2, 1]}')
    assert trial.tensor("loss").steps() == [0, 1, 2]
    assert trial.problems() == []


@pytest.mark.parametrize(
    "content",
    [
        [{"name": "ann", "age": 1}],
        {"size": [1, 2]},
        {"loss": 0.5},
        {"loss": ["mse"]},
        [1, 2, {"loss": 1}],
        [],
        {},
        {"loss_weights": {"a": [1]}},
    ],
)
def test_other_files_are_no_histories(tmp_path, content):
    (tmp_path / "data.json").write_text(json.dumps(content))
    with pytest.raises(RunNotFound):
        smdwidgets.create_trial(tmp_path)


def test_nesting_without_end_is_refused(tmp_path):
    (tmp_path / "data.json").write_text('{"loss": ' + "[" * 100_000)
    with pytest.raises(RunNotFound):
        smdwidgets.create_trial(tmp_path)
