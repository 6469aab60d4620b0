"""Which tensors a self-contained page has pictures of."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import smdwidgets
import smdwidgets.numpy as smd
from smdwidgets.survey import Survey
from smdwidgets.widgets.page import make_page
from smdwidgets.widgets.page_order import in_order, suspicion, telling_steps

BAD, JUMPS = "layers.3.weight", "layers.5.weight"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    with smd.Hook(tmp_path / "run") as hook:
        for step in range(40):
            for number in range(8):
                value = rng.normal(size=(16, 16)).astype(np.float32)
                if f"layers.{number}.weight" == BAD and step >= 30:
                    value[0, 0] = np.nan
                if f"layers.{number}.weight" == JUMPS and step == 20:
                    value *= 100
                hook.save_tensor(f"layers.{number}.weight", value, "weights")
            hook.save_tensor("loss", np.float32(1 / (step + 1)), "losses")
            hook.step()
    return tmp_path / "run"


def test_suspicious_tensors_come_first(run):
    survey = Survey(smdwidgets.create_trial(run))
    assert suspicion(survey) == []
    survey.update()
    names = suspicion(survey)
    assert names[:2] == [BAD, JUMPS]
    assert len(names) == 9


def test_order_of_a_page(run):
    widget = smdwidgets.explore(run, tensor="layers.7.weight", step=5)
    assert widget.live_survey is not None
    assert widget.live_diagnosis is not None
    diagnosis = widget.live_diagnosis.completed(0)
    widget.bookmarks = [
        {"step": 11, "tensor": "layers.6.weight", "note": ""},
        {"step": 12, "tensor": "gone", "note": ""},
    ]
    widget.compare = {"step": 13}
    first, others = in_order(widget, diagnosis)
    assert first == [BAD, JUMPS, "layers.7.weight", "layers.6.weight"]
    assert others[0] == "loss"
    assert len({*first, *others}) == len(first) + len(others) == 9
    assert {5, 11, 12, 13, 20, 30} <= telling_steps(widget, diagnosis)
    widget.query = "layers | sort by name desc"
    assert in_order(widget, diagnosis)[1][:4] == [f"layers.{number}.weight" for number in (4, 2, 1, 0)]
    widget.query = "@nothing | tpo"
    assert in_order(widget, diagnosis)[1][0] == "loss"
    widget.close()


def test_page_opens_the_blamed_tensors_first(run):
    widget = smdwidgets.explore(run, tensor="layers.7.weight")
    text, opened = make_page(widget, None, 1_000_000)
    assert opened[:3] == [BAD, JUMPS, "layers.7.weight"]
    assert len(text) <= 1_000_000
    widget.close()
