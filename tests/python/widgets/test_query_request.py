"""The kernel answers queries exactly, from the survey of the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import smdwidgets
from python.survey import runs
from python.widgets.talk import Page
from python.widgets.transcripts import Recorder, compare
from smdwidgets.widgets import request_handler

PLACE = {"run": 0, "worker": "", "mode": "GLOBAL"}
QUERIES = (
    "",
    "layers.*weight",
    "@losses",
    "| l2 | top 5 by change",
    "| nonfinite > 0",
    "| surprise | steps 100 .. 199 | worst > 8 | sort by worst",
    "gradient | update | last > 0 | sort by last asc",
    "relu | zeros | top 2 by worst",
    "| max > 0.3 | sort by max",
    "| sort by name desc",
    "| change = nan",
)


@pytest.fixture
def explore(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(request_handler.poller, "add", lambda widget: None)
    root = runs.written(tmp_path / "run", runs.nan)
    widget = smdwidgets.explore(root)
    widget.live_survey.complete()
    yield widget
    widget.close()


@pytest.mark.parametrize("text", QUERIES)
@pytest.mark.slow
def test_rows_are_those_of_python(explore: Any, text: str) -> None:
    page = Page(explore)
    page.ask("hello", protocol=1, again=False)
    answer, _ = page.ask("query", **PLACE, text=text)
    names = [explore.request_handler._sent[0].names[at] for at in answer["rows"]]
    assert names == smdwidgets.query(explore.trial, text).names


def test_modes_and_workers(explore: Any) -> None:
    page = Page(explore)
    page.ask("hello", protocol=1, again=False)
    everything = page.ask("query", **PLACE, text="| change != nan")[0]["rows"]
    assert page.ask("query", **{**PLACE, "worker": "*"}, text="| change != nan")[0]["rows"] == everything
    assert page.ask("query", **{**PLACE, "worker": "*"}, text="| max != nan | surprise")[0]["rows"] == everything
    assert page.ask("query", **{**PLACE, "mode": "PREDICT"}, text="| change != nan")[0]["rows"] == []
    text = "| top 4 by l2"
    rows = page.ask("query", **{**PLACE, "mode": "EVAL"}, text=text)[0]["rows"]
    names = [explore.request_handler._sent[0].names[at] for at in rows]
    assert names == smdwidgets.query(explore.trial, text, mode="EVAL").names
    assert page.ask("query", **{**PLACE, "worker": "no"}, text="")[0]["error"]["type"] == "InvalidWorker"
    assert page.ask("query", **{**PLACE, "run": 3}, text="")[0]["kind"] == "error"


def test_a_cancelled_query_reads_no_more_values(explore: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Page(explore)
    page.ask("hello", protocol=1, again=False)
    number = "cancelled"

    def statistics(self: Any, *arguments: Any, progress: Any, **options: Any) -> Any:
        page.cancel(number)
        progress(1, 10)
        raise AssertionError("it went on")

    monkeypatch.setattr(type(explore.trial), "statistics", statistics)
    page.start("query", number, **PLACE, text="| top 3 by std")
    assert page.wait(number)[0]["error"]["type"] == "Cancelled"


def test_recorded_conversation(explore: Any) -> None:
    recorder = Recorder(explore)
    recorder.ask("hello", protocol=1, again=False)
    recorder._received.clear()
    for text in (QUERIES[3], QUERIES[4], "layers | tpo 3 by change"):
        recorder.exchange("query", **PLACE, text=text)
    compare("query", recorder.exchanges)
