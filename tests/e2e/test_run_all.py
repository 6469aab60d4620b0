"""Run All: widgets display data while a later cell of the same kernel trains."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from e2e.looking import Looking

OPEN = """
import smdwidgets
from smdwidgets.numpy import Hook
import numpy as np
hook = Hook({run!r})
rng = np.random.default_rng(0)
def train_step():
    hook.save_tensor("w", rng.normal(size=(8, 4)), "weights")
    hook.save_tensor("mse", np.float64(1.0), "losses")
    hook.step()
train_step()
"""
SHOW = 'w = smdwidgets.explore({run!r}, tensor="w", panels=["histogram", "history", "statistics", "scalars"])\nw'
#: The cell trains until the test ends it, with a time limit in case the test fails.
TRAIN = """
import os, time
end = time.monotonic() + 120
while not os.path.exists({stop!r}) and time.monotonic() < end:
    train_step()
    time.sleep(0.05)
hook.close()
print("stopped by the test" if time.monotonic() < end else "time limit exceeded")
"""


def test_frames_appear_while_a_later_cell_trains(jupyter, tmp_path):
    run, stop = str(tmp_path / "run"), tmp_path / "stop"
    notebook = jupyter.open([OPEN.format(run=run), SHOW.format(run=run), TRAIN.format(stop=str(stop))])
    try:
        notebook.run_all()
        look = Looking.at(notebook, 1)
        expect(look.panel("history")).to_contain_text("steps loaded")
        expect(look.panel("histogram").locator(".smdw-readout")).to_contain_text("mean")
        # New steps arrive while the cell runs, too.
        look.box.evaluate("(box) => { box.dataset.first = box.value; }")
        expect(look.box).not_to_have_value(look.box.get_attribute("data-first"))
        # Another tensor is requested from the kernel.
        look.choose("mse")
        expect(look.el.locator(".smdw-name")).to_have_text("mse")
        expect(look.panel("statistics")).to_contain_text("steps loaded")
        expect(notebook.prompt(2)).to_have_text("[*]:", timeout=1)
        notebook.screenshot(f"run-all-{jupyter.app}", 1)
    finally:
        stop.touch()
    expect(notebook.output(2)).to_contain_text("stopped by the test")


@pytest.mark.slow
def test_kernel_without_subshells_pushes_the_first_view(lab, tmp_path):
    run, stop = str(tmp_path / "run"), tmp_path / "stop"
    cells = [OPEN.format(run=run), SHOW.format(run=run), TRAIN.format(stop=str(stop))]
    notebook = lab.open(cells, kernel="one-thread")
    try:
        notebook.run_all()
        look = Looking.at(notebook, 1)
        expect(look.panel("history")).to_contain_text("steps loaded")
        expect(look.panel("histogram").locator(".smdw-readout")).to_contain_text("mean")
        expect(look.panel("scalars")).to_contain_text("mse")
        look.box.evaluate("(box) => { box.dataset.first = box.value; }")
        expect(look.box).not_to_have_value(look.box.get_attribute("data-first"))
        look.keys("Home").at_step(0)
        expect(look.panel("histogram").locator(".smdw-readout")).to_contain_text("mean")
        expect(notebook.prompt(2)).to_have_text("[*]:", timeout=1)
        notebook.screenshot("run-all-one-thread", 1)
    finally:
        stop.touch()
    expect(notebook.output(2)).to_contain_text("stopped by the test")
    # Requests that waited are answered now.
    look.choose("mse")
    expect(look.el.locator(".smdw-name")).to_have_text("mse")
    expect(look.panel("statistics")).to_contain_text("steps loaded")
