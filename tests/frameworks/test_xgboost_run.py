"""`smdwidgets run` with XGBoost: the same results, and metrics of every round."""

from __future__ import annotations

import pytest

from python.launch.launching import Place
from smdwidgets import create_trial

BEGIN = """
import numpy as np
import xgboost
rng = np.random.default_rng(0)
x = rng.normal(size=(200, 5))
y = (x[:, 0] + x[:, 1] > 0).astype(int)
"""
CLASSIFIER = """
model = xgboost.XGBClassifier(n_estimators=8, max_depth=3)
model.fit(x[:150], y[:150], eval_set=[(x[150:], y[150:])])
print([value.hex() for value in model.evals_result()["validation_0"]["logloss"]], model.predict_proba(x)[:, 0].sum().item().hex())
"""


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


def both(place, script):
    """Run a script without and with the launcher; return the second."""
    place.write("train.py", BEGIN + script)
    plain, done = place.python("train.py"), place.run("train.py")
    assert plain.code == done.code == 0, done.err
    assert done.out == plain.out
    return done


def test_an_estimator(place):
    done = both(place, CLASSIFIER)
    assert (
        done.said[0]
        == "recording boosting of 150 rows, 5 features to runs/train: losses within 20 times the size of the model (100 MB to 2 GB)"
    )
    with create_trial(place.folder / "runs/train") as trial:
        assert trial.steps() == list(range(8))
        assert trial.tensor("validation_0-logloss").steps() == list(range(8))
        assert str(trial.run_end()) == "completed"


def test_each_training_of_a_search_has_a_run(place):
    done = both(
        place,
        """
from sklearn.model_selection import cross_val_score
print(cross_val_score(xgboost.XGBClassifier(n_estimators=3), x, y, cv=3))
booster = xgboost.train({"max_depth": 2}, xgboost.DMatrix(x, y), 4, callbacks=[xgboost.callback.EarlyStopping(3, data_name="d")],
                        evals=[(xgboost.DMatrix(x, y), "d")])
print(booster.num_boosted_rounds(), booster.predict(xgboost.DMatrix(x)).sum())
""",
    )
    # Notes say that no data, or those of the training, were evaluated.
    words = [line.split(" ")[0] for line in done.said if line.startswith("record")]
    assert words == ["recording", "recorded"] * 4
    with create_trial(place.folder / "runs/train-4") as trial:
        assert trial.tensor("d-rmse").steps() == list(range(4))


def test_a_cross_validation_is_a_run(place):
    done = both(
        place,
        """
found = xgboost.cv({"max_depth": 2}, xgboost.DMatrix(x, y), 6, nfold=3, seed=1, as_pandas=False)
print([value.hex() for value in found["test-rmse-mean"]])
""",
    )
    assert done.said[0].startswith("recording cross-validation of 200 rows, 5 features to runs/train")
    with create_trial(place.folder / "runs/train") as trial:
        test = trial.tensor("test-rmse")
        assert [test.value(step).item().hex() for step in range(6)] == eval(done.out)
        assert {"train-rmse", "test-rmse-std"} <= {*trial.tensor_names()}


def test_a_script_with_a_hook_is_not_recorded_twice(place):
    script = "from smdwidgets.xgboost import Hook\nhook = Hook('own', overwrite=True)\n" + CLASSIFIER.replace(
        "max_depth=3", "max_depth=3, callbacks=[hook]"
    )
    done = both(place, script)
    assert done.said == ["nothing is recorded twice: the script has its own hook, which saves to own"]


def test_a_failing_training_fails_alike(place):
    place.write("train.py", BEGIN + "xgboost.train({'objective': 'none'}, xgboost.DMatrix(x, y), 3)\n")
    plain, done = place.python("train.py"), place.run("train.py")
    assert plain.code == done.code == 1
    assert "nothing was recorded in runs/train" in done.said[-1]
