"""Labels, legends and marks state what the run contains."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import expect

import smdwidgets.numpy as smd
from e2e import runs
from e2e.looking import Looking, until
from e2e.test_explorer import expect_number, show
from e2e.training import saved
from smdwidgets.modes import ModeKeys

pytestmark = pytest.mark.slow

NAN = (150, 0, 255)
BREAKS_AT = 20


def breaking(step: int) -> dict[str, tuple[object, str]]:
    """A layer that is partly NaN from step 20 on, one of 12 layers, and its loss."""
    value = runs.weight(8) + np.float32(step / 20)
    if step >= BREAKS_AT:
        value[:4] = np.nan
    layers = {f"layers.{i}.weight": (runs.gradient(i), "weights") for i in range(12)}
    loss = np.float32(np.nan if step >= BREAKS_AT else 1 / (step + 1))
    return {**layers, "broken": (value, "weights"), "loss": (loss, "losses")}


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    return runs.write(tmp_path / "broken", of_step=breaking)


def has_colour(look: Looking, figure: str, colour: tuple[int, int, int]) -> bool:
    pixels = look.pixels(figure).astype(int)
    return bool((abs(pixels - np.array(colour)).max(axis=2) < 24).sum() > 20)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_first_nan_is_marked_over_time(lab, broken, dark):
    panels = "['histogram', 'history', 'statistics', 'scalars']"
    notebook = lab.open([show(broken, f"tensor='broken', panels={panels}")], dark=dark, size=(1280, 1100)).run(0)
    look = Looking.at(notebook).at_step(29)
    expect(look.panel("history").locator(".smdw-readout")).to_contain_text("30 steps loaded · NaN from step 20")
    expect(look.panel("scalars").locator(".smdw-legend")).to_contain_text("loss")
    expect(look.panel("statistics").locator("canvas")).to_have_attribute("aria-label", re.compile("mean NaN"))
    look.leave()
    look.drawn()
    for figure in ("history", "statistics", "scalars"):
        until(lambda figure=figure: has_colour(look, figure, NAN), figure)
    notebook.screenshot(f"nan-over-time-{'dark' if dark else 'light'}")
    look.choose("layers.3.weight")
    expect(look.panel("history").locator(".smdw-readout")).to_have_text("30 steps loaded")
    until(lambda: not has_colour(look, "history", NAN), "history")


def test_layers_are_in_natural_order(lab, broken):
    notebook = lab.open([show(broken, "step=29")]).run(0)
    look = Looking.at(notebook).at_step(29)
    rows = look.el.locator(".smdw-map-row")
    expect(rows.and_(look.el.get_by_title("layers.0")).first).to_be_visible()
    titles = [row.get_attribute("title") or "" for row in rows.all()]
    numbers = [int(found[1]) for title in titles if (found := re.match(r"layers\.(\d+)", title))]
    assert len(numbers) >= 10
    assert numbers == sorted(numbers)


def legend(look: Looking, panel: str) -> dict[str, str]:
    """Return the colours in a panel's legend by run."""
    entries = look.panel(panel).locator(".smdw-legend li")
    expect(entries).to_have_count(2)
    found = {}
    for i in range(2):
        name = entries.nth(i).locator(".smdw-legend-name").inner_text()
        colour = entries.nth(i).locator(".smdw-swatch").evaluate("(el) => getComputedStyle(el).color")
        found["two" if "two" in name else "one"] = colour
    return found


def test_a_run_has_one_colour_in_adjacent_cells(lab, tmp_path):
    paths = [str(runs.write(tmp_path / name)) for name in ("one", "two")]
    notebook = lab.open(
        [
            f"import smdwidgets\nsmdwidgets.ScalarPanel({paths}, regex='loss')",
            f"smdwidgets.explore({paths}, tensor='net/fc.weight', run=1, compare={{'run': 0}})",
            f"smdwidgets.ScalarPanel({paths[::-1]}, regex='loss')",
        ],
        size=(1280, 1500),
    )
    for cell in range(3):
        notebook.run(cell)
    curves = legend(Looking.at(notebook, 0), "scalars")
    assert len(set(curves.values())) == 2
    explorer = Looking.at(notebook, 1)
    for panel in ("histogram", "statistics"):
        assert legend(explorer, panel) == curves
    assert legend(Looking.at(notebook, 2), "scalars") == curves
    explorer.el.scroll_into_view_if_needed()
    notebook.screenshot("run-colours-light")


def test_the_track_keeps_its_width_while_dragging(lab, tmp_path):
    run = runs.write(tmp_path / "run", 120, modes=True)
    notebook = lab.open([show(run, "step=119")]).run(0)
    look = Looking.at(notebook).at_step(119)
    widths = set()
    for step in (*range(12), 99, 100, 104, 118, 119):
        look.go(step).drawn()
        widths.add(look.track.bounding_box()["width"])
    assert len(widths) == 1


