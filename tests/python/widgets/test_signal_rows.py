"""Rows of signals in an explorer: its map, curves, query, saved page and story."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import smdwidgets
from python.widgets.talk import Page
from smdwidgets.numpy import Hook
from smdwidgets.pictures import unpack
from smdwidgets.survey.bins import SUDDEN
from smdwidgets.widgets.page_content import page_content

HEAD = "attention_max/blocks.1.attention/head 2"
STEPS = 100


def written(folder: Path, rate: float = 1 / 20) -> Path:
    with Hook(folder) as hook:
        for step in range(STEPS):
            hook.save_scalar("loss", float(1 + 3 * np.exp(-step / 40)))
            if step % 4 == 0:
                heads = np.array([5.0, 6.0, 1.5 * np.exp(step * rate), 4.0])
                hook.save_signal("attention_max", "blocks.0.attention", heads[[0, 1]])
                hook.save_signal("attention_max", "blocks.1.attention", heads)
            hook.step()
    return folder


@pytest.fixture
def widget(tmp_path: Path) -> Iterator[Any]:
    explorer = smdwidgets.explore([written(tmp_path / "run"), written(tmp_path / "calm", 0)])
    yield explorer
    explorer.close()


def catalogue(packets: list[Any], run: int = 0) -> list[str]:
    return [name for head, _ in packets if head["kind"] == "catalog" and head["run"] == run for name in head["tensors"]]


def test_the_page_gets_names_bins_values_and_curves(widget: Any) -> None:
    page = Page(widget)
    _, packets = page.ask("hello", protocol=1, again=False)
    names = catalogue(packets)
    assert HEAD in names
    assert catalogue(packets, 1) == names
    signals = [at for head, _ in packets if head["kind"] == "catalog" for at in head["collections"].get("signals", [])]
    assert [names[at] for at in signals[: len(signals) // 2]] == [name for name in names if "/head " in name]
    widget.live_survey.complete()
    bins = {
        "worker": "",
        "mode": "",
        "stat": "growth",
        "tensors": [names.index(HEAD)],
        "from": 0,
        "to": 99,
        "bins": 128,
    }
    _, packets = page.ask("survey", run=0, **bins)
    [(_, arrays)] = [(head, arrays) for head, arrays in packets if "lo" in arrays]
    marks = np.flatnonzero(arrays["flag"][0] & SUDDEN)
    assert marks.tolist() == [72, 84]  # the first saves above 50 and above 100
    frames = page.frames(HEAD, want={"stats": True, "update": False, "hist": None, "image": None, "percentiles": False})
    assert sorted(frames) == [*range(0, STEPS, 4)]
    assert frames[40]["stats"][0] == pytest.approx(1.5 * np.exp(2), rel=1e-4)
    line = {"run": 1, "tensor": HEAD, "worker": "", "mode": "", "stat": "value"}
    _, [(head, arrays)] = page.ask("series", lines=[line])
    assert head["tensor"] == HEAD
    assert arrays["y"].tolist() == [1.5] * 25
    message, _ = page.ask("series", lines=[{**line, "worker": "worker_7"}])
    assert "worker_7" in message["error"]["message"]
    message, _ = page.ask("query", run=0, worker="", mode="", text="attention_max | top 2 by growth")
    assert names[message["rows"][0]] == HEAD


def test_the_finding_names_the_row(widget: Any) -> None:
    widget.live_diagnosis.complete()
    diagnosis = unpack(widget.live_diagnosis.packets([0])[0])[0]
    [finding] = diagnosis["findings"]
    assert (finding["kind"], finding["tensor"]) == ("attention_logits_grow", HEAD)
    widget.tensor = HEAD
    assert widget.value() == pytest.approx(1.5 * np.exp(96 / 20), rel=1e-4)
    widget.step, widget.compare = 40, {"run": 1}
    assert widget.difference().value() == pytest.approx(1.5 * np.exp(2) - 1.5, rel=1e-3)
    assert "no tensor" not in widget._notice


def test_a_view_and_its_state_select_a_row(tmp_path: Path) -> None:
    run = written(tmp_path / "run")
    one = smdwidgets.explore(run, tensor=HEAD, step=40)
    other = smdwidgets.explore(run, state=one.state)
    assert (other.tensor, other.step, other._notice) == (HEAD, 40, "")
    missing = smdwidgets.explore(run, tensor="attention_max/blocks.1.attention/head 9")
    assert "Did you mean" in missing._notice
    for widget in (one, other, missing):
        widget.close()


def test_a_story_and_a_saved_page_have_the_rows(widget: Any) -> None:
    [part] = widget.story(["finding 1"]).parts
    assert "head 2" in part.svg
    assert HEAD in smdwidgets.explore(widget.trial, state=re.findall('state="(.*)"', part.python)[0]).tensor
    packets = [unpack(packet) for packet in page_content(widget, None, 20_000_000).packets]
    names = catalogue(packets)
    place = names.index(HEAD)
    assert any(head["kind"] == "survey" and place in arrays["tensor"].tolist() for head, arrays in packets)
    assert any(head["kind"] == "series" and head["tensor"] == HEAD for head, _ in packets) or any(
        head["kind"] == "frames" and head["tensor"] == HEAD for head, _ in packets
    )
