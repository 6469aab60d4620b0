"""Which cells of a matrix moved between two steps, in a notebook."""

from __future__ import annotations

import re

import numpy as np
import pytest
from playwright.sync_api import expect

import smdwidgets.numpy as smd
from e2e.jupyter import Notebook

pytestmark = pytest.mark.slow


def weight(step: int) -> np.ndarray:
    """Cells move slowly, but three at step 30."""
    value = np.sin(np.arange(600).reshape(20, 30) / 7 + step / 500).astype(np.float32)
    if step >= 30:
        value[3, 5], value[10, 0], value[19, 29] = np.nan, 2.5, -2.25
    return value


def test_which_cells_moved_between_two_steps(lab, tmp_path):
    with smd.Hook(tmp_path / "run") as hook:
        for step in range(40):
            hook.save_tensor("fc.weight", weight(step), "weights")
            hook.step()
    source = f"import smdwidgets\nw = smdwidgets.explore({str(tmp_path / 'run')!r}, step=30)\nw"
    notebook: Notebook = lab.open(
        [source, "(w.compare, w.view, w.difference().changed(3)['index'].tolist())"], size=(1700, 900)
    )
    notebook.run(0)
    explorer = notebook.output(0).locator(".smdw-explorer")
    expect(explorer.locator(".smdw-map-row").first).to_be_visible()
    # Two actions: open the tensor in view, and subtract the saved step before.
    explorer.press("Enter")
    explorer.press("m")
    rows = explorer.locator(".smdw-change[tabindex]")
    expect(rows).to_have_count(12)
    expect(rows.nth(0)).to_contain_text("[3, 5]")
    expect(rows.nth(0).locator(".smdw-bad")).to_have_text("NaN")
    expect(rows.nth(1)).to_contain_text("[10, 0]")
    expect(rows.nth(2)).to_contain_text("[19, 29]")
    expect(rows.nth(0).locator(".smdw-life")).to_be_visible()
    expect(explorer.locator(".smdw-panel-heatmap .smdw-title")).to_have_text("A \u2212 B, cell by cell")
    rows.nth(1).click()
    expect(rows.nth(1)).to_have_attribute("aria-selected", "true")
    notebook.screenshot("compare-cells")
    answer = notebook.run(1).output(1)
    expect(answer).to_have_text(
        re.compile(re.escape("({'offset': -1}, 'diff', [(3, 5), (10, 0), (19, 29)])")), use_inner_text=True
    )
