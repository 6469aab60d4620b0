"""Checks of XGBoost trainings.

The examples of docs/checks.md, planted faults and their repair, healthy trainings, equal results, failures.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xgboost

from frameworks.check_examples import PAGE, both, is_right, outcomes, run_scripts, runner_of
from python.launch.launching import Place
from smdwidgets import create_trial, diagnose
from smdwidgets.finding import CHECKS
from smdwidgets.xgboost import Hook

TEXT = PAGE.read_text(encoding="utf-8")
WITH_EXAMPLE = [one.id for one in CHECKS if runner_of(TEXT, one.id) == Path(__file__).name]

BEGIN = """
import numpy as np
import xgboost
random = np.random.default_rng(0)
x = random.normal(size=(400, 6)).astype("float32")
y = x[:, 0] + x[:, 1] * x[:, 2] + random.normal(size=400)
c = np.digitize(y, [-1, 1])
b = (y > 0).astype(int)
regression, binary = {"objective": "reg:squarederror"}, {"objective": "binary:logistic"}
classes = {"objective": "multi:softprob", "num_class": 3}
def matrix(rows=slice(None), target=y, **options):
    return xgboost.DMatrix(x[rows], target[rows], **options)
def train(params, data, *evals, rounds=6, **options):
    evals = [(each, f"valid_{n}") for n, each in enumerate(evals)]
    return xgboost.train(params, data, rounds, evals=evals, verbose_eval=False, **options)
def show(model):
    print(model.predict(xgboost.DMatrix(x)).sum().item().hex() if isinstance(model, xgboost.Booster) else model.predict(x).sum())
