"""Checks of tables: what fires for which data, without any framework."""

import numpy as np
import pytest

from smdwidgets.checks.boosting import MECHANISMS, BoostingChecks, Validation
from smdwidgets.checks.log import CheckLog
from smdwidgets.checks.record import CheckRecords
from smdwidgets.checks.tables import TABLE_CHECKS, Table, TableChecks
from smdwidgets.finding import CHECKS

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(300, 5))
Y = X[:, 0] + RANDOM.normal(size=300)
CLASSES = np.digitize(Y, [-0.5, 0.5])
BITS = (Y > 0).astype(int)
ALL = frozenset(one.id for one in CHECKS)


def with_column(values, index=2):
    changed = X.copy()
    changed[:, index] = values
    return changed


def look(features, labels, task, weights=None, **options):
    log = CheckLog(ALL, lambda line: None)
    TableChecks(log, Table(features, labels, weights, **options), task).look(4 if task == "classes" else None)
    return {one.id: one.level for one in log.fired}


@pytest.mark.parametrize(
    ("features", "labels", "task", "expected"),
    [
        (X, Y, "regression", {}),
        (X, CLASSES, "classes", {}),
        (X, BITS, "binary", {}),
        (X, BITS, "regression", {"mse_on_classes": "note"}),
        (X, CLASSES + 1, "classes", {"off_by_one": "problem"}),
        (X, np.full(300, 3.0), "regression", {"labels_equal": "problem"}),
        (X, np.full(300, 3.0), "other", {}),
        (X[:9], np.full(9, 3.0), "regression", {}),
        (X, np.where(Y > 1, np.nan, Y), "regression", {"labels_not_finite": "problem"}),
        (X, np.stack([Y, Y], 1), "regression", {}),
        (X, None, "regression", {}),
        (None, Y, "regression", {}),
        (with_column(1), Y, "regression", {"constant_features": "note"}),
        (with_column(np.nan), Y, "regression", {"constant_features": "note"}),
        (np.ones((300, 3)), Y, "regression", {"equal_rows": "problem"}),
        (with_column(Y), Y, "regression", {"target_in_input": "problem"}),
        (with_column(3 - 2 * Y), Y, "regression", {"target_in_input": "warning"}),
        (with_column(np.exp(Y)), Y, "regression", {"target_in_input": "warning"}),
        (with_column(Y + 1e-3 * X[:, 1]), Y, "regression", {}),
        (with_column(Y)[:, 2:3], Y, "regression", {}),  # one feature
        (with_column(BITS), BITS, "binary", {"target_in_input": "problem"}),
        (with_column(9 - BITS), BITS, "binary", {"target_in_input": "warning"}),
        (with_column(np.array([5, 1, 3])[CLASSES]), CLASSES, "classes", {"target_in_input": "warning"}),
        (with_column(np.minimum(CLASSES, 1)), CLASSES, "classes", {}),
        (with_column(np.where(np.arange(300) == 7, 1 - BITS, BITS)), BITS, "binary", {}),
        (with_column(np.where(np.arange(300) == 7, np.nan, Y)), Y, "regression", {}),
    ],
)
def test_training_data(features, labels, task, expected):
    assert look(features, labels, task) == expected


def test_weights_and_names():
    assert look(X, Y, "regression", np.zeros(300)) == {"weights_zero": "problem"}
    assert look(X, Y, "regression", np.eye(1, 300)[0]) == {}
    log = CheckLog(ALL, lambda line: None)
    TableChecks(log, Table(with_column(Y), Y, names=list("abcde")), "regression").look()
    assert [one.says for one in log.fired] == ["Column `c` of the inputs is the target, in all 300 rows"]


@pytest.mark.parametrize(
    ("labels", "fires"), [(BITS, False), (BITS + 1, True), (2 * BITS - 1, False), (CLASSES, True), (Y, False)]
)
def test_labels_that_a_binary_objective_merges(labels, fires):
    log = CheckLog(ALL, lambda line: None)
    TableChecks(log, Table(X, labels), "binary").merged()
    assert [one.id for one in log.fired] == ["labels_merged"] * fires


def compare(
    validation,
    labels=None,
    task="regression",
    mine=None,
    train=X,
    identical=False,
    stops=False,
    name="valid",
    binned=False,
    alone=True,
):
    log = CheckLog(ALL, lambda line: None)
    judge = TableChecks(log, Table(train, mine), task)
    judge.compare(Table(validation, labels, name=name, is_binned=binned), identical, stops, alone)
    return {one.id: one.level for one in log.fired}


OTHER = RANDOM.normal(size=(100, 5))
FEW = RANDOM.integers(0, 2, (300, 3)).astype(float)


