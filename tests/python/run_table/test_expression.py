"""Expressions that filter runs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smdwidgets.exceptions import RegexTooSlow, SMDebugValueError
from smdwidgets.run_table.expression import compile_expression

VALUES = {
    "lr": 0.01,
    "name": "a/seed_1",
    "state": "ended",
    "flag": True,
    "missing": None,
    "val loss": 0.3,
    "steps": 100,
}
CURVES = {("loss", "min"): 0.1, ("val loss", "max"): 2.0, ("val/acc", "best"): 0.9}


def lookup(name: str, function: str | None) -> object:
    return VALUES.get(name) if function is None else CURVES.get((name, function))


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("lr < 0.1", True),
        ("lr<1e-3", False),
        ("lr == .01 and steps >= 100", True),
        ("lr > 1 or state == 'ended'", True),
        ("lr > 1 or lr < 0 and state == 'ended'", False),
        ('(lr > 1 or lr > 0) and state = "ended"', True),
        ("not lr > 1", True),
        ("! lr > 1 && true", True),
        ("not not flag", True),
        ("flag == true", True),
        ("`val loss` < 0.5", True),
        ("min(loss) <= 0.1 and max(`val loss`) == 2", True),
        ("best(val/acc) > 0.8", True),
        ("name ~ 'seed_[0-9]$'", True),
        ("name ~ '^seed'", False),
        ("lr > -1.5", True),
        ("missing == none", True),
        ("missing != none", False),
        ("lr != none", True),
        ("missing < 1", False),
        ("missing >= 1", False),
        ("missing != 1", False),
        ("not missing < 1", True),
        ("unknown == none", True),
        ("state < 1", False),
        ("state > 'ab'", True),
        ("missing ~ 'x'", False),
    ],
)
def test_values(expression: str, expected: bool) -> None:
    assert compile_expression(expression)(lookup) is expected


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "lr <",
        "< 1",
        "lr < 1 2",
        "(lr < 1",
        "lr < 1)",
        "lr ~ name",
        "name ~ '('",
        "min(",
        "min()",
        "min(1)",
        "min(loss",
        "lr ** 2",
        "__import__('os')",
        "name.__class__()",
        "lr; lr",
        "lr if lr else 1",
        "lambda: 1",
        "'open",
        "- lr",
        "not " * 1000 + "lr",
        "(" * 1000 + "lr" + ")" * 1000,
        "lr or " * 5000 + "lr",
    ],
)
def test_everything_else_is_an_error_that_names_the_position(expression: str) -> None:
    with pytest.raises(SMDebugValueError, match=r"invalid expression .*|expression has"):
        compile_expression(expression)


@given(st.text(st.sampled_from("lr<>=()!~-'\"`.01e andotmix\n\u00e9\x00,;[]{}@#"), max_size=40))
def test_any_text_is_a_value_or_an_error(text: str) -> None:
    try:
        found = compile_expression(text)
    except SMDebugValueError:
        return
    assert found(lookup) in (True, False)


def test_a_pattern_has_a_time_limit() -> None:
    with pytest.raises(RegexTooSlow):
        compile_expression("name ~ '(a|aa)+$'")(lambda name, function: "a" * 200 + "b")
