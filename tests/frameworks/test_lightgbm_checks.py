"""Checks of LightGBM trainings.

The examples of docs/checks.md, planted faults and their repair, healthy trainings, equal results.
"""

from __future__ import annotations

from pathlib import Path

import lightgbm
import numpy as np
import pytest

from frameworks.check_examples import PAGE, both, is_right, outcomes, run_scripts, runner_of
from python.launch.launching import Place
from smdwidgets import create_trial
from smdwidgets.finding import CHECKS
from smdwidgets.lightgbm import callback

TEXT = PAGE.read_text(encoding="utf-8")
WITH_EXAMPLE = [one.id for one in CHECKS if runner_of(TEXT, one.id) == Path(__file__).name]
QUIET = {"PYTHONWARNINGS": "ignore"}

BEGIN = """
import lightgbm
import numpy as np
random = np.random.default_rng(0)
x = random.normal(size=(400, 6))
y = x[:, 0] + x[:, 1] * x[:, 2] + random.normal(size=400)
c = np.digitize(y, [-1, 1])
b = (y > 0).astype(int)
quiet = {"verbose": -1, "num_threads": 1, "deterministic": True, "force_row_wise": True, "seed": 0}
classes = {"objective": "multiclass", "num_class": 3}
def data(rows=slice(None), target=y, **options):
    return lightgbm.Dataset(x[rows], target[rows], **options)
def train(params, data, *valid, rounds=6, callbacks=(), **options):
    return lightgbm.train({**quiet, **params}, data, rounds, valid_sets=list(valid), callbacks=[*callbacks], **options)
def fit(kind, *given, **options):
    stop = options.pop("stop", None)
    model = kind(n_estimators=options.pop("rounds", 6), verbose=-1, n_jobs=1, random_state=0)
    return model.fit(*given, callbacks=[lightgbm.early_stopping(stop, verbose=False)] if stop else None, **options)
def show(model):
    print(float(model.predict(x).sum()).hex())
stop = [lightgbm.early_stopping(3, verbose=False)]
first, last = slice(0, 300), slice(300, 400)
"""
#: What fires, the fault, and its repair.
PLANTED = {
    "labels NaN": ("labels_not_finite", "y[:40] = np.nan; train({}, data())", "train({}, data(slice(40, 400)))"),
    "labels equal": ("labels_equal", "train({}, data(target=y * 0))", "train({}, data())"),
    "labels 1 and 2": (
        "labels_merged",
        "train({'objective': 'binary'}, data(target=b + 1))",
        "train({'objective': 'binary'}, data(target=b))",
    ),
    "three labels": (
        "labels_merged",
        "train({'objective': 'binary'}, data(target=c))",
        "train(classes, data(target=c))",
    ),
    "off by one": (
        "off_by_one",
        "train({**classes, 'num_class': 4}, data(target=c + 1))",
        "train(classes, data(target=c))",
    ),
    "weights": ("weights_zero", "train({}, data(weight=np.zeros(400)))", "train({}, data(weight=np.ones(400)))"),
    "stops on a copy": (
        "early_stopping_on_training",
        "train({}, data(), data(), callbacks=stop)",
        "train({}, data(first), data(last), callbacks=stop)",
    ),
    "stops on a part, by parameter": (
        "early_stopping_on_training",
        "d = data(); train({'early_stopping_round': 3}, d, d, data(last))",
        "d = data(first); train({'early_stopping_round': 3}, d, d, data(last))",
    ),
    "an estimator stops on its rows": (
        "early_stopping_on_training",
        "fit(lightgbm.LGBMRegressor, x, y, eval_set=[(x[last], y[last])], stop=3)",
        "fit(lightgbm.LGBMRegressor, x[first], y[first], eval_set=[(x[last], y[last])], stop=3)",
    ),
    "rows are shared": (
        "validation_in_training",
        "train({}, data(slice(0, 350)), data(last))",
        "train({}, data(first), data(last))",
    ),
    "sorted": (
        "classes_not_trained",
        "o = np.argsort(c); x, c = x[o], c[o]; train(classes, data(first, c), data(last, c))",
        "train(classes, data(first, c), data(last, c))",
    ),
    "label among the features": ("target_in_input", "x[:, 3] = y; train({}, data())", "train({}, data())"),
    "rows equal": ("equal_rows", "x[:] = x[0]; train({}, data())", "train({}, data())"),
    "validation not scaled": (
        "eval_inputs_differ",
        "v = lightgbm.Dataset(x[last] * 9 + 50, y[last]); train({}, data(first), v)",
        "train({}, data(first), data(last))",
    ),
    "rate 3": ("rate_above_one", "train({'eta': 3}, data())", "train({'eta': 0.3}, data())"),
    "accuracy minimized": (
        "metric_direction",
        "f = lambda p, d: ('accuracy', np.mean((p > 0) == (d.get_label() > 0)), False)\ntrain({'metric': 'none'}, data(first), data(last), feval=f, callbacks=stop)",
        "f = lambda p, d: ('accuracy', np.mean((p > 0) == (d.get_label() > 0)), True)\ntrain({'metric': 'none'}, data(first), data(last), feval=f, callbacks=stop)",
    ),
    "few rows": (
        "no_splits",
        "fit(lightgbm.LGBMRegressor, x[:30], y[:30])",
        "fit(lightgbm.LGBMRegressor, x[:90], y[:90])",
    ),
    "no gain": ("no_splits", "train({'min_gain_to_split': 1e9}, data())", "train({'min_gain_to_split': 0.1}, data())"),
}
HEALTHY = {
    "regression": "show(train({}, data(first), data(last)))",
    "monitors its data": "d = data(first); show(train({}, d, d, data(last), callbacks=stop))",
    "monitors a copy": "show(train({}, data(first), data(first), data(last), callbacks=stop, valid_names=['train', 'valid']))",
    "binary": "show(train({'objective': 'binary'}, data(first, b), data(last, b), rounds=20, callbacks=stop))",
    "signs": "show(train({'objective': 'binary'}, data(target=2 * b - 1)))",
    "ranking": "show(train({'objective': 'lambdarank'}, data(target=c, group=[10] * 40)))",
    "counts": "show(train({'objective': 'poisson'}, data(target=random.poisson(3, 400))))",
    "probabilities": "show(train({'objective': 'cross_entropy'}, data(target=1 / (1 + np.exp(-y)))))",
    "dart": "show(train({'boosting': 'dart'}, data()))",
    "forest": "show(train({'boosting': 'rf', 'bagging_freq': 1, 'bagging_fraction': 0.5}, data()))",
    "linear trees": "show(train({'linear_tree': True}, data()))",
    "custom objective": "show(train({'objective': lambda p, d: (p - y, np.ones(400))}, data(target=y * 0)))",
    "missing": "x[random.random(x.shape) < 0.2] = np.nan; show(train({}, data(first), data(last)))",
    "sparse": "from scipy.sparse import csr_matrix\nx[abs(x) < 1] = 0; show(train({}, lightgbm.Dataset(csr_matrix(x), y)))",
    "categories": "x = np.abs(x).astype(int); show(train({}, data(categorical_feature=[0, 1])))",
    "few values": "x = (x > 0).astype(float); show(train({}, data(first), data(last)))",
    "one feature": "x = x[:, :1]; show(train({}, data(target=2 * x[:, 0])))",
    "weights": "show(train({}, data(weight=random.random(400))))",
    "continued": "m = train({}, data(free_raw_data=False)); show(train({}, data(), init_model=m))",
    "constructed before": "d = data().construct(); show(train({}, d))",
    "a file": "np.savetxt('d.csv', np.column_stack([y, x]), delimiter=','); show(train({}, lightgbm.Dataset('d.csv')))",
    "a subset": "d = data(free_raw_data=False).construct(); show(train({}, d.subset(range(300))))",
    "tiny": "show(train({'min_child_samples': 1, 'min_data_in_bin': 1}, lightgbm.Dataset(x[:8], y[:8])))",
    "estimator": "show(fit(lightgbm.LGBMClassifier, x[first], c[first], eval_set=[(x[last], c[last])]))",
    "estimator of both": "show(fit(lightgbm.LGBMClassifier, x[first], b[first], eval_set=[(x[first], b[first]), (x[last], b[last])], "
    "eval_metric='auc', rounds=30, stop=3))",
    "estimator of names": "show(fit(lightgbm.LGBMClassifier, x, np.array(['a', 'b', 'c'])[c]).booster_)",
    "ranker": "show(fit(lightgbm.LGBMRanker, x, c, group=[10] * 40))",
    "cross-validation": "print(lightgbm.cv({**quiet}, data(), 4, nfold=3, stratified=False)['valid l2-mean'][-1].hex())",
    "rate falls": "show(train({}, data(), callbacks=[lightgbm.reset_parameter(learning_rate=lambda n: 0.5 ** n)]))",
    "iris": "from sklearn.datasets import load_iris\nx, c = load_iris(return_X_y=True); o = random.permutation(150); x, c = x[o], c[o]\nshow(train(classes, data(slice(0, 120), c), data(slice(120, 150), c), callbacks=stop))",
    "cancer": "from sklearn.datasets import load_breast_cancer\nx, b = load_breast_cancer(return_X_y=True)\nshow(train({'objective': 'binary'}, data(slice(0, 400), b), data(slice(400, 569), b), rounds=30, callbacks=stop))",
    "diabetes": "from sklearn.datasets import load_diabetes\nx, y = load_diabetes(return_X_y=True)\nshow(train({}, data(slice(0, 342), y), data(slice(342, 442), y), rounds=30, callbacks=stop))",
    "digits": "from sklearn.datasets import load_digits\nx, c = load_digits(return_X_y=True)\nshow(train({**classes, 'num_class': 10}, data(slice(0, 1400), c), data(slice(1400, 1797), c), rounds=3))",
}


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    return outcomes(Place(tmp_path_factory.mktemp("examples")), "lightgbm", WITH_EXAMPLE, **QUIET)


