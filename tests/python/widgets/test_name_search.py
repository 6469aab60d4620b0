"""Regular expressions of the tensor tree are matched in the kernel."""

from __future__ import annotations

import queue
import time
from pathlib import Path

import numpy as np
import pytest

import smdwidgets
from python.widgets.talk import Page, begin, end, save
from smdwidgets.exceptions import RegexTooSlow, SMDebugValueError
from smdwidgets.widgets import name_search
from smdwidgets.widgets.name_search import search_names

SLOW = ("(a|aa)+$", ["a" * 400 + "!"])


def test_matches_ignore_case_and_give_utf16_offsets() -> None:
    names = ["fc1.weight", "Conv2.WEIGHT", "\U0001f9e8.weight", "bias"]
    assert search_names("weight", names) == ([[0, 4, 10], [1, 6, 12], [2, 3, 9]], 3)
    assert search_names("(?s)bias", names) == ([[3, 0, 4]], 1)


@pytest.mark.parametrize("pattern", ["layer(", "[a", "*", "(?P<x"])
def test_invalid_pattern_is_reported(pattern: str) -> None:
    with pytest.raises(SMDebugValueError, match="invalid pattern") as raised:
        search_names(pattern, ["layer"])
    assert repr(pattern) in str(raised.value)


def test_time_limit_covers_all_names() -> None:
    started = time.monotonic()
    with pytest.raises(RegexTooSlow):
        search_names(SLOW[0], SLOW[1] * 100, limit=0.2)
    assert time.monotonic() - started < 30  # the engine checks the time about once a second


def test_cancelled_search_stops() -> None:
    seen = iter([False, True])
    assert search_names("a", ["a", "a", "a"], lambda: next(seen)) == ([[0, 0, 1]], 1)


def test_matches_are_capped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(name_search, "MOST_MATCHES", 2)
    matches, total = search_names("a", ["a"] * 5)
    assert [index for index, *_ in matches] == [0, 1]
    assert total == 5


def test_page_searches_the_names_it_has_received(tmp_path: Path) -> None:
    root = begin(tmp_path / "run")
    save(root, 0, {name: np.float32(1) for name in ("fc1.weight", "fc1.bias")})
    widget = smdwidgets.explore(end(root))
    page = Page(widget)
    _, packets = page.ask("hello", protocol=1, again=False)
    names = next(head["tensors"] for head, _ in packets if head["kind"] == "catalog")
    answer, _ = page.ask("match", run=0, pattern=r"^fc\d\.BIAS$")
    assert answer["matches"] == [[names.index("fc1.bias"), 0, 8]]
    assert answer["total"] == 1
    invalid, _ = page.ask("match", run=0, pattern="fc(")
    assert invalid["kind"] == "error"
    assert "invalid pattern 'fc('" in invalid["error"]["message"]
    assert page.ask("match", run=9, pattern="a")[0]["kind"] == "error"
    widget.close()


def test_slow_pattern_does_not_delay_other_requests(tmp_path: Path) -> None:
    root = begin(tmp_path / "run")
    save(root, 0, {SLOW[1][0]: np.float32(1)})
    widget = smdwidgets.explore(end(root))
    page = Page(widget)
    page.ask("hello", protocol=1, again=False)
    number = page.start("match", run=0, pattern=SLOW[0])
    assert page.ask("classes")[0]["kind"] == "answer"
    with pytest.raises(queue.Empty):
        page.wait(number, 0.01)
    assert page.wait(number)[0]["error"]["type"] == "RegexTooSlow"
    widget.close()
