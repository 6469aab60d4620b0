"""The callback for LightGBM, in whole scripts."""

from __future__ import annotations

import json

import pytest

from endings.running import run_script
from frameworks.trainer_scripts import diagnosed, run
from smdwidgets import create_trial

SCRIPT = """
import json, sys
import lightgbm
import numpy as np

rng = np.random.default_rng(0)
x = rng.normal(size=(200, 3))
y = x[:, 0] * 2 + np.sin(x[:, 1]) + rng.normal(0, 0.1, 200)
params = {"objective": "regression", "metric": ["l2", "l1"], "verbose": -1, "num_leaves": 4, "num_threads": 1, "seed": 0,
          "deterministic": True}
data = lightgbm.Dataset(x[:150], y[:150], free_raw_data=False)
valid = data.create_valid(x[150:], y[150:])
"""

TRAIN = """
history = {}
callbacks = [lightgbm.record_evaluation(history), lightgbm.reset_parameter(learning_rate=lambda i: 0.2 * 0.9**i)]
if sys.argv[1] != "none":
    from smdwidgets.lightgbm import callback
    callbacks.append(callback(sys.argv[1], **json.loads(sys.argv[2])))
booster = lightgbm.train(params, data, 12, valid_sets=[data, valid], valid_names=["training", "valid"], callbacks=callbacks)
print("out:", json.dumps([history, booster.predict(x[:5]).tolist()]))
if sys.argv[1] != "none":
    from smdwidgets import create_trial
    trial = create_trial(sys.argv[1])
    print("out:", trial.run_end(), len(trial.steps()))
"""


def saved(trial, name):
    tensor = trial.tensor(name)
    return [tensor.value(step).item() for step in tensor.steps()]


def test_metrics_and_learning_rates_are_saved_and_the_training_is_the_same(tmp_path):
    here, complete = run(SCRIPT + TRAIN, tmp_path, "run", "{}")
    assert complete == "completed 12"
    assert run(SCRIPT + TRAIN, tmp_path, "none") == [here]
    history, _ = json.loads(here)
    trial = create_trial(tmp_path / "run")
    for data in ("training", "valid"):
        for metric in ("l2", "l1"):
            assert saved(trial, f"{data}-{metric}") == history[data][metric]
    assert saved(trial, "scalar/learning_rate") == pytest.approx([0.2 * 0.9**i for i in range(12)])
    assert trial.tensor_names(collection="losses") == ["training-l1", "training-l2", "valid-l1", "valid-l2"]
    assert trial.notes() == []
    kinds = diagnosed(trial)
    assert kinds["training-l2", "GLOBAL"] == ("loss", "training")
    assert kinds["valid-l2", "GLOBAL"] == ("loss", "validation")
    assert kinds["scalar/learning_rate", "GLOBAL"][0] == "learning rate"


def test_importances_and_hyperparameters(tmp_path):
    options = {
        "include_collections": ["feature_importance", "hyperparameters"],
        "save_config": {"GLOBAL": {"save_interval": 5}},
    }
    run(SCRIPT + TRAIN, tmp_path, "run", json.dumps(options))
    trial = create_trial(tmp_path / "run")
    gains = [trial.tensor(f"feature_importance/gain/Column_{i}").value(10).item() for i in range(3)]
    assert sum(gains) == pytest.approx(1)
    assert gains[0] == max(gains)
    assert trial.tensor("hyperparameters/num_leaves").value(0).item() == 4
    assert trial.tensor("feature_importance/split/Column_0").steps() == [0, 5, 10]


OTHERS = """
import warnings
from lightgbm import LGBMClassifier
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from smdwidgets.lightgbm import Hook, callback
from smdwidgets.stop import request_stop
warnings.filterwarnings("ignore")

with callback("cv") as hook:
    lightgbm.cv(params, data, 5, nfold=2, stratified=False, callbacks=[hook])

model = LGBMClassifier(n_estimators=6, num_leaves=4, verbose=-1, n_jobs=1)
labels = (y > 0).astype(int)
with callback("classifier") as hook:
    clone(model).fit(x, labels, eval_set=[(x, labels)], eval_metric="auc", callbacks=[hook])
with callback("scores") as hook:
    scores = cross_val_score(model, x, labels, cv=2, params={"callbacks": [hook]})
print("out:", scores.tolist() == cross_val_score(model, x, labels, cv=2).tolist())

class Stop:
    order = 1
    def __call__(self, env):
        if env.iteration == 3:
            request_stop("stopped", by="a test")
print("out:", lightgbm.train(params, data, 50_000, valid_sets=[valid], callbacks=[callback("stopped"), Stop()]).num_trees())
lightgbm.train(params, data, 25, callbacks=[callback("without")])

early = [callback("early"), lightgbm.early_stopping(2, verbose=False), lightgbm.reset_parameter(learning_rate=lambda i: 0.5)]
booster = lightgbm.train(params, data, 200, valid_sets=[valid], callbacks=early)
print("out:", booster.num_trees())

def broken(*args, **kwargs):
    raise ValueError("broken on purpose")
Hook._capture = broken
print("out:", lightgbm.train(params, data, 5, valid_sets=[valid], callbacks=[callback("broken")]).num_trees())
"""


def test_cross_validation_estimators_stops_and_failures(tmp_path):
    done = run_script(SCRIPT + OTHERS, tmp_path)
    assert done.returncode == 0, done.stderr
    said = [line.removeprefix("out: ") for line in done.stdout.splitlines() if line.startswith("out:")]
    assert said[0] == "True"
    assert 4 <= int(said[1]) < 50_000  # a request is looked for ten times a second
    assert said[3] == "5"
    assert done.stderr.count("broken on purpose") == 1
    assert done.stderr.count("pass valid_sets") == 1
    with create_trial(tmp_path / "cv") as trial:
        assert trial.tensor("valid-l2").steps() == list(range(5))
        assert trial.tensor("valid-l2-std").steps() == list(range(5))
        assert trial.tensor_names(collection="losses") == ["valid-l1", "valid-l2"]
    with create_trial(tmp_path / "classifier") as trial:
        assert trial.tensor_names(collection="losses") == ["training-binary_logloss"]
        assert {"training-auc", "training-binary_logloss"} == set(trial.tensor_names(collection="metrics"))
        assert saved(trial, "scalar/learning_rate") == [0.1] * 6
    with create_trial(tmp_path / "scores") as trial:
        assert len(trial.steps()) == 12  # both folds
    with create_trial(tmp_path / "stopped") as trial:
        assert trial.steps() == list(range(int(said[1])))
    with create_trial(tmp_path / "early") as trial:
        assert len(trial.steps()) == int(said[2]) + 2 < 200  # the model ends with its best round
        assert str(trial.run_end()) == "completed"
