"""Code that a page loads when it first needs it, in real notebooks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from e2e import runs
from e2e.jupyter import Jupyter, Notebook
from e2e.looking import Looking

# Without the packets of the run.
SIZE = "print(sum(len(v if isinstance(v, str) else str(v)) for k, v in w.get_state().items() if k != '_boot'))"


@pytest.fixture
def cells(tmp_path: Path) -> list[str]:
    """Two cells that display the same run; the first widget carries code."""
    run = str(runs.write(tmp_path / "run"))
    explore = f"smdwidgets.explore({run!r}, tensor={runs.WEIGHT!r}, inspect=False)"
    return [f"import smdwidgets\nfirst = {explore}\nfirst", f"import smdwidgets\nw = {explore}\nw"]


@pytest.fixture
def saving_lab(lab: Jupyter) -> Iterator[Jupyter]:
    """JupyterLab with the setting that saves the state of widgets in notebooks."""
    folder = lab.server.files.parent / "user-settings" / "@jupyter-widgets" / "jupyterlab-manager"
    folder.mkdir(parents=True, exist_ok=True)
    setting = folder / "plugin.jupyterlab-settings"
    setting.write_text('{"saveState": true}')
    yield lab
    setting.unlink()


def shown(notebook: Notebook, cell: int) -> Looking:
    """Return the explorer of a cell, once it is drawn, without an inspector."""
    look = Looking.at(notebook, cell).at_step(29)
    expect(look.el.locator(".smdw-map-row").first).to_be_visible()
    expect(look.el.locator(".smdw-pictures")).to_have_count(0)
    return look


def inspect(look: Looking) -> Looking:
    """Open the inspector, whose code the page then loads."""
    look.el.locator(".smdw-inspect-button").click()
    expect(look.panel("histogram").locator(".smdw-readout")).to_contain_text("mean")
    return look


def test_widgets_share_the_code_of_a_page_and_get_more_when_it_is_needed(jupyter, cells):
    notebook = jupyter.open([*cells, SIZE, "smdwidgets.StepSlider([1, 2, 3])"], fresh=True)
    for index in range(4):
        notebook.run(index)
    assert int(notebook.text(2)) <= 3 * 1024
    shown(notebook, 0)
    second = shown(notebook, 1)
    expect(notebook.output(3).locator(".smdw-slider")).to_be_visible()
    # The inspector's code comes with its first use, and serves the second widget.
    inspect(second)
    notebook.screenshot(f"parts-{jupyter.app}", 1)


def test_cells_that_are_run_again_after_a_restart_show_their_widgets(lab, cells):
    notebook = lab.open(cells, fresh=True).run(0).run(1)
    shown(notebook, 0)
    shown(notebook, 1)
    notebook.restart()
    # The second cell first: the kernel that carries the code with this widget is new, the page is not.
    notebook.run(1)
    inspect(shown(notebook, 1))
    notebook.run(0)
    inspect(shown(notebook, 0))


@pytest.mark.slow
def test_reloaded_page_shows_its_widgets_again_and_loads_later_parts(lab, cells):
    notebook = lab.open(cells, folder="parts-reloaded", fresh=True).run(0).run(1)
    shown(notebook, 0)
    shown(notebook, 1)
    notebook.save()
    notebook.open("parts-reloaded/notebook.ipynb", len(cells))
    shown(notebook, 0)
    inspect(shown(notebook, 1))


@pytest.mark.slow
def test_reloaded_page_without_the_widget_that_carries_the_code_asks_for_it(lab, cells):
    notebook = lab.open([*cells, "first.close()"], folder="parts-asked", fresh=True).run(0).run(1).run(2)
    shown(notebook, 1)
    notebook.save()
    notebook.open("parts-asked/notebook.ipynb", 3)
    inspect(shown(notebook, 1))
    expect(notebook.output(0).locator(".smdw-still")).to_be_visible()
    notebook.errors[:] = [error for error in notebook.errors if "widget model not found" not in error]


@pytest.mark.slow
def test_notebook_with_widget_state_shows_its_widgets_without_their_kernel(saving_lab, cells):
    notebook = saving_lab.open(cells, folder="parts-state", fresh=True).run(0).run(1)
    shown(notebook, 1)
    notebook.save()
    notebook.page.close()
    saving_lab.end_kernels()

    # JupyterLab asks the kernel for its widgets, and loads those of the file after the answer. A kernel that has just
    # been started may not answer; then they are never loaded.
    saving_lab.reopen("parts-state", 2).page.close()
    again = saving_lab.reopen("parts-state", 2)
    for cell in (0, 1):
        shown(again, cell).keys("Home").at_step(0)
        expect(again.output(cell).locator(".smdw-still")).to_be_hidden()
    again.screenshot("parts-state-code")
