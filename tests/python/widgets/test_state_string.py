"""The view of a widget as a string that opens it elsewhere."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import smdwidgets
import smdwidgets.numpy as smd
from smdwidgets.widgets import state_string
from smdwidgets.widgets.traits import STATE, ViewState

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "state.json").read_text(encoding="utf-8"))
CASES = VECTORS["cases"]


def decode(text: str) -> tuple[dict[str, Any] | None, str]:
    tensors, steps = VECTORS["tensors"], VECTORS["steps"]
    return state_string.decode(text, VECTORS["runs"], tensors.__contains__, lambda run, step: step in steps)


@pytest.mark.parametrize("case", CASES, ids=[case["about"] for case in CASES])
def test_vector(case):
    text = case["text"] if "text" in case else state_string.encode(case["traits"], VECTORS["runs"])
    assert decode(text) == (case["traits"], case.get("missing", ""))


def test_every_trait_of_a_view_is_in_a_state_string():
    assert set(state_string.NAMES) == set(STATE) - {"follow"}
    defaults = {name: getattr(ViewState(), name) for name in STATE}
    assert decode(state_string.encode(defaults, VECTORS["runs"])) == ({}, "")


def test_string_of_a_large_state_leaves_out_the_largest_values():
    state = {"bookmarks": [{"step": 1, "tensor": "", "note": "n" * 9000}], "tensor": "loss", "step": 10}
    text = state_string.encode(state, VECTORS["runs"])
    assert len(text) <= state_string.MOST
    assert decode(text) == ({"tensor": "loss", "step": 10}, "")


def test_every_cut_of_a_string_is_refused():
    text = state_string.encode({"tensor": "loss", "step": 10, "range": [0, 10]}, VECTORS["runs"])
    assert all(decode(text[:length])[0] is None for length in range(len(text)))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    with smd.Hook(tmp_path / "run") as hook:
        for step in range(6):
            hook.save_tensor("fc/weight", np.full((4, 4), step, np.float32), "weights")
            hook.save_tensor("loss", np.float32(step), "losses")
            hook.step()
    return tmp_path / "run"


def test_view_is_restored_in_another_widget(run):
    shown = smdwidgets.explore(run, tensor="loss", step=3)
    shown.range, shown.map_stat, shown.bookmarks = [1, 4], "l2", [{"step": 2, "tensor": "loss", "note": "here"}]
    opened = smdwidgets.explore(run, state=shown.state)
    assert (opened.tensor, opened.step, opened.range, opened.follow) == ("loss", 3, [1, 4], False)
    assert {name: getattr(opened, name) for name in STATE} == {name: getattr(shown, name) for name in STATE}
    moved = smdwidgets.explore(run, state=shown.state, step=5)
    assert (moved.step, moved.tensor) == (5, "loss")
    for widget in (shown, opened, moved):
        widget.close()


def test_setting_the_state_restores_defaults_that_it_does_not_list(run):
    widget = smdwidgets.explore(run)
    before = widget.state
    widget.step, widget.map_order, widget.inspect = 2, "name", True
    after = widget.state
    widget.state = before
    assert (widget.step, widget.follow, widget.map_order, widget.inspect) == (-1, True, "model", False)
    widget.state = after
    assert (widget.step, widget.follow, widget.map_order, widget.inspect) == (2, False, "name", True)
    widget.close()


def test_state_of_another_run_opens_the_rest_with_a_warning(run):
    text = state_string.encode({"tensor": "gone", "step": 400, "map_stat": "l2"}, ["run"])
    with pytest.warns(UserWarning, match=r"^The view is restored without tensor 'gone' and step 400\.$"):
        widget = smdwidgets.explore(run, state=text)
    assert (widget.tensor, widget.map_stat) == ("fc/weight", "l2")
    widget.close()


@pytest.mark.parametrize("text", ["smdw2.e3", "smdw9.e30", "../../etc/passwd", "x" * 1_000_000, "\x1b[2J", "{}"])
@pytest.mark.slow
def test_string_that_cannot_be_read_opens_the_default_view(run, text):
    with pytest.warns(UserWarning, match="^The state string .* was not used.$") as caught:
        widget = smdwidgets.explore(run, state=text)
    assert len(str(caught[0].message)) < 200
    assert widget.tensor == "fc/weight"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        widget.step = 4
        widget.state = text
    assert widget.step == 4
    widget.close()


def test_state_must_be_a_string(run):
    with pytest.raises(smdwidgets.exceptions.SMDebugTypeError, match=r"state must be a string .* got int"):
        smdwidgets.explore(run, state=5)
