"""Checks of networks: what fires for which description, without any framework."""

import numpy as np
import pytest

from smdwidgets.checks.keras import MECHANISMS, FitData, KerasChecks, ModelFacts
from smdwidgets.checks.log import CheckLog
from smdwidgets.checks.networks import (
    Link,
    Output,
    Start,
    Starts,
    Weights,
    judge_links,
    judge_output,
    judge_targets,
)
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
        (Output("relu", 3, "categoricalcrossentropy"), ["logits_as_probabilities"]),
        (Output("relu", 3, "categoricalcrossentropy", True), []),
        (Output("softmax", 3, "categoricalcrossentropy", shape=(None, 3), axis=0), ["softmax_over_rows"]),
        (Output("softmax", 3, "categoricalcrossentropy", shape=(None, 3), axis=-1), []),
        (Output("linear", 1, "mse", is_sum=True), ["sum_reduction"]),
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
        (Output("softmax", 3, "mse"), np.eye(3)[np.arange(200) % 3], ["mse_on_onehot"]),
        (Output("sigmoid", 4, "mse"), (X > 0).astype(int), []),  # several labels
    ],
)
def test_targets(output, targets, expected):
    assert fired(lambda log: judge_targets(log, output, targets)) == expected


@pytest.mark.parametrize(("changes", "expected"), [(None, ["weights_unchanged"]), (6, []), (0, [])])
def test_weights_that_stay(changes, expected):
    def act(log):
        weights = Weights(log)
        for step in range(12):
            weights.look(step, {"w": np.full(3, float(changes is not None and step > changes))})

    assert fired(act) == expected


def test_units_that_stay_equal_and_weights_without_a_gradient():
    def changing(first, second):
        def act(log):
            weights = Weights(log)
            for step in range(12):
                weights.look(step, {"a": first(step), "b": second(step), "bias": np.full(3, step)})

        return fired(act)

    drawn = np.random.default_rng(0).random((4, 3))
    assert changing(lambda step: np.full((4, 3), 0.1 * step), lambda step: drawn + step) == ["symmetric_units"]
    assert changing(lambda step: np.zeros((4, 3)), lambda step: drawn + step) == ["symmetric_units"]
    assert changing(lambda step: drawn, lambda step: drawn + step) == ["no_gradient"]
    assert changing(lambda step: drawn - step, lambda step: drawn + step) == []
    # Units that begin as equals and part at the first update, as those of an output that begins with 0.
    assert changing(lambda step: drawn * step, lambda step: drawn + step) == []


@pytest.mark.parametrize(
    ("links", "expected"),
    [
        ([Link("a", True, True, 4, 32), Link("out", True, False, 32, 3)], ["no_activation"]),
        ([Link("a", True, False, 4, 32), Link("out", True, True, 32, 3)], []),
        ([Link("a", True, True, 4, 32), Link("relu", False, False), Link("out", True, True, 32, 3)], []),
        ([Link("a", True, True, 4, 32), Link("drop", False, True), Link("out", True, True, 32, 3)], ["no_activation"]),
        ([Link("a", True, True, 100, 4), Link("out", True, True, 4, 100)], []),  # a matrix of low rank
        ([Link("a", True, True, 4, 32), Link("b", True, False, 32, 32), Link("out", True, True, 32, 3)], []),
        ([Link("out", True, False, 32, 3)], []),
    ],
)
def test_layers_without_an_activation(links, expected):
    assert fired(lambda log: judge_links(log, links)) == expected


@pytest.mark.parametrize(
    ("starts", "expected"),
    [
        ([Start("Adam", n > 0, 0, str(n), n > 0) for n in range(5)], ["optimizer_recreated"]),
        ([Start("Adam", n > 0, 0, str(n), n > 0) for n in range(3)], []),  # frozen, compiled, and compiled again
        ([Start("Adam", n > 0, 0, str(n), False) for n in range(5)], []),  # other data, such as folds
        ([Start("Adam", False, 10 * n, str(n), n > 0) for n in range(5)], []),
        ([Start("Adam", False, 10 * n, "same", n > 0) for n in range(5)], ["weights_restored"]),
        ([Start("Adam", n > 0, 0, "same", False) for n in range(5)], []),
        ([Start("Adam", n > 0, 0, "", n > 0) for n in range(5)], []),  # the model is built by `fit`
    ],
)
def test_several_trainings_of_a_model(starts, expected):
    def act(log):
        following = Starts(log)
        for number, start in enumerate(starts):
            following.begins(10 * number, start)

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