first, last = slice(0, 300), slice(300, 400)
"""
#: What fires, the fault, and its repair.
PLANTED = {
    "labels equal": ("labels_equal", "train(regression, matrix(target=y * 0))", "train(regression, matrix())"),
    "one class": (
        "labels_equal",
        "xgboost.XGBClassifier(n_estimators=4, num_class=None).fit(x, b * 0)",
        "xgboost.XGBClassifier(n_estimators=4).fit(x, b)",
    ),
    "off by one": (
        "off_by_one",
        "train({**classes, 'num_class': 4}, matrix(target=c + 1))",
        "train(classes, matrix(target=c))",
    ),
    "stops on a copy": (
        "early_stopping_on_training",
        "train(regression, matrix(), matrix(), early_stopping_rounds=3)",
        "train(regression, matrix(first), matrix(last), early_stopping_rounds=3)",
    ),
    "stops on a part": (
        "early_stopping_on_training",
        "train(regression, matrix(), matrix(last), early_stopping_rounds=3)",
        "train(regression, matrix(first), matrix(last), early_stopping_rounds=3)",
    ),
    "an estimator stops on its data": (
        "early_stopping_on_training",
        "xgboost.XGBRegressor(n_estimators=20, early_stopping_rounds=3).fit(x, y, eval_set=[(x, y)], verbose=False)",
        "xgboost.XGBRegressor(n_estimators=20, early_stopping_rounds=3).fit(x[first], y[first], eval_set=[(x[last], y[last])], verbose=False)",
    ),
    "an estimator is validated on rows it has": (
        "validation_in_training",
        "xgboost.XGBRegressor(n_estimators=6).fit(x, y, eval_set=[(x[last], y[last])], verbose=False)",
        "xgboost.XGBRegressor(n_estimators=6).fit(x[first], y[first], eval_set=[(x[last], y[last])], verbose=False)",
    ),
    "half of the rows are shared": (
        "validation_in_training",
        "train(regression, matrix(slice(0, 350)), matrix(slice(300, 400)))",
        "train(regression, matrix(first), matrix(last))",
    ),
    "sorted": (
        "classes_not_trained",
        "o = np.argsort(c); x, c = x[o], c[o]; train(classes, matrix(first, c), matrix(last, c))",
        "train(classes, matrix(first, c), matrix(last, c))",
    ),
    "sorted, two classes": (
        "classes_not_trained",
        "o = np.argsort(b); x, b = x[o], b[o]; train(binary, matrix(first, b), matrix(last, b))",
        "train(binary, matrix(first, b), matrix(last, b))",
    ),
    "label among the features": (
        "target_in_input",
        "x[:, 3] = y; train(regression, matrix())",
        "train(regression, matrix())",
    ),
    "logarithm of the label": (
        "target_in_input",
        "x[:, 3] = np.exp(y); train(regression, matrix())",
        "x[:, 3] = np.exp(x[:, 3]); train(regression, matrix())",
    ),
    "class among the features": (
        "target_in_input",
        "x[:, 3] = np.array([7, 1, 3])[c]; train(classes, matrix(target=c))",
        "x[:, 3] = random.permutation(np.array([7, 1, 3])[c]); train(classes, matrix(target=c))",
    ),
    "an estimator has its class": (
        "target_in_input",
        "x[:, 3] = 2 - b; xgboost.XGBClassifier(n_estimators=4).fit(x, b)",
        "xgboost.XGBClassifier(n_estimators=4).fit(x, b)",
    ),
    "rows equal": ("equal_rows", "x[:] = x[0]; train(regression, matrix())", "train(regression, matrix())"),
    "validation not scaled": (
        "eval_inputs_differ",
        "x = x * 9 + 50; v = x.copy(); x = (x - 50) / 9; train(regression, matrix(first), xgboost.DMatrix(v[last], y[last]))",
        "x = x * 9 + 50; train(regression, matrix(first), matrix(last))",
    ),
    "rate 5": (
        "rate_above_one",
        "train({'eta': 5, **regression}, matrix())",
        "train({'eta': 0.5, **regression}, matrix())",
    ),
    "accuracy minimized": (
        "metric_direction",
        "f = lambda p, d: ('accuracy', np.mean((p > 0) == (d.get_label() > 0)))\ntrain(regression, matrix(first), matrix(last), custom_metric=f, early_stopping_rounds=3)",
        "f = lambda p, d: ('accuracy', np.mean((p > 0) == (d.get_label() > 0)))\ntrain(regression, matrix(first), matrix(last), custom_metric=f, early_stopping_rounds=3, maximize=True)",
    ),
    "loss maximized": (
        "metric_direction",
        "train(regression, matrix(first), matrix(last), early_stopping_rounds=3, maximize=True)",
        "train(regression, matrix(first), matrix(last), early_stopping_rounds=3)",
    ),
    "no splits": (
        "no_splits",
        "train({'min_child_weight': 1000, **regression}, matrix())",
        "train({'min_child_weight': 10, **regression}, matrix())",
    ),
    "pruned": (
        "no_splits",
        "train({'gamma': 1e6, **regression}, matrix())",
        "train({'gamma': 1, **regression}, matrix())",
    ),
}
HEALTHY = {
    "regression": "show(train(regression, matrix(first), matrix(last)))",
    "monitors its data": "show(train(regression, matrix(first), matrix(first), matrix(last), early_stopping_rounds=3))",
    "binary": "show(train(binary, matrix(first, b), matrix(last, b), rounds=20, early_stopping_rounds=3))",
    "ranking": "d = matrix(target=c); d.set_group([10] * 40); show(train({'objective': 'rank:ndcg'}, d))",
    "counts": "show(train({'objective': 'count:poisson'}, matrix(target=random.poisson(3, 400))))",
    "survival": "d = matrix(); d.set_float_info('label_lower_bound', abs(y)); d.set_float_info('label_upper_bound', abs(y) + 1)\nshow(train({'objective': 'survival:aft'}, d))",
    "linear": "show(train({'booster': 'gblinear', 'nthread': 1}, matrix()))",
    "dart": "show(train({'booster': 'dart', 'rate_drop': 0.1, 'one_drop': 1}, matrix()))",
    "forest": "show(train({'num_parallel_tree': 4, 'subsample': 0.5, 'eta': 1}, matrix(), rounds=1))",
    "forest estimator": "show(xgboost.XGBRFRegressor(n_estimators=4, n_jobs=1).fit(x, y))",
    "custom objective": "show(train({}, matrix(target=y * 0), obj=lambda p, d: (p - y.astype('f4'), np.ones(400, 'f4'))))",
    "missing": "x[random.random(x.shape) < 0.2] = np.nan; show(train(regression, matrix(first), matrix(last)))",
    "sparse": "from scipy.sparse import csr_matrix\nx[abs(x) < 1] = 0; d = xgboost.DMatrix(csr_matrix(x), y); show(train(regression, d))",
    "categories": "x = np.abs(x).astype(int).astype('f4'); d = xgboost.DMatrix(x, y, feature_types=['c'] * 6, enable_categorical=True)\nprint(train(regression, d).predict(d).sum().item().hex())",
    "few values": "x = (x > 0).astype('f4'); show(train(regression, matrix(first), matrix(last)))",
    "one feature": "x = x[:, :1]; show(train(regression, matrix(target=2 * x[:, 0])))",
    "weights": "show(train(regression, matrix(weight=random.random(400))))",
    "quantiles": "d = xgboost.QuantileDMatrix(x[first], y[first]); e = xgboost.QuantileDMatrix(x[last], y[last], ref=d)\nshow(train({'nthread': 1, **regression}, d, e))",
    "several targets": "show(train(regression, matrix(target=np.stack([y, -y], 1))))",
    "continued": "m = train(regression, matrix()); show(train(regression, matrix(), xgb_model=m))",
    "tiny": "show(train(regression, xgboost.DMatrix(x[:5], y[:5])))",
    "estimator": "show(xgboost.XGBClassifier(n_estimators=8, n_jobs=1).fit(x[first], c[first], eval_set=[(x[last], c[last])], verbose=False))",
    "estimator of both": "show(xgboost.XGBClassifier(n_estimators=30, early_stopping_rounds=3, eval_metric='auc', n_jobs=1).fit(\n    x[first], b[first], eval_set=[(x[first], b[first]), (x[last], b[last])], verbose=False))",
    "ranker": "show(xgboost.XGBRanker(n_estimators=4, n_jobs=1).fit(x, c, qid=np.repeat(np.arange(40), 10)))",
    "a series": "o = np.arange(400.0); x[:, 0] = o; show(train(regression, matrix(first), matrix(last)))",
    "cross-validation": "print(xgboost.cv({'nthread': 1, **regression}, matrix(), 4, nfold=3, as_pandas=False)['test-rmse-mean'][-1].hex())",
    "iterator": """
