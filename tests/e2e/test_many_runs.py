"""The table of runs in JupyterLab: two runs compared in three actions."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import expect

import smdwidgets.numpy as smd
from e2e.looking import Looking

pytestmark = pytest.mark.slow

LAYERS, STEPS = 5, 6


def test_two_runs_are_compared_in_three_actions(lab, tmp_path):
    for number in range(6):
        run = tmp_path / "runs" / f"run_{number}"
        with smd.Hook(run) as hook:
            (run / "hparams.json").write_text(json.dumps({"lr": 0.1 / (number + 1), "seed": number}))
            for step in range(STEPS):
                for layer in range(LAYERS):
                    value = np.full((4, 3), number + layer + step / 10, np.float32)
                    hook.save_tensor(f"layers.{layer}.weight", value, "weights")
                hook.save_scalar("loss", 1.0 / (step + 1) + number)
                hook.step()
    cells = [
        f"import smdwidgets\nw = smdwidgets.explore(smdwidgets.runs({str(tmp_path / 'runs')!r}))\nw",
        "w.trial.name, w.tensor, [number for number, _ in w.trials.opened()], float(w.difference().value().mean())",
    ]
    notebook = lab.open(cells).run(0)
    look = Looking.at(notebook)
    rows = look.el.locator("[data-run]")
    expect(rows).to_have_count(6)
    expect(rows.first).to_contain_text("run_0")
    notebook.screenshot("many-runs-table")

    rows.filter(has_text="run_4").locator(".smdw-runs-name").click(modifiers=["Alt"])
    expect(rows.filter(has_text="run_4").locator(".smdw-runs-b")).to_be_visible()
    rows.filter(has_text="run_1").locator(".smdw-runs-name").dblclick()
    layer = look.el.locator(".smdw-map-row").filter(has_text="layers.3")
    expect(layer).to_be_visible()
    layer.click()

    expect(look.el.locator(".smdw-name").first).to_have_text("layers.3.weight")
    notebook.screenshot("many-runs-compared")
    notebook.expect_output(1, "('run_1', 'layers.3.weight', [1, 4], -3.0)")

    look.el.get_by_role("button", name="Runs").first.click()
    expect(rows.filter(has_text="run_4").locator(".smdw-runs-b")).to_be_visible()


def start(root: Path, number: int, loss: float) -> smd.Hook:
    """Start a run that has saved two steps."""
    hook = smd.Hook(root / f"run_{number:02}")
    (root / f"run_{number:02}" / "hparams.json").write_text(json.dumps({"lr": 0.1 / (number + 1), "seed": number % 3}))
    for step in range(2):
        hook.save_scalar("loss", loss + 1 - step)
        hook.step()
    return hook


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_run_that_is_started_later_appears_in_its_place(lab, tmp_path, dark):
    root = tmp_path / "runs"
    for number in range(40):
        start(root, number, number + 1.0).close()
    cells = [
        f"import smdwidgets\nw = smdwidgets.explore(smdwidgets.runs({str(root)!r}))\nw",
        "len(w.trials), w.checked",
    ]
    notebook = lab.open(cells, dark=dark).run(0)
    look = Looking.at(notebook)
    grid = look.el.get_by_role("grid", name="Runs")
    facts = look.el.locator(".smdw-runs-facts")
    name = look.el.get_by_role("columnheader").filter(has=look.page.locator("[data-by=name]"))
    expect(facts).to_have_text("40 runs")
    name.get_by_role("button").click()
    name.get_by_role("button").click()
    expect(name).to_have_attribute("aria-sort", "descending")
    row = grid.locator("[data-run]").filter(has_text="run_10")
    grid.press("End")
    row.locator(".smdw-runs-name").click()
    grid.press(" ")
    expect(row).to_have_attribute("aria-selected", "true")
    before, scrolled = look.settled(row), grid.evaluate("(el) => el.scrollTop")
    assert scrolled > 0

    with closing(start(root, 40, 0.5)):
        expect(facts).to_have_text("41 runs")
        assert look.settled(row) == before
        # It is the last by name, and so the first of this order.
        assert grid.evaluate("(el) => el.scrollTop") == scrolled + 24
        expect(grid).to_have_attribute("aria-activedescendant", str(row.get_attribute("id")))
        expect(row).to_have_attribute("aria-selected", "true")
        expect(name).to_have_attribute("aria-sort", "descending")
        notebook.screenshot(f"many-runs-later-{'dark' if dark else 'light'}")
        grid.press("Home")
        later = grid.locator("[data-run]").first
        expect(later).to_contain_text("run_40")
        expect(later).to_have_attribute("data-state", "running")
        notebook.screenshot(f"many-runs-later-first-{'dark' if dark else 'light'}")
    expect(grid.locator("[data-run]").first).to_have_attribute("data-state", "ended")
    assert "(41, " in notebook.run(1).text(1)


def test_the_query_of_a_table_is_completed_by_keyboard(lab, tmp_path):
    for number in range(6):
        start(tmp_path / "runs", number, number + 1.0).close()
    cells = [
        f"import smdwidgets\nw = smdwidgets.explore(smdwidgets.runs({str(tmp_path / 'runs')!r}))\nw",
        "w.runs_query",
    ]
    notebook = lab.open(cells).run(0)
    look = Looking.at(notebook)
    rows = look.el.locator("[data-run]")
    expect(rows).to_have_count(6)
    look.el.get_by_role("grid", name="Runs").press("/")
    box = look.el.get_by_role("combobox", name="Query")
    expect(box).to_be_focused()
    expect(look.el.get_by_role("option", name="seed hyperparameter")).to_be_visible()
    notebook.screenshot("many-runs-suggestions")
    box.press_sequentially("se")
    box.press("Tab")
    expect(look.el.get_by_role("option", name="<=")).to_be_visible()
    box.press_sequentially("< 2 | t")
    box.press("Tab")
    box.press_sequentially("lo")
    expect(look.el.get_by_role("option", name="loss best value of the curve")).to_be_visible()
    box.press("Tab")
    expect(box).to_have_value("seed < 2 | top 12 by loss ")
    expect(rows).to_have_count(4)
    # The first closes the list of suggestions.
    box.press("Escape")
    box.press("Enter")
    expect(look.el.get_by_role("grid", name="Runs")).to_be_focused()
    notebook.screenshot("many-runs-query")
    notebook.expect_output(1, "'seed < 2 | top 12 by loss '")