@pytest.mark.parametrize(
    ("validation", "options", "expected"),
    [
        (OTHER, {}, {}),
        (X[100:], {}, {"validation_in_training": "problem"}),
        (np.concatenate([X[:50], OTHER[:50]]), {}, {"validation_in_training": "problem"}),
        (np.concatenate([X[:20], OTHER[:80]]), {}, {}),
        (X[100:], {"name": "train"}, {}),
        (X[::-1].copy(), {}, {"validation_in_training": "warning"}),
        (X[::-1].copy(), {"alone": False}, {"validation_in_training": "note"}),
        (None, {"identical": True}, {"validation_in_training": "note"}),
        (None, {"identical": True, "stops": True}, {"early_stopping_on_training": "problem"}),
        (X[100:], {"stops": True, "name": "train"}, {"early_stopping_on_training": "problem"}),
        (OTHER, {"stops": True}, {}),
        (X[:10], {}, {}),  # too few
        (FEW[:100], {"train": FEW}, {}),  # rows repeat
        (OTHER * 50 + 400, {}, {"eval_inputs_differ": "problem"}),
        (OTHER * 50 + 400, {"binned": True}, {}),
        (OTHER + np.array([9, 0, 0, 0, 0]), {}, {}),  # a column of time
        (OTHER[:, :4], {}, {}),
    ],
)
def test_validation_data(validation, options, expected):
    assert compare(validation, **options) == expected


@pytest.mark.parametrize(
    ("mine", "other", "expected"),
    [
        (np.arange(300) % 3, np.arange(100) % 3, {}),
        (np.arange(300) % 2, np.full(100, 2), {"classes_not_trained": "problem"}),
        (np.arange(300) % 2, np.full(100, 1), {"classes_not_trained": "warning"}),
        (np.arange(300) > 1, np.full(100, 1), {}),  # nearly all are 1
        (np.arange(300) % 2, np.arange(100) % 3 * (np.arange(100) > 80), {}),
    ],
)
def test_labels_of_validation_data(mine, other, expected):
    assert compare(OTHER, other, "classes", mine) == expected


def test_rows_that_differ_in_the_sign_of_zero_are_equal_and_order_matters():
    rows = np.array([[0.0, 1.0], [-0.0, 1.0], [1.0, 0.0], [np.nan, 1.0], [-np.nan, 1.0]])
    keys = Table(rows).keys
    assert keys[0] == keys[1]
    assert keys[3] == keys[4]
    assert len(set(keys)) == 3


def test_the_random_numbers_of_the_training_stay_as_they_are():
    np.random.seed(3)
    before = np.random.get_state()[1].copy()
    compare(X[100:])
    look(X, Y, "regression")
    assert np.array_equal(before, np.random.get_state()[1])


# ------------------------------------------------------------------------------------------------------------ boosting


def session(act):
    lines = []
    checks = BoostingChecks(CheckLog(ALL, lines.append))
    act(checks)
    checks.close()
    records = CheckRecords.parse({"worker_0": b"".join(lines)})
    return {one.id: one.level for one in records}, records


@pytest.mark.parametrize(
    ("act", "expected"),
    [
        (lambda checks: checks.rate(3.0), {"rate_above_one": "problem"}),
        (lambda checks: checks.rate(1.5), {"rate_above_one": "warning"}),
        (lambda checks: checks.rate(1.0), {}),
        (lambda checks: checks.rate(None), {}),
        (lambda checks: checks.stops_by("accuracy", False), {"metric_direction": "problem"}),
        (lambda checks: checks.stops_by("mlogloss", True), {"metric_direction": "problem"}),
        (lambda checks: checks.stops_by("auc", True), {}),
        (lambda checks: checks.stops_by("own_gain", False), {}),
        (lambda checks: [checks.round(lambda: [1, 1]) for _ in range(3)], {"no_splits": "problem"}),
        (lambda checks: [checks.round(lambda: [1, 2]) for _ in range(3)], {}),
        (lambda checks: [checks.round(lambda n=n: [2 if n == 0 else 1]) for n in range(9)], {}),
        (lambda checks: [checks.round(list) for _ in range(3)], {}),
    ],
)
def test_parameters_and_rounds(act, expected):
    assert session(act)[0] == expected


def test_features_that_cannot_be_read_are_said():
    found, records = session(lambda checks: checks.begins(lambda: Table(None, BITS), task="binary"))
    assert found == {}
    assert set(records.off) == {
        "equal_rows",
        "target_in_input",
        "constant_features",
        "validation_in_training",
        "eval_inputs_differ",
    }


def test_data_that_cannot_be_read_switch_the_checks_off_and_rounds_go_on():
    def act(checks):
        checks.begins(lambda: 1 / 0)
        for _ in range(4):
            checks.round(lambda: [3])

    found, records = session(act)
    assert (found, records.updates) == ({}, 4)
    assert set(records.off) == set(MECHANISMS["data"])


def test_a_validation_is_compared():
    def act(checks):
        checks.begins(lambda: Table(X, Y), lambda: [Validation(Table(X[100:], Y[100:], name="v"))], "regression")

    assert session(act)[0] == {"validation_in_training": "problem"}


def test_each_check_of_boosting_has_a_mechanism():
    named = {id for ids in MECHANISMS.values() for id in ids}
    assert named == {one.id for one in CHECKS if {"XGBoost", "LightGBM"} & {*one.frameworks}}
    assert {*TABLE_CHECKS} <= named