@pytest.mark.parametrize("check", WITH_EXAMPLE)
def test_the_example_of_a_check_fires_and_its_fix_does_not(page, check):
    is_right(check, page)


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    scripts = {f"{name}/{n}": case[1 + n] for name, case in PLANTED.items() for n in (0, 1)}
    return run_scripts(tmp_path_factory.mktemp("planted"), BEGIN, scripts, **QUIET)


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_named_and_its_repair_is_silent(planted, name):
    (broken, _), (fixed, _) = planted[f"{name}/0"], planted[f"{name}/1"]
    assert PLANTED[name][0] in broken
    assert {*fixed.values()} <= {"note"}
    assert PLANTED[name][0] not in fixed


@pytest.fixture(scope="module")
def healthy(tmp_path_factory):
    return run_scripts(tmp_path_factory.mktemp("healthy"), BEGIN, HEALTHY, **QUIET)


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_training_is_silent(healthy, name):
    found, off = healthy[name]
    assert {*found.values()} <= {"note"}, found
    assert not any("Error" in reason for reason in off.values()), off


def test_trainings_with_checks_have_the_same_bits(tmp_path):
    plain, checked = both(Place(tmp_path), BEGIN, HEALTHY, **QUIET)
    assert plain.code == checked.code == 0, checked.err
    assert checked.out == plain.out
    assert len(plain.out.splitlines()) == len(HEALTHY)


