"""The first operator that differs, without PyTorch."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from smdwidgets.replay.operators import Executed, Operator, Value, first_operator
from smdwidgets.replay.places import Place

LINE = Place("model.py", 7, "return x / x.sum(1, keepdim=True)")
WEIGHT = Operator(
    "given", "parameter 0.weight", values=(Value("parameter 0.weight", (4,), "float32", 1, 2.0, (2.0, 1.0)),)
)
DIV = Operator(
    "forward",
    "aten.div",
    "head (Shares)",
    "",
    LINE,
    LINE,
    ("2",),
    (Value("result 1", (2,), "float32", 5, 1.0, (1.0, 0.5)),),
)
STEP = Executed(9, (WEIGHT, DIV), "bit-equal, 9 of 9 steps")


def with_values(one: Operator, **fields: object) -> Operator:
    return replace(one, values=(replace(one.values[0], **fields),))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("operator", "what", "words"),
    [
        (with_values(DIV, checksum=6, sample=(1.0, 0.25)), "values", "returned other values (forward): 0.5 and 0.25"),
        (with_values(DIV, checksum=6, sample=(1.0, math.nan)), "values", "0.5 and nan, of at most 1"),
        (with_values(DIV, checksum=6), "values", "few elements, of at most 1"),
        (with_values(DIV, shape=(3,)), "values", "float32 (2,) and float32 (3,)"),
        (with_values(DIV, dtype="float64"), "values", "float32 (2,) and float64 (2,)"),
        (replace(DIV, numbers=("3",)), "numbers", "is called with other numbers (forward): (2) and (3)"),
        (replace(DIV, name="aten.mul"), "operator", "other operators are called: aten.div (forward) and aten.mul"),
        (replace(DIV, phase="backward", node="DivBackward0"), "operator", "aten.div (backward)"),
        (replace(DIV, values=()), "values", "1 and 0 tensors"),
    ],
)
def test_difference_is_named(operator: Operator, what: str, words: str) -> None:
    difference = first_operator(STEP, replace(STEP, operators=(WEIGHT, operator)))
    assert difference.what == what
    assert words in str(difference)
    assert "model.py:7: return x / x.sum(1, keepdim=True)" in str(difference)
    assert "in module 'head (Shares)'" in str(difference)
    assert "bit-equal, 9 of 9 steps" in str(difference)
    json.dumps(difference.to_json(), allow_nan=False)


def test_given_values_come_before_operators() -> None:
    other = replace(STEP, operators=(with_values(WEIGHT, checksum=2, sample=(2.0, 1.5)), replace(DIV, numbers=("3",))))
    difference = first_operator(STEP, other)
    assert (difference.what, difference.equal) == ("given", 0)
    assert str(difference).startswith("parameter 0.weight differs before the step computes anything: 1 and 1.5")


def test_both_places_are_shown_where_they_differ() -> None:
    elsewhere = replace(DIV, place=Place("other.py", 2), user=Place("other.py", 2), numbers=("3",))
    text = str(first_operator(STEP, replace(STEP, operators=(WEIGHT, elsewhere))))
    assert "first run: model.py:7" in text
    assert "second run: other.py:2" in text


def test_one_run_has_more_operators() -> None:
    difference = first_operator(replace(STEP, operators=(WEIGHT,)), STEP)
    assert (difference.what, difference.a, difference.b) == ("operator", None, DIV)
    assert "no further operator and aten.div (forward)" in str(difference)


def test_equal_steps_and_differences_within_the_tolerance() -> None:
    assert str(first_operator(STEP, STEP)) == "all 1 operators of step 9 returned the same"
    near = replace(STEP, operators=(WEIGHT, with_values(DIV, checksum=6, sample=(1.0, 0.5001))))
    assert first_operator(STEP, near, 1e-3).what == "nothing"
    assert first_operator(STEP, near, 1e-5).what == "values"
    broken = replace(STEP, operators=(WEIGHT, with_values(DIV, checksum=6, largest=math.inf, sample=(math.inf, 0.5))))
    assert first_operator(STEP, broken, 0.1).what == "values"


def test_json_keeps_everything() -> None:
    odd = with_values(DIV, largest=math.inf, sample=(math.inf, -math.inf))
    step = replace(STEP, operators=(WEIGHT, odd, replace(DIV, place=None, user=None)))
    assert Executed.from_json(json.loads(json.dumps(step.to_json(), allow_nan=False))) == step
