"""Real boostings with XGBoost."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

import numpy as np
import pytest
import xgboost

sys.path.insert(0, str(Path(__file__).parent))
import reading

import smdwidgets
from smdwidgets.exceptions import SMDebugTypeError
from smdwidgets.hooks.boosting.xgboost import tree_table
from smdwidgets.stop import request_stop
from smdwidgets.xgboost import Hook, SaveConfig, create_trial, del_hook, get_hook, modes

EVERY = SaveConfig(save_interval=1)


@pytest.fixture
def run(tmp_path):
    return tmp_path / "run"


def data(classes=2, names=None):
    rng = np.random.default_rng(0)
    x = rng.random((300, 4)).astype("float32")
    y = np.minimum((x[:, 0] + x[:, 1]) * classes / 2, classes - 1).astype(int)
    return xgboost.DMatrix(x[:200], y[:200], feature_names=names), xgboost.DMatrix(
        x[200:], y[200:], feature_names=names
    )


def test_everything_of_a_boosting_in_both_readers(run, tmp_path):
    train, validation = data(names=["alpha", "beta/1", "gamma", "δ"])
    parameters = {"objective": "binary:logistic", "max_depth": 3, "eval_metric": ["logloss", "auc"], "eta": 0.3}
    hook = Hook(
        run,
        save_all=True,
        save_config=SaveConfig(save_interval=2),
        hyperparameters=parameters,
        train_data=train,
        validation_data=validation,
    )
    log = {}
    booster = xgboost.train(
        parameters,
        train,
        5,
        evals=[(train, "train"), (validation, "validation")],
        evals_result=log,
        callbacks=[hook],
        verbose_eval=False,
    )
    hook.close()
    expected = {
        "4|worker_0|predictions": booster.predict(validation),
        "4|worker_0|labels": validation.get_label(),
        "2|worker_0|train-logloss": np.array([log["train"]["logloss"][2]]),
        "4|worker_0|validation-auc": np.array([log["validation"]["auc"][4]]),
        "0|worker_0|hyperparameters/max_depth": np.array([3]),
    }
    found = reading.check(run, expected, tmp_path)
    at = lambda name: found[f"4|worker_0|{name}"]  # noqa: E731
    for kind in ("weight", "gain", "cover", "total_gain", "total_cover"):
        scores = booster.get_score(importance_type=kind)
        for feature, score in scores.items():
            assert at(f"feature_importance/{kind}/{feature}") == pytest.approx(score / sum(scores.values()))
    contributions = booster.predict(train, pred_contribs=True)
    assert (at("full_shap/beta/1") == contributions).all()
    assert at("average_shap/bias") == pytest.approx(contributions[:, -1].mean(), rel=1e-5)
    table = booster.trees_to_dataframe()
    last = table[table["Tree"] == 4]
    assert at("trees/ID").tolist() == last["ID"].tolist()
    assert at("trees/Feature").tolist() == last["Feature"].tolist()
    np.testing.assert_allclose(at("trees/Gain"), last["Gain"])
    assert at("hyperparameters/objective").tolist() == ["binary:logistic"]
    collections = json.loads((run / "collections/000000000/worker_0_collections.json").read_text())["collections"]
    assert collections["losses"]["tensor_names"] == ["train-logloss", "validation-logloss"]
    assert "validation-auc" in collections["metrics"]["tensor_names"]


def test_the_tables_of_trees_are_xgboosts_own(tmp_path):
    train, _ = data(classes=3)
    booster = xgboost.train({"objective": "multi:softprob", "num_class": 3, "max_depth": 2}, train, 3)
    frame, table = booster.trees_to_dataframe(), tree_table(booster.get_dump(with_stats=True))
    for column in frame.columns:
        theirs, ours = frame[column].to_numpy(), table[column]
        if ours.dtype.kind in "fi":
            np.testing.assert_allclose(theirs.astype(float), ours)
        else:
            assert [str(value) for value in theirs] == ours.tolist()


def test_a_round_of_many_classes_has_many_trees(run):
    train, _ = data(classes=3)
    with Hook(run, include_collections=["trees"], save_config=EVERY) as hook:
        xgboost.train({"objective": "multi:softprob", "num_class": 3, "max_depth": 2}, train, 2, callbacks=[hook])
    assert sorted(set(reading.by_us(run)["1|worker_0|trees/Tree"].tolist())) == [3, 4, 5]


def test_without_a_plan_metrics_every_ten_rounds(run):
    train, validation = data()
    with Hook(run, plan=False) as hook:
        xgboost.train({}, train, 12, evals=[(validation, "validation")], callbacks=[hook], verbose_eval=False)
    assert {key for key in reading.by_us(run) if "|" in key} == {
        "0|worker_0|validation-rmse",
        "10|worker_0|validation-rmse",
    }


def test_run_without_evaluated_data_says_why_it_is_empty(run):
    """As of an estimator that is cloned for each fold of a cross-validation."""
    features = np.random.default_rng(0).random((90, 3))
    with Hook(run) as hook:
        for _ in range(3):
            xgboost.XGBClassifier(n_estimators=4, callbacks=[hook]).fit(features, features[:, 0] > 0.5)
    with create_trial(run) as trial:
        [(_, note)] = trial.notes()
    assert note.startswith("collection 'metrics' is saved by default, but nothing was saved for it in 12 steps")
    assert "pass evals to xgboost.train, or eval_set to fit" in note


def test_estimators_linear_boosters_and_missing_data(run, caplog):
    x, y = np.random.default_rng(0).random((50, 3)), np.arange(50) % 2
    with caplog.at_level(logging.WARNING), Hook(run, save_all=True, save_config=EVERY) as hook:
        xgboost.XGBRegressor(n_estimators=2, booster="gblinear", callbacks=[hook]).fit(
            x, y, eval_set=[(x, y)], verbose=False
        )
    names = {key.split("|", 2)[2] for key in reading.by_us(run) if "|" in key}
    assert names == {"validation_0-rmse"}
    for argument in ("hyperparameters", "train_data", "validation_data"):
        assert caplog.text.count(f"pass {argument} to the hook") == 1


def test_shap_collections_hold_every_feature_and_no_bias(run):
    train, _ = data(names=["alpha", "beta/1", "gamma", "bias_free"])
    with Hook(run, include_collections=["full_shap", "average_shap"], train_data=train, save_config=EVERY) as hook:
        booster = xgboost.train({"objective": "binary:logistic"}, train, 1, callbacks=[hook])
    contributions = booster.predict(train, pred_contribs=True)
    found = reading.by_us(run)
    names = {key.split("|", 2)[2] for key in found if "|" in key}
    features = ["alpha", "beta/1", "gamma", "bias_free"]
    assert names == {f"{kind}_shap/{feature}" for kind in ("full", "average") for feature in features}
    for feature in features:
        assert (found[f"0|worker_0|full_shap/{feature}"] == contributions).all()
    assert found["0|worker_0|average_shap/gamma"] == pytest.approx(contributions[:, 2].mean(), rel=1e-5)


@pytest.mark.parametrize("given", ["train_data", "nothing"])
def test_a_boosting_without_validation_data_leaves_a_run(run, given):
    train, _ = data()
    options = {"train_data": train} if given == "train_data" else {}
    hook = Hook(run, include_collections=["full_shap", "average_shap"], **options)
    xgboost.train({"objective": "binary:logistic"}, train, 2, callbacks=[hook])
    trial = create_trial(run)  # before the hook is closed
    assert trial.steps() == ([0] if options else [])
    hook._cleanup()
    assert (run / "training_job_end.ts").exists()


def test_hook_from_config_under_smdebugs_name(run, tmp_path):
    path = tmp_path / "hook.json"
    path.write_text(json.dumps({"LocalPath": str(run), "HookParameters": {"save_interval": "3"}}))
    with Hook.hook_from_config(str(path)) as hook:
        assert hook.save_config.get_save_config(modes.TRAIN).save_interval == 3
        assert get_hook() is hook


def test_get_hook_reads_the_configuration_file(run, tmp_path, monkeypatch):
    del_hook()
    monkeypatch.setenv("SMDEBUG_CONFIG_FILE_PATH", str(tmp_path / "hook.json"))
    assert get_hook() is None
    (tmp_path / "hook.json").write_text(json.dumps({"LocalPath": str(run)}))
    with get_hook() as hook:
        assert isinstance(hook, Hook)


def test_the_stop_file_ends_the_boosting(run):
    train, _ = data()
    with Hook(run, save_config=EVERY) as hook:
        request_stop(run, by="TreeDepth")
        booster = xgboost.train({}, train, 20, evals=[(train, "train")], callbacks=[hook], verbose_eval=False)
    assert booster.num_boosted_rounds() == 1


def test_wrong_arguments(run):
    for arguments in ({"train_data": np.ones(3)}, {"validation_data": ("file", "csv")}, {"hyperparameters": [1]}):
        with pytest.raises(SMDebugTypeError, match=next(iter(arguments))):
            Hook(run, **arguments)


def test_estimator_with_the_hook_can_be_cloned_and_cross_validated(run):
    """`sklearn.base.clone` copies an estimator's callbacks, but not the hook.

    Each fold is recorded.
    """
    from sklearn.base import clone
    from sklearn.model_selection import cross_val_score

    rng = np.random.default_rng(0)
    x = rng.random((90, 3))
    y = (x.sum(axis=1) > 1.5).astype(int)
    with Hook(run, save_config=EVERY) as hook:
        estimator = xgboost.XGBClassifier(n_estimators=4, callbacks=[hook])
        assert clone(estimator).get_params()["callbacks"] == [hook]
        with_hook = cross_val_score(estimator, x, y, cv=3)
        before = hook.global_step
        clone(estimator).fit(x, y, eval_set=[(x, y)], verbose=False)
    assert before == 11
    assert hook.global_step == 15
    without = cross_val_score(xgboost.XGBClassifier(n_estimators=4), x, y, cv=3)
    assert with_hook.tolist() == without.tolist()
    with smdwidgets.create_trial(run) as trial:
        assert trial.steps() == [12, 13, 14, 15]  # the folds have no evaluation data, hence no metrics
        assert "validation_0-logloss" in trial.tensor_names()
