"""Damaged runs and runs that change while displayed: errors appear in place."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import expect

from e2e import runs
from e2e.looking import Looking
from e2e.test_explorer import exact

pytestmark = pytest.mark.slow

ODD = {
    "empty": np.zeros((0, 8), np.float32),
    "one": np.float32(2.5),
    "complex": np.full((4, 5), 3 + 4j, np.complex64),
    "nine": np.arange(512, dtype=np.float32).reshape((2,) * 9),
    "words": np.array([["the", "<b>bold</b>"], ["gradient", "vanishes"]]),
    "nan": np.full((4, 6), np.nan, np.float32),
}


def odd(step: int) -> dict[str, object]:
    """Return each tensor at every step, and one at two of them only."""
    holes = {"holes": (np.full((4, 6), float(step), np.float32), "weights")} if step in {3, 7} else {}
    return {**{name: (value, "weights") for name, value in ODD.items()}, **holes}


def test_tensors_of_every_kind_are_displayed_suitably(lab, tmp_path):
    run = runs.write(tmp_path / "odd", 10, odd)
    notebook = lab.open(
        [f"import smdwidgets\nw = smdwidgets.explore({str(run)!r}, tensor='nine')\nw", "w.value().shape"]
    ).run(0)
    look = Looking.at(notebook)
    name = look.el.locator(".smdw-name")
    facts = look.el.locator(".smdw-facts")

    def choose(label: str) -> None:
        look.choose(label)
        expect(name).to_have_text(label)

    expect(facts).to_contain_text("2 \u00d7 2 \u00d7 2")
    expect(look.panel("heatmap").locator(".smdw-readout")).to_contain_text("2 \u00d7 2 cells")
    look.el.get_by_role("button", name="Heat map menu").click()
    index = look.el.get_by_label("Index on axis 3, of 2")
    index.fill("1")
    index.press("Enter")
    cells = look.panel("values").locator("[role=row]").nth(1).locator("[role=gridcell]")
    expect(cells.first).to_have_text(exact(ODD["nine"][0, 0, 0, 1, 0, 0, 0, 0, 0]))
    assert notebook.run(1).text(1).endswith(str((2,) * 9))
    notebook.screenshot("odd-nine")

    choose("empty")
    expect(look.panel("values")).to_contain_text("Empty tensor")
    choose("one")
    expect(look.closed_panel("histogram")).to_be_hidden()
    expect(facts).to_contain_text("value 2.5")
    choose("words")
    expect(look.closed_panel("heatmap")).to_have_count(0)
    expect(look.panel("values").locator("[role=gridcell]").nth(1)).to_have_text("<b>bold</b>")
    choose("complex")
    expect(facts).to_contain_text("shown as magnitudes")
    expect(look.panel("histogram").locator(".smdw-readout")).to_contain_text("mean 5")
    choose("nan")
    expect(look.panel("histogram").locator(".smdw-readout")).to_have_text(re.compile(r"no finite values\s+24 NaN"))
    notebook.screenshot("odd-nan")
    choose("holes")
    look.go(5)
    expect(look.el.locator(".smdw-from")).to_contain_text("not saved at this step: showing step 3")
    expect(look.panel("histogram").locator(".smdw-readout")).to_contain_text("mean 3")
    look.go(1)
    expect(look.el.locator(".smdw-from")).to_contain_text("not saved yet")
    look.go(9)
    expect(look.panel("histogram").locator(".smdw-readout")).to_contain_text("mean 7")


LIVE = """
import smdwidgets

class Moody(smdwidgets.trials.LocalTrial):
    mood = None
    def maybe_refresh(self, *args, **kwargs):
        if self.mood:
            raise self.mood
        super().maybe_refresh(*args, **kwargs)

t = Moody("moody", {path!r})
w = smdwidgets.explore(t, tensor={tensor!r})
w
"""


def test_run_that_is_damaged_unreadable_and_deleted_while_displayed(lab, tmp_path):
    run = runs.write(tmp_path / "run")
    (run / "training_job_end.ts").unlink()
    notebook = lab.open(
        [
            LIVE.format(path=str(run), tensor=runs.WEIGHT),
            "t.mood = ValueError('the trial has had enough')",
            "t.mood = None",
            "w.tensor = 'loss'",
        ]
    ).run(0)
    look = Looking.at(notebook).at_step(29)
    message = look.el.locator(".smdw-run .smdw-note")
    notebook.run(1)
    expect(message).to_contain_text("the trial has had enough")
    look.drag(0.9, 0.3)
    step = int(look.box.input_value())
    expect(look.panel("histogram").locator(".smdw-readout")).to_contain_text("mean")
    notebook.run(2)
    # After an error, the widget asks again less and less often.
    expect(message).not_to_contain_text("enough")

    # Most of a step's file is overwritten: that step has an error with file and offset; others are unchanged.
    broken = next(run.glob(f"events/*/{12:012}_*.tfevents"))
    content = bytearray(broken.read_bytes())
    content[40:-40] = bytes(len(content) - 80)
    broken.write_bytes(content)
    look.choose(runs.GRADIENT)
    look.has_steps(30)
    look.go(12)
    expect(look.el.locator(".smdw-from")).to_contain_text(broken.name)
    notebook.screenshot("odd-damaged")
    look.go(13)
    expect(look.el.locator(".smdw-from")).to_have_text("")
    words = look.panel("histogram").locator(".smdw-readout")
    expect(words).to_contain_text("mean")

    shutil.rmtree(run)
    expect(look.el.locator(".smdw-run-status")).to_have_text("Missing")
    look.drag(0.9, step / 29)
    expect(words).to_contain_text("mean")
    notebook.run(3)
    expect(look.el.locator(".smdw-name")).to_have_text("loss")
    expect(look.el.locator(".smdw-error").first).to_be_visible()
    notebook.screenshot("odd-gone")
    assert Path(run).exists() is False
