"""The widget in a real marimo.

marimo runs the module once for all widgets and puts each into a shadow root.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from e2e import runs
from e2e.jupyter import free_port
from e2e.looking import Looking
from e2e.test_explorer import expect_histogram_of, expect_number

APP = """
import marimo

app = marimo.App()


@app.cell
def _():
    import marimo as mo
    import smdwidgets

    shown = mo.ui.anywidget(smdwidgets.explore({path!r}, tensor={tensor!r}))
    shown
    return mo, shown


@app.cell
def _(mo, shown):
    mo.md(f"python stands at {{shown.widget.step}} {{shown.value['step']}}")
    return


if __name__ == "__main__":
    app.run()
"""


@pytest.fixture
def marimo(tmp_path: Path) -> Iterator[str]:
    """The address of a marimo server that displays a run."""
    run = runs.write(tmp_path / "run")
    app = tmp_path / "app.py"
    app.write_text(APP.format(path=str(run), tensor=runs.WEIGHT), encoding="utf-8")
    home = tmp_path / "home"
    home.mkdir()
    port = free_port()
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    homes = {"HOME": str(home), "XDG_CONFIG_HOME": str(home), "XDG_CACHE_HOME": str(home), "XDG_STATE_HOME": str(home)}
    options = ["--headless", "--no-token", "--host", "127.0.0.1", "--port", str(port)]
    log = tmp_path / "marimo.log"
    with log.open("wb") as out:
        server = subprocess.Popen(
            [sys.executable, "-m", "marimo", "run", str(app), *options],
            cwd=tmp_path,
            env=env | homes,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    url = f"http://127.0.0.1:{port}"
    try:
        end = time.monotonic() + 90
        while True:
            try:
                with urllib.request.urlopen(f"{url}/health", timeout=5):
                    break
            except (urllib.error.URLError, OSError):
                assert server.poll() is None, log.read_text(errors="replace")
                assert time.monotonic() < end, log.read_text(errors="replace")
                time.sleep(0.1)
        yield url
    finally:
        if os.name == "nt":
            server.terminate()
        elif server.poll() is None:
            os.killpg(server.pid, signal.SIGTERM)
        server.wait(30)


def test_marimo_displays_the_widget_and_receives_slider_changes(marimo: str, browser: Browser, shots: Path) -> None:
    page = browser.new_page(viewport={"width": 1200, "height": 1000})
    foreign: list[str] = []
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))

    def only_here(route) -> None:
        if route.request.url.startswith((marimo, "blob:", "data:", marimo.replace("http", "ws"))):
            return route.continue_()
        foreign.append(route.request.url)
        return route.abort()

    page.route("**/*", only_here)
    page.goto(marimo)
    look = Looking(page.locator(".smdw"))
    expect(look.el).to_be_visible()
    look.at_step(29)
    look.has_steps(30)
    look.drag(0.9, 0.2, 0.5)
    step = int(look.box.input_value())
    assert 12 <= step <= 17
    expect_histogram_of(look, runs.weight(step))
    cells = look.panel("values").locator("[role=row]").nth(1).locator("[role=gridcell]")
    expect_number(cells.first, runs.weight(step)[0, 0])
    expect(page.get_by_text(f"python stands at {step} {step}")).to_be_visible()
    look.keys("ArrowRight").at_step(step + 1)
    expect_histogram_of(look, runs.weight(step + 1))
    shots.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=str(shots / "marimo.png"))
    page.close()
    assert errors == []
    # Requests of marimo itself (fonts, update notice) are ignored; the widget only contacts its kernel.
    assert [url for url in foreign if "marimo" not in url and "font" not in url] == []