@pytest.mark.parametrize(
    ("targets", "loss", "expected"),
    [
        (60_000 + 1000 * Y, 60_000.0, {"targets_not_scaled": "problem"}),
        (60_000 + 1000 * Y, 30_000.0, {}),  # it has found the mean already
        (20 + Y, 20.0, {}),
    ],
)
def test_targets_that_outputs_do_not_reach(targets, loss, expected):
    log = CheckLog(ALL, lambda line: None)
    checks = KerasChecks(log)
    checks.data(lambda: FitData(Table(X, targets), targets))
    checks.model(lambda: ModelFacts(Output("linear", 1, "mae")))
    for _ in range(12):
        checks.batch_ends(loss if checks.needs_loss else None)
    assert {one.id: one.level for one in log.fired} == expected


@pytest.mark.parametrize(("scale", "expected"), [(1.0, ["large_initial_weights"]), (0.1, [])])
@pytest.mark.parametrize("normalizes", [False, True])
def test_weights_that_are_too_large_at_the_start(scale, expected, normalizes):
    log = CheckLog(ALL, lambda line: None)
    checks = KerasChecks(log)
    checks.data(lambda: FitData(Table(X, Y), Y))
    checks.model(lambda: ModelFacts(Output("linear", 1, "mse"), normalizes=normalizes))
    drawn = np.random.default_rng(0).normal(size=(3, 64, 64))
    checks.weights(lambda: {name: scale * one for name, one in zip("abc", drawn, strict=True)})
    checks.batch_ends(1e6 * scale)
    assert [one.id for one in log.fired] == ([] if normalizes else expected)


def test_outputs_that_cannot_be_read_stop_no_training():
    checks = KerasChecks(CheckLog(ALL, lambda line: None))
    checks.model(lambda: ModelFacts(Output(loss="categoricalcrossentropy")))
    checks.outputs(lambda: np.empty(0).reshape(1 / 0))
    assert not checks.log.runs("softmax_before_loss")


@pytest.mark.parametrize(("changes", "batches", "expected"), [(0, 45, ["same_batch"]), (0, 1, []), (1, 45, [])])
def test_batches_that_are_all_the_same(changes, batches, expected):
    log = CheckLog(ALL, lambda line: None)
    checks = KerasChecks(log)
    for number in range(20):
        if checks.looks_at_data:
            checks.inputs(lambda number=number: X[:32] + changes * number, batches)
        checks.batch_ends()
    assert [one.id for one in log.fired] == expected


@pytest.mark.parametrize(
    ("rate", "still", "dtype", "expected"),
    [
        (1e-3, True, "float32", ["no_gradient"]),
        (1e-3, False, "float32", []),
        (1e-10, False, "float32", []),  # such updates move biases of 0, and are lost in weights
        (1e-10, True, "float32", []),
        (1e-4, False, "float16", []),
        (1e-6, True, "float64", ["no_gradient"]),
    ],
)
def test_updates_that_are_lost_in_rounding_are_no_missing_gradient(rate, still, dtype, expected):
    weights = {"kernel": np.full((8, 4), 0.3, dtype) + np.arange(4, dtype=dtype), "bias": np.zeros(4, dtype)}

    def train(log):
        judged = Weights(log)
        for step in range(12):
            judged.look(step, {name: one.copy() for name, one in weights.items()})
            for one in (weights["bias"],) if still else weights.values():
                one += np.asarray(rate, dtype)

    assert fired(train) == expected


def test_each_check_of_keras_has_a_mechanism():
    named = {id for ids in MECHANISMS.values() for id in ids}
    assert named == {one.id for one in CHECKS if "Keras" in one.frameworks}
