"""The notebook about a loss of NaN in JupyterLab, with a kernel that trains.

Run by `make test-frameworks ARGS=torch`, whose environment has JupyterLab.
"""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from e2e.jupyter import Jupyter
from e2e.replaying import CAUSE, NOTEBOOK, ROW, panel_of, replayed, trained, tried

pytest_plugins = ["e2e.conftest"]
pytestmark = pytest.mark.slow


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_one_press_shows_operator_line_and_row_and_that_the_run_survives_without_it(lab: Jupyter, dark: bool) -> None:
    notebook = lab.open(NOTEBOOK, dark=dark, size=(1280, 1000))
    explorer = trained(notebook)
    panel = replayed(explorer, "Enter" if dark else "")

    expect(panel.locator(".smdw-replay-headline")).to_contain_text("aten._softmax returned NaN")
    expect(panel.locator(".smdw-replay-place")).to_have_text(re.compile(r"Cell In\[1\] line \d+"))
    expect(panel.locator("[data-named=true] code")).to_have_text(CAUSE)
    expect(panel.locator(".smdw-bad-row")).to_have_text([ROW])
    expect(panel.locator(".smdw-replay-rows")).to_contain_text("Bad row of the data set:")
    expect(panel.locator(".smdw-replay-verified")).to_contain_text(re.compile(r"bit-equal, (\d+) of \1 steps"))

    without = panel.locator(".smdw-replay-outcome")
    expect(without).to_have_count(1)
    expect(without).to_have_attribute("data-heals", "true")
    expect(without).to_contain_text(f"without row {ROW}: heals")
    expect(without.locator("svg")).to_be_visible()
    notebook.screenshot(f"replay-lab-{'dark' if dark else 'light'}")
    explorer.screenshot(path=str(notebook.shots / f"replay-explorer-{'dark' if dark else 'light'}.png"))
    expect(tried(panel, "clip 1")).to_have_attribute("data-heals", "false")

    # The kernel trains on: the lesson's last cells find the same in Python, and fix the line.
    for cell in (6, 7, 8, 10):
        notebook.run(cell, seconds=300)
    assert f"of the data set: {ROW}" in notebook.text(3)
    assert "heals" in notebook.text(5)
    assert notebook.text(6).endswith("no incidents")


def test_another_tab_shows_the_answer(lab: Jupyter) -> None:
    folder = "replay-kept"
    notebook = lab.open(NOTEBOOK, folder=folder, size=(1280, 1000))
    replayed(trained(notebook))
    notebook.save()
    again = lab.reopen(folder, 11)
    panel = panel_of(again.page.locator(".jp-Notebook .smdw").first)
    expect(panel.locator(".smdw-bad-row")).to_have_text([ROW])
    expect(panel.locator(".smdw-replay-outcome")).to_contain_text("heals")