def test_a_pinned_step_and_a_mode_without_the_tensor(lab, tmp_path):
    root = tmp_path / "run"
    with smd.Hook(root) as hook:
        for step in range(60):
            training = step % 6 != 5
            hook.set_mode(ModeKeys.TRAIN if training else ModeKeys.EVAL)
            if training:
                hook.save_tensor("net/fc.weight", runs.weight(step), "weights")
            hook.save_tensor("loss", np.float32(1 / (step + 1)), "losses")
            hook.step()
    notebook = lab.open([show(root, "tensor='net/fc.weight'")]).run(0)
    look = Looking.at(notebook).go(40)
    look.el.locator(".smdw-explorer").press("c")
    look.go(50)
    look.el.get_by_label("Mode", exact=True).select_option("EVAL")
    expect(look.el.locator(".smdw-mode-tag")).to_contain_text("EVAL")
    assert int(look.box.input_value()) % 6 == 5
    values = look.panel("values")
    expect(values.locator(".smdw-empty")).to_have_text("Not saved in this mode")
    expect(values).not_to_contain_text("TypeError")
    expect(look.panel("histogram").locator(".smdw-legend")).to_contain_text("B: step 40")
    look.drawn()
    notebook.screenshot("pinned-then-eval-light")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_rule_without_its_parameter_is_shown_with_what_it_needs(lab, tmp_path, dark):
    run = runs.write(tmp_path / "run", 10)
    notebook = lab.open([show(run, "rules=['AllZero', 'VanishingGradient'], panels=['rules']")], dark=dark).run(0)
    look = Looking.at(notebook)
    rule = look.rules().first
    expect(rule.locator(".smdw-status")).to_have_text("– Not judged")
    expect(rule.locator(".smdw-rule-message")).to_have_text(
        "needs parameter \u201cCollection names\u201d or \u201cTensor pattern\u201d"
    )
    expect(look.rules().nth(1).locator(".smdw-status")).to_have_text("✓ Clear")
    grey, clear = (
        look.rules().nth(i).locator(".smdw-status").evaluate("(el) => getComputedStyle(el).color") for i in range(2)
    )
    quiet = look.el.locator(".smdw-quiet").first.evaluate("(el) => getComputedStyle(el).color")
    assert grey == quiet != clear
    notebook.screenshot(f"rule-needs-parameter-{'dark' if dark else 'light'}")
    rule.locator(".smdw-rule-name").click()
    field = rule.get_by_label("Tensor pattern")
    field.fill("weight")
    field.press("Enter")
    expect(rule.locator(".smdw-status")).to_have_text("✓ Clear")


def test_the_table_keeps_up_with_a_training(lab, tmp_path, writer):
    saved(writer, 2)
    cell = (
        "import smdwidgets\n"
        f"trial = smdwidgets.create_trial({str(tmp_path / 'live')!r}, wait=60)\n"
        "trial.wait_for_steps([1])\n"
        "smdwidgets.explore(trial, tensor='net/fc.weight', panels=['statistics', 'values'], stats=['mean'])"
    )
    notebook = lab.open([cell]).run(0)
    look = Looking.at(notebook)
    panel = look.panel("values")
    first = panel.locator("[role=row]").nth(1).locator("[role=gridcell]").first
    for steps in range(3, 40):
        saved(writer, 1)
        expect(look.box).to_have_value(str(steps - 1))
        # The table shows values of the step, or names the step of the values that it shows.
        note = panel.locator(".smdw-note").inner_text()
        stale = "smdw-stale" in (first.get_attribute("class") or "")
        assert not stale or note.startswith("Values of step ") or "Kernel" in note, note
    expect_number(first, runs.weight(38)[0, 0])
    expect(first).not_to_have_class(re.compile("smdw-stale"))


def test_numbers_and_axes_of_a_large_matrix(lab, tmp_path):
    rng = np.random.default_rng(0)

    def large(step: int) -> dict[str, tuple[object, str]]:
        value = rng.uniform(-1, 1, (1024, 1024)).astype(np.float32)
        level = np.float32(0.35 + step * 1e-4)
        return {"large": (value, "weights"), "level": (np.full((2, 3), level), "weights")}

    run = runs.write(tmp_path / "run", 4, of_step=large)
    notebook = lab.open([show(run, "tensor='large', zoom=[100, 190, 200, 290]"), "w.tensor, w.zoom = 'level', []"])
    notebook.run(0)
    look = Looking.at(notebook).at_step(3)
    look.leave()
    expect(look.panel("heatmap").locator(".smdw-readout")).to_contain_text("90 × 90 of 1,024 × 1,024 cells")
    cells = look.panel("values").locator("[role=gridcell]")
    expect(cells.filter(has_text="0.").first).to_be_visible()
    assert not any("-" in text for text in cells.all_inner_texts())
    notebook.screenshot("zoomed-light")
    notebook.run(1)
    expect(look.panel("heatmap").locator(".smdw-readout")).to_have_text("2 × 3 cells")
    notebook.screenshot("narrow-range-light")
