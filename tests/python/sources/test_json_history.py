"""Histories in one JSON file."""

from __future__ import annotations

import json
import math

import pytest

import smdwidgets
from smdwidgets.exceptions import RunNotFound
from smdwidgets.naming.scalars import Kind, Role, describe


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


@pytest.mark.parametrize(
    ("name", "curve"),
    [
        ("training_history.json", "Big_VAE"),
        ("train-history.json", "Big_VAE"),
        ("loss_history.json", "Big_VAE/loss"),
        ("val_losses.json", "Big_VAE/val_losses"),
    ],
)
def test_lists_whose_names_are_those_of_models(tmp_path, name, curve):
    """The name of the file says that they are of a training, and what they measure."""
    (tmp_path / name).write_text(json.dumps({"Big_VAE": [0.75, 0.5, math.nan], "Small_AE": [1.5, 1, 0.5, 0.25]}))
    read = curves(tmp_path)
    assert [len(read[one]) for one in (curve, curve.replace("Big_VAE", "Small_AE"))] == [3, 4]
    assert len(read) == 2
    assert [describe(curve).kind is Kind.LOSS] == ["loss" in curve]


@pytest.mark.parametrize("name", ["price_history.json", "history.json", "data.json", "browser_history.json"])
def test_lists_of_other_names_in_other_files(tmp_path, name):
    (tmp_path / name).write_text(json.dumps({"Big": [0.75, 0.5], "Small": [1.5, 1.0]}))
    with pytest.raises(RunNotFound):
        smdwidgets.create_trial(tmp_path)


@pytest.mark.parametrize(
    "content",
    [{"a": [1, 2], "b": [3, 4]}, {"a": [0.5, "x"]}, {"a": [0.5, 0.25], "b": 3}, {"a": [0.5]}, {"a": [[0.5], [1.5]]}],
)
def test_other_contents_of_a_file_with_the_name_of_a_history(tmp_path, content):
    (tmp_path / "training_history.json").write_text(json.dumps(content))
    with pytest.raises(RunNotFound):
        smdwidgets.create_trial(tmp_path)


def test_nan_is_a_value_however_many_there_are(tmp_path):
    losses = [2.5, 2.0, 1.5, math.nan, math.nan, math.nan, math.nan, 1.25, math.nan, 1.0]
    (tmp_path / "history.json").write_text(
        json.dumps({"loss": [3.0] * 10, "val_loss": losses, "f1": [None] * 9 + [0.5]})
    )
    read = curves(tmp_path)
    assert [at for at, value in read["val_loss"].items() if math.isnan(value)] == [3, 4, 5, 6, 8]
    assert read["f1"] == {9: 0.5}
    [finding] = [one for one in smdwidgets.diagnose(tmp_path).findings if one.kind == "not_finite"]
    assert "val_loss" in str(finding)


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


def test_file_without_an_ending_that_grows(tmp_path):
    rows = [{"main/loss": 2.5, "iteration": 100, "epoch": 1}, {"main/loss": 1.5, "iteration": 200, "epoch": 2}]
    path = tmp_path / "result" / "log"
    path.parent.mkdir()
    path.write_text(json.dumps(rows[:1], indent=4))
    trial = smdwidgets.create_trial(tmp_path)
    assert trial.tensor("main/loss").steps() == [100]
    path.write_text(json.dumps(rows, indent=4))
    assert trial.tensor("main/loss").steps() == [100, 200]
    assert curves(path)["main/loss"] == {100: 2.5, 200: 1.5}


def test_other_files_without_an_ending_are_not_read(tmp_path):
    (tmp_path / "catalog").write_text(json.dumps([{"iteration": 1, "loss": 2.5}]))
    with pytest.raises(RunNotFound):
        smdwidgets.create_trial(tmp_path)


def test_numbers_of_a_training_beside_a_step(tmp_path):
    rows = [{"it": 0, "train_z": 0.5, "train_L_vae": 3.5}, {"it": 500, "train_z": 0.25, "train_L_vae": 2.5}]
    (tmp_path / "result.json").write_text(json.dumps(rows, indent=1))
    assert curves(tmp_path)["train_L_vae"] == {0: 3.5, 500: 2.5}


