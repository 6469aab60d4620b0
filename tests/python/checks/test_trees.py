"""Checks of trees of arrays: what fires for which steps, without any framework."""

import numpy as np
import pytest

from smdwidgets.checks.log import CheckLog
from smdwidgets.checks.trees import MECHANISMS, Tree, TreeChecks
from smdwidgets.finding import CHECKS

ALL = frozenset(one.id for one in CHECKS)
ONES = np.ones((3, 2))


def tree(role, name="model", **arrays):
    arrays = {path.replace("__", "/"): one for path, one in arrays.items()}
    return Tree(role, name, {path: one.shape for path, one in arrays.items()}, arrays)


def fired(steps, state=None):
    """Return what fires in a training; `steps` gives the trees of each."""
    log = CheckLog(ALL, lambda line: None)
    checks = TreeChecks(log)
    for number, trees in enumerate(steps):
        for one in trees:
            if checks.looks:
                checks.tree(lambda one=one: one)
        if state is not None:
            checks.optimizer(lambda number=number: state(number))
        checks.step_ends(number)
    return {one.id: one.level for one in log.fired}, log


def training(weights, gradient, steps=20, **more):
    """Return what fires in a training, of which `steps` has the trees."""
    return [
        [
            tree("weights", kernel=weights(n)),
            tree("gradient", kernel=gradient(n)),
            *([tree("update", kernel=more["update"](n))] if "update" in more else []),
        ]
        for n in range(steps)
    ]


def zeros(step):
    return 0 * ONES


def ones(step):
    return ONES


def grows(step):
    return ONES + step


RATE, COUNTED = {"hyperparams/learning_rate": 0.1}, {"mini_step": 1}


@pytest.mark.parametrize(
    ("steps", "state", "expected"),
    [
        (training(grows, ones), lambda n: RATE, {}),
        (training(ones, ones), lambda n: RATE, {"weights_unchanged": "problem"}),
        (training(ones, ones), None, {"weights_unchanged": "warning"}),
        (training(ones, ones, update=zeros), None, {"weights_unchanged": "problem"}),
        (training(ones, ones, 8), lambda n: RATE, {}),
        (training(ones, ones), lambda n: COUNTED, {}),
        (training(ones, ones), lambda n: {"learning_rate": 0.0}, {}),
        (training(lambda n: ONES + max(0, n - 5), ones), lambda n: {"learning_rate": 0.1 * (n > 4)}, {}),
        (training(ones, zeros), lambda n: RATE, {"no_gradient": "problem"}),
        (training(grows, lambda n: ONES * (n == 7)), lambda n: RATE, {}),
        ([[tree("weights", kernel=ONES)]] * 20, lambda n: RATE, {}),
        (training(lambda n: ONES * np.nan, lambda n: ONES * np.nan), lambda n: RATE, {}),
    ],
    ids=[
        "moves",
        "stays",
        "no state",
        "updates 0",
        "7 times",
        "accumulates",
        "rate 0",
        "warms up",
        "zero",
        "late",
        "no gradient",
        "NaN",
    ],
)
def test_updates(steps, state, expected):
    assert fired(steps, state)[0] == expected


def test_a_part_without_a_gradient_is_a_note():
    steps = [[tree("weights", a=ONES + n, b=ONES + n), tree("gradient", a=ONES, b=0 * ONES)] for n in range(20)]
    levels, log = fired(steps)
    assert levels == {"no_gradient": "note"}
    assert log.fired[0].subject == ("model/b",)


def test_a_tree_that_is_frozen_beside_one_that_moves_is_silent():
    steps = [
        [
            *(tree(role, name, kernel=one) for name in ("body", "head") for role, one in (("gradient", ONES),)),
            tree("weights", "body", kernel=ONES),
            tree("weights", "head", kernel=ONES + n),
        ]
        for n in range(20)
    ]
    assert fired(steps)[0] == {}


@pytest.mark.parametrize(
    ("trees", "expected"),
    [
        ([tree("weights", a=ONES), tree("gradient", a=ONES)], None),
        ([tree("weights", params__a=ONES), tree("gradient", a=ONES)], None),
        ([tree("weights", params__a=ONES), tree("gradient", "", a=ONES)], None),
        ([tree("weights", a=ONES, b=ONES), tree("gradient", a=ONES)], None),
        ([tree("weights", a=ONES), tree("gradient", "other", b=ONES)], None),
        ([tree("weights", a=ONES), tree("gradient", a=ONES[0])], "problem"),
        ([tree("weights", params__a=ONES), tree("gradient", a=ONES[0])], "problem"),
        ([tree("weights", a=ONES), tree("gradient", "", a=ONES[0])], "problem"),
        ([tree("weights", a=ONES), tree("update", a=ONES[:, :1])], "problem"),
        ([tree("weights", a=ONES), tree("gradient", b=ONES)], "warning"),
    ],
)
def test_shapes(trees, expected):
    assert fired([trees])[0].get("tree_mismatch") == expected


def test_weights_that_an_update_has_broadcast():
    steps = [[tree("weights", a=one), tree("gradient", a=one)] for one in (ONES[:, :1], ONES)]
    levels, log = fired(steps)
    assert levels == {"tree_mismatch": "problem"}
    assert log.fired[0].says == "`model/a` had the shape (3, 1), and an update gave it (3, 2)"


@pytest.mark.parametrize(
    ("batches", "expected"),
    [
        ([np.arange(32.0).reshape(16, 2)] * 8, {}),
        ([np.ones((16, 2))] * 8, {"equal_rows": "problem"}),
        ([np.ones((16, 2))] * 2, {}),
        ([np.ones((4, 2))] * 8, {}),
        ([np.arange(32.0).reshape(16, 2), np.zeros((16, 2)), np.zeros((16, 2))], {"zero_batch": "warning"}),
        ([np.zeros((16, 2))] * 8, {}),
        ([None, np.ones(16)] * 8, {}),
    ],
)
def test_inputs(batches, expected):
    log = CheckLog(ALL, lambda line: None)
    checks = TreeChecks(log)
    for batch in batches:
        checks.inputs("x", lambda batch=batch: batch)
    assert {one.id: one.level for one in log.fired} == expected


def test_a_failure_is_the_end_of_a_mechanism_only():
    lines = []
    checks = TreeChecks(CheckLog(ALL, lines.append))
    checks.tree(lambda: 1 / 0)
    checks.inputs("x", lambda: np.ones((16, 2)))
    checks.step_ends(0)
    assert b"".join(lines).count(b"ZeroDivisionError") == len(MECHANISMS["trees"])


def test_each_check_of_jax_has_a_mechanism():
    named = {id for ids in MECHANISMS.values() for id in ids}
    assert named == {one.id for one in CHECKS if "JAX" in one.frameworks}
