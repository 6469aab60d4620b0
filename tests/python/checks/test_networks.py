"""Checks of networks: what fires for which description, without any framework."""

import numpy as np
import pytest

from smdwidgets.checks.keras import MECHANISMS, FitData, KerasChecks, ModelFacts
from smdwidgets.checks.log import CheckLog
from smdwidgets.checks.networks import Output, Unchanged, judge_output, judge_targets
from smdwidgets.checks.tables import Table
from smdwidgets.finding import CHECKS

ALL = frozenset(one.id for one in CHECKS)
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(200, 4))
Y = X[:, 0] + RANDOM.normal(size=200)


def fired(act):
    log = CheckLog(ALL, lambda line: None)
    act(log)
    return [one.id for one in log.fired]


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (Output("softmax", 3, "sparsecategoricalcrossentropy"), []),
        (Output("softmax", 3, "sparsecategoricalcrossentropy", True), ["softmax_before_loss"]),
        (Output("sigmoid", 1, "binarycrossentropy", True), ["double_sigmoid"]),
        (Output("linear", 3, "categoricalcrossentropy"), ["logits_as_probabilities"]),
        (Output("linear", 3, "categoricalcrossentropy", True), []),
        (Output("softmax", 1, "binarycrossentropy"), ["softmax_one_unit"]),
        (Output("linear", 1, "categoricalcrossentropy", True), ["one_class_ce"]),
        (Output("linear", 1, "mse"), []),
        (Output("", None, ""), []),
    ],
)
def test_outputs(output, expected):
    assert fired(lambda log: judge_output(log, output, {})) == expected


@pytest.mark.parametrize(
    ("output", "targets", "expected"),
    [
        (Output("linear", 1, "mse"), Y, []),
        (Output("linear", 1, "mse"), X, ["targets_broadcast"]),
        (Output("linear", 3, "mse"), Y[:, None], ["targets_broadcast"]),
        (Output("linear", 4, "mse"), X, []),
        (Output("tanh", 1, "mse"), 5 * Y, ["unreachable_targets"]),
        (Output("tanh", 1, "mse"), np.tanh(Y), []),
        (Output("sigmoid", 1, "binarycrossentropy"), 1 + (Y > 0), ["unreachable_targets"]),
        (Output("softmax", 3, "sparsecategoricalcrossentropy"), np.arange(200) % 3, []),
        (Output("softmax", 3, "sparsecategoricalcrossentropy"), np.arange(200) % 4, ["labels_out_of_range"]),
        (Output("softmax", 3, "sparsecategoricalcrossentropy"), np.arange(200) % 3 - 1, ["labels_out_of_range"]),
        (Output("tanh", 1, "mse"), np.array(["a"] * 200), []),
    ],
)
def test_targets(output, targets, expected):
    assert fired(lambda log: judge_targets(log, output, targets)) == expected


@pytest.mark.parametrize(("changes", "expected"), [(None, ["weights_unchanged"]), (6, []), (0, [])])
def test_weights_that_stay(changes, expected):
    def act(log):
        unchanged = Unchanged(log)
        for step in range(12):
            unchanged.look(step, {"w": np.full(3, float(changes is not None and step > changes))})

    assert fired(act) == expected


def session(facts, data=None):
    log = CheckLog(ALL, lambda line: None)
    checks = KerasChecks(log)
    checks.data(lambda: data)
    checks.model(lambda: facts)
    return {one.id: one.level for one in log.fired}


CLASSES = Output("softmax", 3, "sparsecategoricalcrossentropy")
SORTED = np.sort(np.arange(200) % 3)


@pytest.mark.parametrize(
    ("facts", "data", "expected"),
    [
        (ModelFacts(CLASSES, [(True, 9)], {"d": 0.5}, {"n": 0.99}), None, {}),
        (ModelFacts(CLASSES, [(True, 1), (False, 9)]), None, {"mostly_frozen": "note"}),
        (ModelFacts(CLASSES, [(False, 9)]), None, {"mostly_frozen": "problem"}),
        (
            ModelFacts(CLASSES, (), {"d": 0.9}, {"n": 0.1}),
            None,
            {"strong_dropout": "warning", "norm_momentum": "warning"},
        ),
        (ModelFacts(CLASSES), FitData(Table(X, SORTED), SORTED), {}),
        (ModelFacts(CLASSES), FitData(Table(X, SORTED), SORTED, shuffle=False, batch=8), {"labels_sorted": "problem"}),
        (ModelFacts(None), FitData(Table(X, Y), Y, Table(X[50:], Y[50:])), {"validation_in_training": "problem"}),
    ],
)
def test_a_fit(facts, data, expected):
    assert session(facts, data) == expected


def test_each_check_of_keras_has_a_mechanism():
    named = {id for ids in MECHANISMS.values() for id in ids}
    assert named == {one.id for one in CHECKS if "Keras" in one.frameworks}
