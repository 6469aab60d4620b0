"""The evaluator passes the cases that Python and TypeScript share."""

from __future__ import annotations

from typing import Any

import pytest

from python.queries.vectors import VECTORS, answer, tables
from smdwidgets.exceptions import QueryError, RegexTooSlow, SMDebugValueError
from smdwidgets.queries.table import KeyTable, evaluate

CASES = VECTORS["cases"]
TABLES = tables()


@pytest.mark.parametrize("case", CASES, ids=[f"{case['table']}: {ascii(case['text'])[:60]}" for case in CASES])
def test_case(case: dict[str, Any]) -> None:
    expected = {key: value for key, value in case.items() if key not in ("table", "text")}
    assert answer(TABLES[case["table"]], case["text"]) == expected


def test_suggestions_replace_the_place_of_the_error() -> None:
    for case in CASES:
        error = case.get("error")
        if error is None or error["suggestion"] is None:
            continue
        text = case["text"][: error["start"]] + error["suggestion"] + case["text"][error["end"] :]
        again = answer(TABLES[case["table"]], text).get("error")
        assert again is None or again["start"] > error["start"], text


@pytest.mark.parametrize(
    "text",
    [
        "a" * 1_000_000,
        "|" * 1_000_000,
        "a | " + "change > 1 | " * 100_000,
        "/" + "(a+)+" * 200_000 + "/",
        '"' + "\\" * 1_000_000,
        "\U0001f600" * 250_000,
    ],
    ids=["glob", "bars", "stages", "regex", "quoted", "emoji"],
)
def test_a_text_of_a_megabyte_is_an_error(text: str) -> None:
    with pytest.raises(QueryError, match=r"^Query is longer than 10000 characters\.") as caught:
        evaluate(TABLES["tensors"], text)
    assert (caught.value.start, caught.value.end) == (10_000, len(text))
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    "part", ["a", "*", "| ", "a|", "(", "/", '"', "\\", "change>1|", "| l2 ", "<", ".", "[", "{1,2}"]
)
def test_the_longest_texts_are_answered(part: str) -> None:
    for head in ("", "/", "a | ", "@", '"', "a | top "):
        found = answer(TABLES["tensors"], (head + part * 10_000)[:10_000])
        assert ("error" in found) != ("rows" in found)


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*b", "(.*)*z", "(a?){200}a{200}!{2}", "((a*)*)*b", "(x+x+)+y"])
@pytest.mark.slow
def test_a_regular_expression_has_a_time_limit(pattern: str) -> None:
    # Without a limit, a backtracking engine would not end.
    with pytest.raises((QueryError, RegexTooSlow), match=r"No name matches|nested repetitions"):
        evaluate(KeyTable(["a" * 5_000 + "!", "x" * 5_000], {}), f"/{pattern}/")


def test_errors_are_values_errors_that_show_the_place() -> None:
    with pytest.raises(SMDebugValueError) as caught:
        evaluate(TABLES["tensors"], "重み | tpo 3 by last")
    assert str(caught.value).splitlines() == [
        "Unknown word 'tpo'. Did you mean 'top'?",
        "重み | tpo 3 by last",
        "       ^^^",
    ]


def test_a_long_text_is_shown_around_the_place() -> None:
    with pytest.raises(QueryError) as caught:
        evaluate(TABLES["tensors"], "a | change > 1" * 1 + " | change > 1" * 200 + " | tpo" + " | l2" * 100)
    first, line, mark = str(caught.value).splitlines()
    assert first.startswith("Unknown word 'tpo'.")
    assert line[mark.index("^") : mark.index("^") + len(mark.strip())] == "tpo"
    assert len(line) <= 102


def test_hidden_characters_of_a_text_are_escaped() -> None:
    with pytest.raises(QueryError) as caught:
        evaluate(TABLES["tensors"], "a\u202e | \x1b[2Jtop 3")
    assert str(caught.value).isascii()
    assert "\x1b" not in str(caught.value)
