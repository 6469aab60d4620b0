"""The incidents of a run in the packets of its widgets."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import smdwidgets
from python.widgets.talk import Page, begin, end, save, save_incident
from smdwidgets.exceptions import RunIOError
from smdwidgets.numpy import Hook
from smdwidgets.pictures import unpack
from smdwidgets.trials import Trial
from smdwidgets.widgets import request_handler
from smdwidgets.widgets.page_content import page_content


@pytest.fixture(autouse=True)
def _polled_by_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_handler.poller, "add", lambda widget: None)


def incidents(packets: list[tuple[dict[str, Any], Any]]) -> list[Any]:
    """Return the incidents of each catalog that has them."""
    return [head["incidents"] for head, _ in packets if "incidents" in head]


def open_page(run: Path) -> tuple[Any, Page, list[Any]]:
    widget = smdwidgets.explore(run)
    page = Page(widget)
    _, packets = page.ask("hello", protocol=1, again=False)
    return widget, page, packets


def text(step: int, first: int, last: int) -> str:
    return f"Incident at step {step}: NaN in 'w'; whole tensors of steps {first} to {last}"


def test_incident_of_a_hook_is_in_the_catalog_and_in_an_exported_page(tmp_path: Path) -> None:
    with Hook(tmp_path / "run") as hook:
        for step in range(24):
            value = np.ones((8, 8), np.float32)
            value[0, 0] = np.nan if step >= 12 else 1
            hook.save_tensor("w", value, "weights")
            hook.step()
    widget, _, packets = open_page(tmp_path / "run")
    (found,) = incidents(packets)
    assert [one["step"] for one in found] == [12]
    assert found[0]["text"].startswith("Incident at step 12: NaN in 'w'; whole tensors of steps ")
    page = [unpack(packet) for packet in page_content(widget, None, 1_000_000).packets]
    assert incidents(page) == [found]
    widget.close()


def test_new_incident_is_pushed_once_and_dropped_with_its_run(tmp_path: Path) -> None:
    root = begin(tmp_path / "run")
    save(root, 0, {"w": np.ones(3)})
    widget, page, packets = open_page(root)
    assert incidents(packets) == []
    save_incident(root, 1, "NaN in 'w'", range(2))
    widget.request_handler.poll()
    assert incidents(page.updates) == [[{"step": 1, "text": text(1, 0, 1)}]]
    save(root, 1, {"w": np.ones(3)})
    widget.request_handler.poll()
    assert len(incidents(page.updates)) == 1
    page.updates.clear()
    shutil.rmtree(root)
    save(begin(root), 0, {"w": np.zeros(3)})
    widget.request_handler.poll()
    catalogs = [head for head, _ in page.updates if head["kind"] == "catalog"]
    assert [head["append"] for head in catalogs] == [False]  # the page drops what it has of the earlier run
    assert incidents(page.updates) == []
    widget.close()


def test_incidents_that_cannot_be_read_leave_the_widget_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    root = begin(tmp_path / "run")
    save(root, 0, {"w": np.ones(3)})
    save_incident(root, 0, "NaN in 'w'", range(1))
    widget, page, packets = open_page(root)
    assert len(incidents(packets)) == 1

    def fail(self: Trial) -> None:
        raise RunIOError("no connection")

    monkeypatch.setattr(Trial, "incidents", fail)
    save(root, 1, {"w": np.ones(3)})
    with caplog.at_level(logging.WARNING):
        widget.request_handler.poll()
    (head,) = [head for head, _ in page.updates if head["kind"] == "catalog"]
    assert (head["status"], head["message"]) == ("running", "")
    assert "incidents" not in head
    assert not caplog.records
    _, packets = page.ask("hello", protocol=1, again=True)
    assert packets[0][0]["kind"] == "catalog"
    widget.close()


def test_damaged_folder_of_incidents_does_not_stop_a_run_from_opening(tmp_path: Path) -> None:
    root = begin(tmp_path / "run")
    save(root, 0, {"w": np.ones(3)})
    save_incident(root, 0, "NaN in 'w'", range(1))
    (root / "incidents" / "worker_0" / "1_0_1.json").write_text("{")
    (root / "incidents" / "worker_1").write_text("a file in place of a folder")
    end(root)
    widget, _, packets = open_page(root)
    assert incidents(packets) == [[{"step": 0, "text": "Incident at step 0: NaN in 'w'; whole tensors of step 0"}]]
    widget.close()


def test_long_and_hostile_reasons_are_shortened_and_escaped(tmp_path: Path) -> None:
    root = end(begin(tmp_path / "run"))
    save(root, 0, {"w": np.ones(3)})
    save_incident(root, 0, "\x1b[2J\u202e" + "x" * 5000, range(1))
    widget, _, packets = open_page(root)
    ((one,),) = incidents(packets)
    assert one["text"].startswith("Incident at step 0: \\x1b[2J\\u202exxx")
    assert len(one["text"]) <= 500
    widget.close()
