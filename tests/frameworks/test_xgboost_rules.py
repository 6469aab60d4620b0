"""Rules on real boostings."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import xgboost

sys.path.insert(0, str(Path(__file__).parent))
from ruling import first_firing

from smdwidgets import create_trial
from smdwidgets.rules.report import XgboostReport
from smdwidgets.xgboost import Hook, SaveConfig


def boost(path, *, rounds=12, noise=0.1, leak=False, task="binary:logistic", **parameters):
    random = np.random.default_rng(0)
    x = random.normal(size=(400, 6))
    score = x[:, 0] + x[:, 1] - x[:, 2] + x[:, 3] * x[:, 4] + noise * random.normal(size=400)
    y = {"binary:logistic": score > 0, "reg:squarederror": score, "multi:softprob": np.digitize(score, [-1, 1])}[task]
    if leak:
        x[:, 5] = score + 0.1 * random.normal(size=400)
    train, validation = (
        xgboost.DMatrix(x[part], np.asarray(y[part], float)) for part in (slice(0, 250), slice(250, None))
    )
    told = {"objective": task, "seed": 0, "nthread": 1, "max_depth": 3, **parameters}
    if task.startswith("multi"):
        told["num_class"] = 3
    hook = Hook(
        path,
        save_all=True,
        save_config=SaveConfig(save_interval=1),
        hyperparameters=told,
        train_data=train,
        validation_data=validation,
    )
    xgboost.train(
        told, train, rounds, evals=[(train, "train"), (validation, "validation")], callbacks=[hook], verbose_eval=False
    )
    hook.close()
    return path


def test_tree_depth(tmp_path):
    assert first_firing(boost(tmp_path / "deep", max_depth=9, min_child_weight=0), "TreeDepth") == 0
    assert first_firing(boost(tmp_path / "shallow", max_depth=4), "TreeDepth") is None


def test_a_feature_that_leaks_the_label(tmp_path):
    leaking = boost(tmp_path / "leaking", leak=True, max_depth=2)
    trial = create_trial(leaking)

    def share(step):
        names = trial.tensor_names(step=step, regex="feature_importance/gain")
        gains = [trial.tensor(name).value(step).item() for name in names]
        return max(gains) / sum(gains) if len(gains) > 1 else 0.0

    expected = next(step for step in trial.steps() if share(step) > 0.5)
    told = {"nfeatures": 1, "threshold": 0.5, "tensor_regex": "feature_importance/gain"}
    assert first_firing(leaking, "FeatureImportanceOverweight", **told) == expected
    assert first_firing(boost(tmp_path / "fair", max_depth=5), "FeatureImportanceOverweight", nfeatures="1") is None


def test_overfit(tmp_path):
    run = boost(tmp_path / "run", noise=3.0, max_depth=8, rounds=20)
    trial = create_trial(run)
    training, validation = trial.tensor("train-logloss"), trial.tensor("validation-logloss")
    expected = next(
        step
        for step in trial.steps()
        if (float(validation.value(step).item()) - training.value(step).item()) / training.value(step).item() > 0.1
    )
    assert first_firing(run, "Overfit") == expected


def test_loss_not_decreasing(tmp_path):
    assert first_firing(boost(tmp_path / "stuck", eta=0.0, rounds=15), "LossNotDecreasing") == 10
    assert first_firing(boost(tmp_path / "healthy", rounds=15), "LossNotDecreasing") is None


@pytest.mark.parametrize(
    ("task", "kind"),
    [("binary:logistic", "binary"), ("multi:softprob", "multiclass"), ("reg:squarederror", "regression")],
)
def test_report(tmp_path, task, kind):
    report = XgboostReport(create_trial(boost(tmp_path / "run", task=task)))
    assert report.task == kind
    assert not [remark for section in report.sections() for remark in section.remarks if "Not shown" in remark]
    assert report.to_html(tmp_path / "report.html").stat().st_size > 10_000
