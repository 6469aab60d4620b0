"""Wall times of curves, and superseded values, as a page gets them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from python.widgets.talk import Page, begin, end, save
from smdwidgets.pictures import unpack
from smdwidgets.widgets import ScalarPanel
from smdwidgets.widgets.page_content import page_content

BEGAN = 1_700_000_000.0


@pytest.fixture
def page_of() -> Iterator[Any]:
    widgets = []

    def page_of(run: Path, **state: Any) -> Page:
        widgets.append(ScalarPanel(run, **state))
        return Page(widgets[-1])

    yield page_of
    for widget in widgets:
        widget.close()


def line(tensor: str, **more: Any) -> dict[str, Any]:
    return {"tensor": tensor, "stat": "value", "run": 0, "worker": "", "mode": "", **more}


def test_wall_times_are_sent_only_when_requested(page_of: Any, log_runs: Path) -> None:
    page = page_of(log_runs / "trained")
    _, [(head, arrays)] = page.ask("series", lines=[line("train_loss")])
    assert "began" not in head
    assert arrays.keys() == {"step", "y"}
    _, packets = page.ask("series", lines=[line("train_loss"), line("val_loss")], clock=True)
    (train, times), (val, val_times) = packets
    assert (train["began"], val["began"]) == (BEGAN, BEGAN + 1)
    assert times["seconds"].dtype == np.float32
    assert times["seconds"].tolist() == [step * 2.5 for step in range(0, 100, 10)]
    assert val_times["seconds"].tolist() == [0.0, 75.0, 150.0, 225.0]


def test_a_run_without_wall_times_says_so(page_of: Any, tmp_path: Path) -> None:
    begin(tmp_path)
    for step in range(3):
        save(tmp_path, step, {"loss": np.array([1.0 - step])})
    end(tmp_path)
    _, [(head, arrays)] = page_of(tmp_path).ask("series", lines=[line("loss")], clock=True)
    assert head["began"] is None
    assert "seconds" not in arrays


def test_superseded_values_are_sent_with_the_curve(page_of: Any, log_runs: Path) -> None:
    page = page_of(log_runs / "restarted")
    _, [(_, arrays)] = page.ask("series", lines=[line("loss")])
    assert arrays["step"].tolist() == list(range(0, 100, 10))
    assert arrays["void_step"].tolist() == [40, 50, 60, 70]
    assert arrays["void_y"].tolist() == pytest.approx([0.4, 0.5, 0.6, 0.7])


def test_a_page_has_wall_times_of_all_curves(log_runs: Path) -> None:
    widget = ScalarPanel(log_runs / "trained", series=[line("train_loss", run=-1)], x_axis="relative")
    try:
        heads = [unpack(packet)[0] for packet in page_content(widget, None, 1_000_000).packets]
    finally:
        widget.close()
    began = {head["tensor"]: head["began"] for head in heads if head["kind"] == "series"}
    assert began["train_loss"] == BEGAN
    assert began["val_loss"] == BEGAN + 1
    [traits] = [head["traits"] for head in heads if head["kind"] == "page"]
    assert traits["x_axis"] == "relative"
