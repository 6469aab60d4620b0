"""A run that has not started is waited for by the widget, not by the cell."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

import smdwidgets
import smdwidgets.numpy as smd
from python.widgets.talk import Page
from smdwidgets.exceptions import RunNotFound


def steps_of(page: Page) -> list[float]:
    catalogs = [(head, arrays) for head, arrays in page.updates if head["kind"] == "catalog"]
    return [step for _, arrays in catalogs for step in (arrays["step"].tolist() if "step" in arrays else [])]


@pytest.mark.parametrize("state", ["missing", "empty", "hook"])
def test_the_widget_appears_at_once_and_shows_the_steps_that_come(tmp_path: Path, state: str) -> None:
    root = tmp_path / "run"
    if state != "missing":
        root.mkdir()
    if state == "hook":
        (root / "events").mkdir()
    widget = smdwidgets.explore(root)
    try:
        assert widget.trial.steps() == []
        assert widget.tensor == ""
        page = Page(widget)
        _, packets = page.ask("hello", protocol=1, again=False)
        head = next(head for head, _ in packets if head["kind"] == "catalog")
        assert (head["path"], head["tensors"]) == (str(root), [])
        if state == "missing":
            widget.request_handler.poll()
            assert any("No run at" in head.get("message", "") for head, _ in page.updates)
        with smd.Hook(root, overwrite=state == "hook") as hook:
            for _ in range(3):
                hook.save_tensor("w", np.ones((2, 2), np.float32), "weights")
                hook.step()
        # The thread that polls widgets may have read the last step, and not sent it yet.
        ends = time.monotonic() + 60
        while len(steps_of(page)) < 3 and time.monotonic() < ends:
            widget.request_handler.poll()
            time.sleep(0.01)
        assert steps_of(page) == [0, 1, 2]
        assert widget.trial.tensor_names() == ["w"]
        assert widget.trial.tensor_names(collection="weights") == ["w"]
        assert widget.trial.tensor("w").value(2).sum() == 4
    finally:
        widget.close()


def test_a_path_of_something_else_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file.py").write_text("1")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("1")
    for path in ("file.py", "other"):
        with pytest.raises(RunNotFound):
            smdwidgets.explore(tmp_path / path)
