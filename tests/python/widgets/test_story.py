"""Captioned pictures of findings, bookmarks and the current view."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import smdwidgets
import smdwidgets.numpy as smd
from smdwidgets.exceptions import SMDebugTypeError, SMDebugValueError
from smdwidgets.widgets import Explorer, StepSlider
from smdwidgets.widgets.story import Story

BAD = "layers.3.weight"


@pytest.fixture
def widget(tmp_path: Path) -> Iterator[Explorer]:
    rng = np.random.default_rng(0)
    with smd.Hook(tmp_path / "run") as hook:
        for step in range(40):
            for number in range(5):
                value = rng.normal(size=(8, 8)).astype(np.float32)
                if f"layers.{number}.weight" == BAD and step >= 30:
                    value[0, 0] = np.nan
                hook.save_tensor(f"layers.{number}.weight", value, "weights")
            hook.save_tensor("loss", np.float32(1 / (step + 1)), "losses")
            hook.step()
    explorer = smdwidgets.explore(tmp_path / "run", step=12)
    explorer.bookmarks = [{"step": 7, "tensor": "loss", "note": "<b>[here](x)</b> *"}]
    yield explorer
    explorer.close()


def test_parts_open_what_they_show(widget):
    story = widget.story(["finding 1", "bookmark 1", "current view"])
    titles = [part.title for part in story.parts]
    assert titles[1] == "`loss` at step 7"
    assert titles[2] == f"{titles[0]}."
    for part, step in zip(story.parts, (None, 7, 12), strict=True):
        assert ElementTree.fromstring(part.svg).tag.endswith("svg")
        opened = eval(part.python, {"smdwidgets": smdwidgets})
        assert step is None or opened.step == step
        assert part.name != "bookmark 1" or opened.tensor == "loss"
        opened.close()
    assert "step 7" in story.parts[1].svg
    assert "step 12" in story.parts[2].svg
    assert repr(story).splitlines()[0] == "Story of run 'run': 3 parts"


def test_html_contains_its_pictures(widget, tmp_path):
    story = widget.story(["bookmark 1", "current view"])
    # The last line of a cell shows what it returns: a path, and not a page of many kilobytes.
    assert story.to_html(str(tmp_path / "story.html")) == tmp_path / "story.html"
    page = story.to_html()
    assert (tmp_path / "story.html").read_text(encoding="utf-8") == page
    assert page.count("<img ") == page.count("data:image/svg+xml;base64,") == 2
    assert "&lt;b&gt;[here](x)" in page
    assert not re.findall(r'(?:src|href)="(?!data:)', page)


def test_markdown_has_pictures_beside_it(widget, tmp_path):
    story = widget.story(["finding 1", "bookmark 1"])
    assert story.to_markdown(tmp_path / "my story.md") == tmp_path / "my story.md"
    text = (tmp_path / "my story.md").read_text(encoding="utf-8")
    assert re.findall(r"!\[[^]]*\]\((.*)\)", text) == ["my%20story-1.svg", "my%20story-2.svg"]
    assert (tmp_path / "my story-2.svg").read_text(encoding="utf-8") == story.parts[1].svg
    assert r"\<b\>\[here\](x)\</b\> \*" in text
    assert story.to_markdown().count("(data:image/svg+xml;base64,") == 2


def test_unknown_part_is_refused_with_a_suggestion(widget):
    known = r"choose from finding 1, .*bookmark 1, current view\. Did you mean 'finding 1'"
    with pytest.raises(SMDebugValueError, match=rf"unknown part 'findng 1'; {known}"):
        widget.story(["findng 1"])
    with pytest.raises(SMDebugTypeError, match=r"story takes a list of names, such as \['finding 1'\]"):
        widget.story("finding 1")
    with pytest.raises(SMDebugTypeError, match="a story needs the map of a run"):
        StepSlider(widget.trial).story()


def test_story_without_parts_is_empty():
    assert Story("run", []).to_markdown() == "\n"
