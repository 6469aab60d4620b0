"""`smdwidgets run` with LightGBM: the same results, and metrics of every round."""

from __future__ import annotations

from python.launch.launching import Place
from smdwidgets import create_trial

SCRIPT = """
import lightgbm
import numpy as np
rng = np.random.default_rng(0)
x = rng.normal(size=(200, 5))
y = (x[:, 0] + x[:, 1] > 0).astype(int)
model = lightgbm.LGBMClassifier(n_estimators=8, num_leaves=4, verbose=-1, num_threads=1)
model.fit(x[:150], y[:150], eval_set=[(x[150:], y[150:])])
print([value.hex() for value in model.evals_result_["valid_0"]["binary_logloss"]], model.predict_proba(x)[:, 0].sum().hex())
booster = lightgbm.train({"verbose": -1, "num_threads": 1}, lightgbm.Dataset(x, y), 3)
print(booster.predict(x).sum().hex())
"""


def test_an_estimator_and_a_booster(tmp_path):
    place = Place(tmp_path)
    place.write("train.py", SCRIPT)
    plain = place.python("-W", "ignore", "train.py")
    done = place.run("train.py", env={"PYTHONWARNINGS": "ignore"})
    assert plain.code == done.code == 0, done.err
    assert done.out == plain.out
    assert [line.split(" ")[0] for line in done.said] == ["recording", "recorded"] * 2
    with create_trial(tmp_path / "runs/train") as trial:
        assert trial.tensor("valid_0-binary_logloss").steps() == list(range(8))
        assert trial.tensor("scalar/learning_rate").steps() == list(range(8))
    with create_trial(tmp_path / "runs/train-2") as trial:
        assert trial.steps() == list(range(3))


def test_a_cross_validation_is_a_run(tmp_path):
    place = Place(tmp_path)
    head = SCRIPT.partition("model =")[0]
    call = 'lightgbm.cv({"verbose": -1, "num_threads": 1, "objective": "binary"}, lightgbm.Dataset(x, y), 6, nfold=3, seed=1)'
    place.write("train.py", f"{head}print([value.hex() for value in {call}['valid binary_logloss-mean']])")
    plain = place.python("-W", "ignore", "train.py")
    done = place.run("train.py", env={"PYTHONWARNINGS": "ignore"})
    assert plain.code == done.code == 0, done.err
    assert done.out == plain.out
    assert done.said[0].startswith("recording cross-validation to runs/train")
    with create_trial(tmp_path / "runs/train") as trial:
        loss = trial.tensor("valid-binary_logloss")
        assert [loss.value(step).item().hex() for step in range(6)] == eval(done.out)
