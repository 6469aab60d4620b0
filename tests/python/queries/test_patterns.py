"""Patterns have the semantics of `re`, and matching is bounded in time."""

from __future__ import annotations

import re
import time
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smdwidgets._patterns import Patterns, compile_pattern
from smdwidgets.exceptions import RegexTooSlow

#: Pattern parts for which `re` and `regex` may differ, and common ones.
PIECES = [
    *"ab.^$|()[]{}*+?\\-:,<=1",
    *(
        "a*",
        "(?:",
        "(?=",
        "(?!a)",
        "(?<!(b|ab))",
        "[^a]",
        "[a-b]",
        "[]a]",
        "[^]a]",
        "[[",
        "[[:alpha:]]",
        "[a&&b]",
        "[a--b]",
    ),
    *(
        r"\d",
        r"\w",
        r"\b",
        r"\.",
        r"\\",
        r"\[",
        r"[\]]",
        r"\N{DIGIT ONE}",
        "{1}",
        "{1,2}",
        "{,2}",
        "{e<=1}",
        "(a){e}",
        "{i}",
    ),
    *("(?i)", "(?P<n>a)", "(?P=n)", "a{1,2}{e}", r"\x41", "a++", "(?>a)", "(?#c)"),
]
NAMES = [
    "",
    "a",
    "b",
    "ab",
    "ba",
    "aab",
    "a{e}",
    "[",
    "]",
    "a[b]",
    "1",
    "{",
    "a-b",
    "a:b",
    "aBA",
    "a\nb",
    "e",
    "a{e<=1}",
    "&",
]


@given(st.lists(st.sampled_from(PIECES), max_size=6).map("".join))
def test_patterns_match_as_in_re(pattern: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            plain = re.compile(pattern)
        except (re.error, OverflowError) as error:
            with pytest.raises(type(error)):
                compile_pattern(pattern)
            return
    ours = compile_pattern(pattern)
    for name in NAMES:
        assert bool(ours.search(name, timeout=10)) == bool(plain.search(name)), (pattern, name)


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [
        ("^(?!gradient).*weight", {"fc1.weight"}),
        ("[Ll]oss_(?!input).*output", {"CrossEntropyLoss_output_0"}),
        ("^[a-zA-z]+-.+(?<!(auc|map))$", {"train-rmse"}),
    ],
)
def test_patterns_of_frameworks(pattern: str, matches: set[str]) -> None:
    names = [
        "fc1.weight",
        "gradient/fc1.weight",
        "CrossEntropyLoss_output_0",
        "Loss_input_0_output",
        "train-rmse",
        "train-auc",
    ]
    assert Patterns().matching([pattern], names) == matches


@pytest.mark.parametrize("pattern", ["(a|aa)+$", "(?=(a+))*(a|aa)+$"])
@pytest.mark.slow
def test_pattern_with_exponential_backtracking_times_out(pattern: str) -> None:
    start = time.monotonic()
    with pytest.raises(RegexTooSlow, match="nested repetitions"):
        Patterns(limit=0.2).matching([pattern], ["b", "a" * 60 + "!"])
    assert time.monotonic() - start < 60  # instead of centuries


@pytest.mark.parametrize("pattern", ["(a+)+$", "(.*a){25}$", r"^(\w+\s?)*$", "(x+x+)+y"])
def test_patterns_that_are_slow_only_in_re(pattern: str) -> None:
    assert Patterns().matching([pattern], ["a" * 60 + "!", "x" * 60 + "!"]) == set()


def test_results_are_cached_for_known_names() -> None:
    patterns = Patterns()
    names = [f"w{n}" for n in range(1000)]
    assert patterns.matching(["w9"], names) == {name for name in names if "w9" in name}
    assert patterns.matching(["w9", "w1$"], [*names, "w9x"]) == {name for name in names if "w9" in name} | {"w1", "w9x"}
    for n in range(200):
        patterns.matching([f"^w{n}$"], names[:3])
    assert len(patterns._cache) <= 64


def test_invalid_patterns() -> None:
    with pytest.raises(re.error, match="unterminated character set"):
        Patterns().matching(["["], ["a"])
    with pytest.raises(TypeError, match="int"):
        Patterns().matching([3], ["a"])  # type: ignore[list-item]
