"""Hyperparameters and launches of a log in the explorer."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from python.logs.logs import event, field, log, scalars, value
from python.widgets.talk import Page, begin, end, save, weights
from smdwidgets.pictures.run_facts import run_facts
from smdwidgets.trials import create_trial
from smdwidgets.widgets import StepSlider, explore


@pytest.fixture
def page_of() -> Iterator[Any]:
    widgets = []

    def page_of(run: Path) -> Page:
        widgets.append(explore(run))
        return Page(widgets[-1])

    yield page_of
    for widget in widgets:
        widget.close()


def catalogs(packets: list[Any]) -> list[dict[str, Any]]:
    return [head for head, _ in packets if head["kind"] == "catalog"]


def pushed_catalog(page: Page) -> Any:
    """Wait for the steps that the kernel pushes."""
    ends = time.monotonic() + 60
    while time.monotonic() < ends:
        found = [packet for packet in list(page.updates) if packet[0]["kind"] == "catalog" and "step" in packet[1]]
        if found:
            return found[-1]
        time.sleep(0.02)
    raise AssertionError("no catalog was pushed")


def test_hyperparameters_come_with_the_catalog(page_of: Any, log_runs: Path) -> None:
    [head] = catalogs(page_of(log_runs / "trained").ask("hello", protocol=1, again=False)[1])
    assert head["hparams"] == {"lr": 0.125, "optimizer": "adam", "amp": True}
    assert "launches" not in head


def test_a_launch_is_selected_in_the_page(page_of: Any, log_runs: Path) -> None:
    page = page_of(log_runs / "restarted")
    _, packets = page.ask("hello", protocol=1, again=False)
    [head] = catalogs(packets)
    assert (len(head["launches"]), head["launch"]) == (2, None)
    assert all(began > 1.6e9 for began in head["launches"])
    message, _ = page.ask("launch", do="select", run=0, launch=0)
    assert message["kind"] == "answer"
    head, arrays = pushed_catalog(page)
    assert (head["launch"], head["append"], arrays["step"].tolist()) == (0, False, list(range(0, 80, 10)))
    message, _ = page.ask("launch", do="select", run=0, launch=5)
    assert message["error"]["message"].startswith("invalid segment 5; the run has 2 segments")
    message, _ = page.ask("launch", do="select", run=3, launch=0)
    assert message["error"]["message"] == "ValueError: run index 3 is out of range"


def test_a_run_of_a_hook_has_no_launches(page_of: Any, tmp_path: Path) -> None:
    begin(tmp_path)
    save(tmp_path, 0, {"w": weights(0)})
    page = page_of(end(tmp_path))
    [head] = catalogs(page.ask("hello", protocol=1, again=False)[1])
    assert not {"hparams", "launches", "launch"} & head.keys()
    message, _ = page.ask("launch", do="select", run=0, launch=0)
    assert message["error"]["message"] == "cannot select a launch: the run is not a TensorBoard log"


def test_values_that_json_cannot_hold_are_text(tmp_path: Path) -> None:
    nan = field(1, "lr") + field(2, b"\x11" + bytes(6) + b"\xf8\x7f")
    content = field(3, field(1, nan))
    first = event(value("_hparams_/session_start_info", b"", plugin="hparams", plugin_content=content))
    log(tmp_path, first + scalars({"loss": [1.0]}))
    with create_trial(tmp_path) as trial:
        assert json.dumps(run_facts(trial), allow_nan=False) == '{"hparams": {"lr": "nan"}}'


def test_a_slider_without_a_run_has_neither() -> None:
    slider = StepSlider([1, 2, 3])
    assert run_facts(slider.trial) == {}
    slider.close()