class Parts(xgboost.DataIter):
    def __init__(self): self.at = 0; super().__init__()
    def reset(self): self.at = 0
    def next(self, give):
        if self.at == 4: return False
        rows = slice(self.at * 100, self.at * 100 + 100); give(data=x[rows], label=y[rows]); self.at += 1; return True
show(train({'nthread': 1, **regression}, xgboost.QuantileDMatrix(Parts())))
""",
    "iris": "from sklearn.datasets import load_iris\nx, c = load_iris(return_X_y=True); o = random.permutation(150); x, c = x[o].astype('f4'), c[o]\nshow(train(classes, matrix(slice(0, 120), c), matrix(slice(120, 150), c), early_stopping_rounds=5))",
    "cancer": "from sklearn.datasets import load_breast_cancer\nx, b = load_breast_cancer(return_X_y=True); x = x.astype('f4')\nshow(train(binary, matrix(slice(0, 400), b), matrix(slice(400, 569), b), rounds=30, early_stopping_rounds=5))",
    "diabetes": "from sklearn.datasets import load_diabetes\nx, y = load_diabetes(return_X_y=True); x = x.astype('f4')\nshow(train(regression, matrix(slice(0, 342), y), matrix(slice(342, 442), y), rounds=30, early_stopping_rounds=5))",
    "wine": "from sklearn.datasets import load_wine\nfrom sklearn.model_selection import train_test_split\nd, e, c, t = train_test_split(*load_wine(return_X_y=True), random_state=0)\nm = xgboost.XGBClassifier(n_estimators=8, n_jobs=1).fit(d, c, eval_set=[(e, t)], verbose=False); print(m.predict_proba(e).sum())",
    "digits": "from sklearn.datasets import load_digits\nx, c = load_digits(return_X_y=True); x = x.astype('f4')\nshow(train({**classes, 'num_class': 10}, matrix(slice(0, 1400), c), matrix(slice(1400, 1797), c), rounds=3))",
}


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    return outcomes(Place(tmp_path_factory.mktemp("examples")), "xgboost", WITH_EXAMPLE)


@pytest.mark.parametrize("check", WITH_EXAMPLE)
def test_the_example_of_a_check_fires_and_its_fix_does_not(page, check):
    is_right(check, page)


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    scripts = {f"{name}/{n}": case[1 + n] for name, case in PLANTED.items() for n in (0, 1)}
    return run_scripts(tmp_path_factory.mktemp("planted"), BEGIN, scripts)


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_named_and_its_repair_is_silent(planted, name):
    (broken, _), (fixed, _) = planted[f"{name}/0"], planted[f"{name}/1"]
    assert PLANTED[name][0] in broken
    assert {*fixed.values()} <= {"note"}
    assert PLANTED[name][0] not in fixed


@pytest.fixture(scope="module")
def healthy(tmp_path_factory):
    return run_scripts(tmp_path_factory.mktemp("healthy"), BEGIN, HEALTHY)


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_training_is_silent(healthy, name):
    found, off = healthy[name]
    assert {*found.values()} <= {"note"}, found
    assert not any("Error" in reason for reason in off.values()), off


def test_trainings_with_checks_have_the_same_bits(tmp_path):
    plain, checked = both(Place(tmp_path), BEGIN, HEALTHY)
    assert plain.code == checked.code == 0, checked.err
    assert checked.out == plain.out
    assert len(plain.out.splitlines()) == len(HEALTHY)


# ------------------------------------------------------------------------------------------------------ hooks, failures


def data(rows=400):
    random = np.random.default_rng(0)
    x = random.normal(size=(rows, 6)).astype("float32")
    return x, x[:, 0] + random.normal(size=rows)


def test_a_hook_of_a_script_checks_its_data(tmp_path):
    x, y = data()
    matrix, valid = xgboost.DMatrix(x, y), xgboost.DMatrix(x[300:], y[300:])
    hook = Hook(tmp_path / "run", checks=True, train_data=matrix, validation_data=valid, hyperparameters={"eta": 3})
    xgboost.train({"eta": 3}, matrix, 5, evals=[(valid, "valid")], callbacks=[hook], verbose_eval=False)
    hook.close()
    records = create_trial(tmp_path / "run").checks()
    assert {one.id: one.level for one in records} == {"validation_in_training": "problem", "rate_above_one": "problem"}
    assert records.updates == 5
    assert {one.kind for one in diagnose(tmp_path / "run").findings} >= {"validation_in_training"}


def test_a_hook_without_data_says_what_it_cannot_check(tmp_path):
    x, y = data()
    with Hook(tmp_path / "run", checks=True) as hook:
        xgboost.train({}, xgboost.DMatrix(x, y), 3, callbacks=[hook])
    off = create_trial(tmp_path / "run").checks().off
    assert off["target_in_input"] == "pass train_data to the hook"


def test_a_check_that_fails_is_off_and_the_training_goes_on(tmp_path, monkeypatch):
    import smdwidgets.checks.boosting as module

    monkeypatch.setattr(module.TableChecks, "look", lambda *given: 1 / 0)
    x, y = data()
    matrix = xgboost.DMatrix(x, y)
    with Hook(tmp_path / "run", checks=True, train_data=matrix) as hook:
        model = xgboost.train({}, matrix, 3, callbacks=[hook])
    assert model.num_boosted_rounds() == 3
    assert create_trial(tmp_path / "run").checks().off["labels_equal"] == "ZeroDivisionError: division by zero"


def test_checks_only_stops_after_the_rounds_and_prints_at_once(tmp_path):
    place = Place(tmp_path)
    place.write("train.py", BEGIN + "train({'eta': 3, **regression}, matrix(), rounds=100)\nprint('not reached')\n")
    done = place.run("--checks-only", "--steps", "4", "train.py")
    assert done.code == 1
    assert "problem at step 0: The learning rate is 3" in done.said[1]
    assert done.said[-1] == "checked 4 updates: 1 problem, 0 warnings, 0 notes"
    assert "not reached" not in done.out
    assert not (tmp_path / "runs").exists()