def test_a_hook_of_a_script_checks_what_the_first_round_shows(tmp_path):
    random = np.random.default_rng(0)
    x = random.normal(size=(400, 6))
    y = (x[:, 0] > 0) + 1
    quiet = {"objective": "binary", "verbose": -1, "num_threads": 1}
    with callback(tmp_path / "run", checks=True) as hook:
        lightgbm.train(quiet, lightgbm.Dataset(x, y), 5, callbacks=[hook])
    records = create_trial(tmp_path / "run").checks()
    assert [one.id for one in records] == ["labels_merged", "no_splits"]
    assert records.off["target_in_input"].startswith("the features of the training data cannot be read")
    assert records.updates == 5


def test_checks_only_exits_with_1_if_there_is_a_problem(tmp_path):
    place = Place(tmp_path)
    place.write(
        "train.py", BEGIN + "train({'objective': 'binary'}, data(target=b + 1), rounds=100)\nprint('not reached')\n"
    )
    done = place.run("--checks-only", "--steps", "4", "train.py", env=QUIET)
    assert done.code == 1
    assert "problem at step 0: The objective takes the labels 1, 2 for one class" in done.said[1]
    assert done.said[-1] == "checked 4 updates: 2 problems, 0 warnings, 0 notes"
    assert "not reached" not in done.out
