"""The notebook about a loss of NaN, to the answer of a press on Replay."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from python.widgets.talk import Page
from smdwidgets.hooks.core.process import open_hooks
from smdwidgets.pictures import unpack
from smdwidgets.widgets import request_handler
from smdwidgets.widgets.base import RunWidget

NOTEBOOK = Path(__file__).resolve().parents[2] / "notebooks" / "10_from_nan_to_fixed_line.ipynb"
ROW = "413"
CAUSE = "        return scores.softmax(-1) @ self.value(x)"


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    from IPython.core.interactiveshell import InteractiveShell

    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr(request_handler.poller, "add", lambda widget: None)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    InteractiveShell.clear_instance()
    yield InteractiveShell.instance()
    InteractiveShell.clear_instance()
    torch.set_num_threads(threads)
    for hook in open_hooks():
        hook.close()


def ended(widget: Any) -> dict[str, Any]:
    for thread in threading.enumerate():
        if thread.name == "smdwidgets-replay":
            thread.join()
    head, _ = unpack(widget.live_replay.packets()[0])
    return dict(head)


def test_one_press_names_line_and_row_and_shows_the_run_without_it(
    shell: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, "smdwidgets")
    cells = ["".join(one["source"]) for one in json.loads(NOTEBOOK.read_text())["cells"] if one["cell_type"] == "code"]
    line = 1 + cells[0].splitlines().index(CAUSE)
    results = []
    for cell in cells:
        done = shell.run_cell(cell, store_history=True)
        done.raise_error()
        if isinstance(done.result, RunWidget):
            assert_page_answers(done.result, line)
        results.append(done.result)
    explanation, row, outcome, fixed = results[-4:]
    assert explanation.dataset_rows == (int(ROW),)
    assert explanation.user.line == line
    assert set(row.tolist()) == {0}
    assert outcome.heals
    assert list(fixed) == []


def assert_page_answers(widget: Any, line: int) -> None:
    """Press Replay, then a chip, as a page does."""
    page = Page(widget)
    try:
        widget.live_diagnosis.complete()
        head, _ = unpack(widget.live_diagnosis.packets()[0])
        offer = head["findings"][0]["replay"]
        assert offer["why_not"] == ""
        assert ROW in widget.trial.incidents()[0].row_names
        page.ask("replay", do="start", run=0, step=offer["step"])
        answer = ended(widget)
        assert (answer["state"], answer["message"]) == ("done", "")
        explained = answer["explanation"]
        assert (explained["kind"], explained["rows"], explained["of_data_set"]) == ("operator", [ROW], True)
        assert "aten._softmax returned NaN" in explained["text"]
        assert explained["place"] == f"Cell In[1] line {line}"
        assert {"line": line, "text": CAUSE.strip()} in explained["source"]
        assert explained["verified"].startswith("bit-equal, ")
        without = answer["changes"][0]
        assert (without["label"], without["outcome"]["heals"]) == (f"without row {ROW}", True)
        assert None in without["outcome"]["recorded"]["values"]
        assert None not in without["outcome"]["changed"]["values"]
        page.ask("replay", do="try", run=0, step=offer["step"], change="clip")
        tried = {one["id"]: one["outcome"]["heals"] for one in ended(widget)["changes"] if "outcome" in one}
        assert tried["clip"] is False
        assert len(widget.trial.incidents()) == 1
    finally:
        widget.close()
