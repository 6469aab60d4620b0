"""Texts and precision-recall curves of logs, with and without a kernel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from python.logs.logs import event, log, scalars, strings, value
from python.widgets.talk import Page
from smdwidgets.pictures import unpack
from smdwidgets.widgets import explore
from smdwidgets.widgets.page_content import page_content

AT = {"run": 0, "worker": "", "axes": [], "fixed": [], "rows": [0, 1], "cols": [0, 1]}


def text(tag: str, words: str, step: int = 0) -> bytes:
    return event(value(tag, strings(words.encode()), plugin="text"), step)


def texts(packets: list[bytes]) -> dict[tuple[str, int], Any]:
    heads = [unpack(packet)[0] for packet in packets]
    return {(head["tensor"], head["step"]): head["cells"][0][0] for head in heads if head["kind"] == "values"}


def test_a_page_has_the_texts_of_a_log(log_runs: Path) -> None:
    widget = explore(log_runs / "trained", tensor="notes/text_summary")
    try:
        found = texts(page_content(widget, None, 1_000_000).packets)
    finally:
        widget.close()
    assert found.keys() == {("notes/text_summary", 0), ("pr", 0), ("pr", 50)}
    assert found["notes/text_summary", 0].startswith("# Notes\n\n| step | loss |")


def test_long_texts_leave_room_in_a_page_and_are_cut(tmp_path: Path) -> None:
    content = [text("long", "x" * 1_000_000, step) for step in range(30)]
    log(tmp_path, b"".join([*content, text("short", "hello"), scalars({"loss": [1.0, 0.5]})]))
    widget = explore(tmp_path)
    try:
        found = texts(page_content(widget, None, 6_000_000).packets)
        assert found["short", 0] == "hello"
        assert {step for tag, step in found if tag == "long"} == {28, 29}
        page = Page(widget)
        _, [(head, _)] = page.ask("values", role="main", tensor="long", step=3, **AT)
        assert len(head["cells"][0][0]) == 101_000
    finally:
        widget.close()