def catboost(iterations):
    metrics = [{"name": "AUC", "best_value": "Max"}, {"name": "Logloss", "best_value": "Min"}]
    about = {"learn_sets": ["learn"], "learn_metrics": metrics[1:], "test_sets": ["test"], "test_metrics": metrics}
    rows = [
        {"iteration": at, "learn": [1 / (at + 1)], "test": [0.5, 2 / (at + 1)], "passed_time": at}
        for at in range(iterations)
    ]
    return json.dumps({"meta": about, "iterations": rows})


def test_lists_of_catboost(tmp_path):
    path = tmp_path / "catboost_training.json"
    path.write_text(catboost(2))
    found = curves(tmp_path)
    assert found == {"train/Logloss": {0: 1, 1: 0.5}, "test/Logloss": {0: 2, 1: 1}, "test/AUC": {0: 0.5, 1: 0.5}}
    assert [describe(name).role for name in ("train/Logloss", "test/AUC")] == [Role.TRAINING, Role.TEST]
    trial = smdwidgets.create_trial(tmp_path)
    path.write_text(catboost(3))
    assert trial.tensor("train/Logloss").steps() == [0, 1, 2]


def test_tables_of_catboost_beside_its_lists(tmp_path):
    (tmp_path / "catboost_training.json").write_text(catboost(2))
    (tmp_path / "learn_error.tsv").write_text("iter\tLogloss\n0\t1\n1\t0.5\n")
    (tmp_path / "test_error.tsv").write_text("iter\tAUC\tLogloss\n0\t0.5\t2\n1\t0.5\t1\n")
    assert sorted(curves(tmp_path)) == ["test/AUC", "test/Logloss", "train/Logloss"]


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
        {"meta": {"learn_metrics": ["RMSE"]}, "iterations": [[0.5]]},
        {"meta": {"learn_metrics": ["RMSE"], "learn_sets": 1}, "iterations": [{"learn": [0.5]}]},
        [{"it": 1, "size": 2}],
        [{"step": 1, "text": "train"}],
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


def test_evaluations_of_boosting(tmp_path):
    evaluations = {"train": {"rmse": [2.5, 1.5]}, "valid": {"rmse": [2.75, 2.0]}}
    (tmp_path / "evals_result.json").write_text(json.dumps(evaluations))
    assert curves(tmp_path) == {"train/rmse": {0: 2.5, 1: 1.5}, "valid/rmse": {0: 2.75, 1: 2.0}}


def test_lists_of_rows_beside_settings(tmp_path):
    rows = [{"epoch": at + 1, "train_loss": 1 / (at + 1)} for at in range(3)]
    settings = {f"option_{at}": at for at in range(500)}
    (tmp_path / "training_log.json").write_text(json.dumps({"config": settings, "training_log": rows}))
    assert curves(tmp_path) == {"train_loss": {1: 1, 2: 0.5, 3: 1 / 3}}


def test_steps_that_begin_again_are_numbered_on(tmp_path):
    content = {
        "loss": ["tensor(2.5, device='cuda:0')", "tensor(2.0)", "1.5"],
        "stats": [{"step": at % 2, "lr": 0.1} for at in range(3)],
    }
    (tmp_path / "history.json").write_text(json.dumps(content))
    assert curves(tmp_path)["loss"] == {0: 2.5, 1: 2.0, 2: 1.5}


def test_a_list_that_its_file_names(tmp_path):
    (tmp_path / "loss_history.json").write_text("[2.5, 1.5, 1.25]")
    assert curves(tmp_path) == {"loss": {0: 2.5, 1: 1.5, 2: 1.25}}
    (tmp_path / "loss_history.json").unlink()
    (tmp_path / "prices.json").write_text("[2.5, 1.5, 1.25]")
    with pytest.raises(RunNotFound):
        smdwidgets.create_trial(tmp_path)
