"""Kernel restarts, closed and duplicate tabs, and lost connections.

The display stays correct and recovers.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, WebSocketRoute, expect

from e2e import runs
from e2e.looking import Looking
from e2e.test_explorer import expect_histogram_of
from e2e.training import saved

RECONNECT = "() => { window.jupyterapp.shell.currentWidget.context.sessionContext.session.kernel.reconnect(); }"


def live(path: Path) -> list[str]:
    """Cells that display a live run, and the kernel's state of the widget."""
    open_it = (
        f"import smdwidgets\nt = smdwidgets.create_trial({str(path)!r}, wait=60)\nt.wait_for_steps([2], timeout=60)\n"
    )
    return [open_it + "w = smdwidgets.explore(t, tensor='net/fc.weight')\nw", "w.step"]


class Cable:
    """The kernel's web socket of a page, which the test can disconnect."""

    def __init__(self, page: Page) -> None:
        self.pulled = False
        self._open: list[WebSocketRoute] = []
        page.route_web_socket(re.compile(r"/api/kernels/.*/channels"), self._route)

    def _route(self, socket: WebSocketRoute) -> None:
        if self.pulled:
            socket.close(code=1001)
            return
        socket.connect_to_server()
        self._open.append(socket)

    def pull(self) -> None:
        self.pulled = True
        for socket in self._open:
            socket.close(code=1001)
        self._open.clear()

    def plug_in(self) -> None:
        self.pulled = False


@pytest.mark.slow
def test_lost_connection_is_restored(lab, writer, tmp_path):
    saved(writer, 3)
    cables: list[Cable] = []
    notebook = lab.open(live(tmp_path / "live"), prepare=lambda page: cables.append(Cable(page)))
    notebook.run(0)
    look = Looking.at(notebook).at_step(2)
    look.has_steps(3)
    cables[0].pull()
    saved(writer, 2)
    # Loaded data can be viewed, and the page reports the lost connection.
    look.keys("ArrowLeft").at_step(1)
    expect_histogram_of(look, runs.weight(1))
    expect(look.el.locator(".smdw-note").first).to_contain_text("Kernel busy")
    notebook.screenshot("disconnected-lab")
    cables[0].plug_in()
    # JupyterLab retries at growing intervals; a user can select "Reconnect to Kernel".
    notebook.page.evaluate(RECONNECT)
    expect(look.el.locator(".smdw-fresh")).to_have_text("2 new steps")
    look.keys("End").at_step(4)
    expect_histogram_of(look, runs.weight(4))
    expect(look.el.locator(".smdw-note").first).not_to_contain_text("busy")
    notebook.expect_output(1, "4")
    notebook.errors[:] = [error for error in notebook.errors if "WebSocket" not in error and "Connection" not in error]


def test_restarted_kernel(lab, tmp_path):
    run = runs.write(tmp_path / "run")
    notebook = lab.open([f"import smdwidgets\nw = smdwidgets.explore({str(run)!r}, tensor='net/fc.weight')\nw"])
    notebook.run(0)
    look = Looking.at(notebook).at_step(29)
    look.has_steps(30)
    notebook.restart()
    # Data that was sent is still displayed; parts that need a kernel report that it is missing.
    look.keys("ArrowLeft", "ArrowLeft").at_step(27)
    expect_histogram_of(look, runs.weight(27))
    look.choose(runs.GRADIENT).drawn()
    expect(look.el).to_contain_text(re.compile("run the cell again", re.I))
    notebook.screenshot("restarted-lab")
    notebook.run(0)
    look = Looking.at(notebook)
    look.has_steps(30)
    look.keys("Home").at_step(0)
    expect_histogram_of(look, runs.weight(0))


def test_notebook_reopened_without_its_kernel_shows_the_still(jupyter, tmp_path):
    run = runs.write(tmp_path / "run")
    cells = [f"import smdwidgets\nw = smdwidgets.explore({str(run)!r}, tensor='net/fc.weight')\nw"]
    notebook = jupyter.open(cells, folder=f"still-{jupyter.app}", fresh=True)
    notebook.run(0)
    look = Looking.at(notebook).at_step(29)
    still = notebook.output(0).locator(".smdw-still")
    expect(still).to_be_attached()
    expect(still).to_be_hidden()
    look.go(12)
    expect(still).to_contain_text("at step 12")  # updated when the slider rests
    expect(still.locator("img")).to_have_attribute("src", re.compile(r"^data:image/svg\+xml"))
    expect(still).to_be_hidden()
    notebook.save()
    notebook.page.close()
    jupyter.end_kernels()

    again = jupyter.reopen(f"still-{jupyter.app}", cells=1)
    output = again.output(0)
    expect(output.locator(".smdw-still")).to_be_visible()
    expect(output.locator(".smdw-still img")).to_be_visible()
    expect(output.locator(".smdw-still")).to_contain_text("'net/fc.weight' at step 12")
    again.screenshot(f"still-{jupyter.app}", 0)
    expect(output.get_by_text("Error displaying widget")).to_be_hidden()
    expect(output.get_by_text("Loading widget")).to_be_hidden()
    again.run(0)
    Looking.at(again).at_step(29)
    expect(output.locator(".smdw-still")).to_be_hidden()
    again.errors[:] = [error for error in again.errors if "widget model not found" not in error]


@pytest.mark.slow
def test_closed_reopened_and_duplicate_tabs(lab, writer, tmp_path):
    saved(writer, 3)
    notebook = lab.open(live(tmp_path / "live"), folder="tabs", fresh=True)
    notebook.run(0)
    look = Looking.at(notebook).at_step(2)
    look.keys("ArrowLeft").at_step(1)
    notebook.save()
    notebook.page.close()
    saved(writer, 1)

    again = lab.reopen("tabs", cells=2)
    look = Looking.at(again).at_step(1)
    expect_histogram_of(look, runs.weight(1))
    look.keys("End").at_step(3)
    expect_histogram_of(look, runs.weight(3))

    beside = lab.reopen("tabs", cells=2)
    other = Looking.at(beside).at_step(3)
    other.keys("Home").at_step(0)
    look.at_step(0)
    expect_histogram_of(look, runs.weight(0))
    look.keys("ArrowRight").at_step(1)
    other.at_step(1)
    expect_histogram_of(other, runs.weight(1))
    beside.expect_output(1, "1")
    saved(writer, 1)
    for each in (look, other):
        expect(each.el).to_contain_text("5 steps")
    for each in (look, other):
        each.keys("End").at_step(4)
        expect_histogram_of(each, runs.weight(4))
