"""Widgets in a real browser display what NumPy computes for the same run."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Locator, expect

from e2e import runs
from e2e.jupyter import Notebook
from e2e.looking import Looking, until
from e2e.training import saved

SHOW = "import smdwidgets\nw = smdwidgets.explore({path!r}, {more})\nw"


def show(path: Path, more: str = "") -> str:
    return SHOW.format(path=str(path), more=more)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return runs.write(tmp_path / "run", modes=True)


def shown(number: float) -> str:
    """Format with four digits, as readouts do."""
    return np.format_float_positional(number, 4, fractional=False, trim="-").replace("-", "−")


def exact(number: np.generic) -> str:
    """Format with all digits, as the table does."""
    return str(number).replace("-", "−")


def expect_number(cell: Locator, number: np.generic) -> None:
    """Expect a number of the values panel, with all digits in its tooltip."""
    expect(cell).to_have_attribute("title", str(number))


def expect_histogram_of(look: Looking, value: np.ndarray) -> None:
    value = value[np.isfinite(value)]
    words = [f"min {shown(value.min())}", f"max {shown(value.max())}"]
    expect(look.panel("histogram").locator(".smdw-readout")).to_contain_text(re.compile(r"\s+.*".join(words)))


def test_dragging_displays_the_saved_values(jupyter, run):
    notebook = jupyter.open(
        [show(run, "tensor='net/fc.weight', palette='grey', scale_over='step'"), "(w.step, float(w.value().sum()))"]
    )
    notebook.run(0)
    look = Looking.at(notebook).at_step(29)
    look.has_steps(30)
    notebook.screenshot(f"explorer-{jupyter.app}-light")
    look.drag(0.9, 0.2, 0.5)
    step = int(look.box.input_value())
    assert 12 <= step <= 17
    expect_histogram_of(look, runs.weight(step))
    cells = look.panel("values").locator("[role=row]").nth(1).locator("[role=gridcell]")
    for i in range(3):
        expect_number(cells.nth(i), runs.weight(step)[0, i])
    notebook.expect_output(1, f"({step}, {float(runs.weight(step).sum())})")

    pixels = look.pixels("heatmap").astype(int)
    value, seen = runs.weight(step), set()
    height, width = pixels.shape[:2]
    inside = [
        (x, y)
        for y in range(6, height - 26, 7)
        for x in range(60, width - 90, 13)
        # The palette ends at 244; what surrounds the square cells is brighter.
        if np.ptp(pixels[y - 2 : y + 3, x - 2 : x + 3]) == 0 and pixels[y, x, 0] <= 244
    ]
    for x, y in inside[:: max(1, len(inside) // 6)]:
        look.hover("heatmap", x, y)
        said = look.panel("heatmap").locator(".smdw-readout")
        expect(said).to_contain_text(" = ")
        found = re.match(r"\[(\d+), (\d+)\] = (\S+)", said.inner_text())
        assert found, said.inner_text()
        row, column = int(found[1]), int(found[2])
        assert found[3] == exact(value[row, column])
        share = (value[row, column] - value.min()) / (value.max() - value.min())
        assert pixels[y, x] == pytest.approx([16 + share * 228] * 3, abs=3)
        seen.add((row, column))
    assert len(seen) >= 3


@pytest.mark.slow
def test_non_finite_numbers_are_counted_and_coloured(lab, run):
    notebook = lab.open([show(run, "tensor='net/fc.weight', step=7")]).run(0)
    look = Looking.at(notebook).at_step(7)
    expect(look.el.locator(".smdw-chips")).to_contain_text(re.compile(r"NaN\s*1.*\+Inf\s*1.*−Inf\s*1", re.S))
    for colour in ([150, 0, 255], [255, 140, 0], [0, 160, 255]):
        until(lambda colour=colour: (look.pixels("heatmap") == colour).all(2).sum() > 20, colour)


@pytest.mark.slow
def test_widget_opens_at_the_newest_step_of_its_tensor(lab, tmp_path):
    def of_step(step: int) -> dict[str, object]:
        saved = runs.tensors(step)
        return {runs.LOSS: saved[runs.LOSS]} if step % 5 == 4 else saved

    run = runs.write(tmp_path / "run", of_step=of_step, modes=True)
    notebook = lab.open([show(run, f"tensor={runs.WEIGHT!r}"), "(w.step, w.follow)"]).run(0)
    look = Looking.at(notebook).at_step(28)
    expect_histogram_of(look, runs.weight(28))
    expect(look.el.locator(".smdw-from")).to_be_empty()
    look.choose(runs.LOSS).at_step(29)
    notebook.expect_output(1, "(29, True)")
    look.choose(runs.WEIGHT).at_step(28)
    expect(look.el.locator(".smdw-from")).to_be_empty()


def test_keys_move_the_slider_and_not_the_notebook(jupyter, run):
    notebook = jupyter.open([show(run, "step=29"), "1"], dark=True).run(0)
    look = Looking.at(notebook).at_step(29)
    look.keys("ArrowLeft", "ArrowLeft").at_step(27)
    look.keys("Home").at_step(0)
    look.keys("ArrowRight", "PageUp").at_step(4)
    expect(look.track).to_have_attribute("aria-valuetext", "step 4 of 29, EVAL step 0, 5 of 30 saved")
    look.keys("End").at_step(29)
    look.keys("1", "2", "Enter").at_step(12)
    look.keys("b", "x", "d", "d")
    assert notebook.page.evaluate("() => window.jupyterapp.shell.currentWidget.content.widgets.length") == 2
    notebook.screenshot(f"explorer-{jupyter.app}-dark")


@pytest.mark.slow
def test_two_views_are_synchronized(lab, run):
    notebook = lab.open([show(run), "w"])
    notebook.run(0).run(1)
    first, second = Looking.at(notebook, 0), Looking.at(notebook, 1)
    first.go(3)
    second.at_step(3)
    second.drag(0.9, 0.999)
    first.at_step(29)


def busy_until(stop: Path) -> str:
    """Return a cell that computes until the file exists."""
    return f"import os\nwhile not os.path.exists({str(stop)!r}):\n    sum(range(1000))"


def test_widget_responds_while_the_kernel_trains(jupyter, run, tmp_path):
    stop = tmp_path / "stop"
    notebook = jupyter.open([show(run, "tensor='net/fc.weight'"), busy_until(stop)]).run(0)
    look = Looking.at(notebook)
    look.has_steps(30)
    notebook.run(1, wait=False)
    busy = notebook.page.locator(".jp-CodeCell").nth(1).locator(".jp-InputPrompt")
    expect(busy).to_have_text("[*]:")
    for share in (0.8, 0.5, 0.1):
        look.drag(0.9, share)
        expect_histogram_of(look, runs.weight(int(look.box.input_value())))
    # Another tensor comes from the kernel, which replies while the cell runs.
    look.choose(runs.GRADIENT).go(11)
    expect(look.el.locator(".smdw-name")).to_have_text(runs.GRADIENT)
    look.has_steps(30)
    words = look.panel("histogram").locator(".smdw-readout")
    expect(words).to_contain_text(f"max {shown(runs.gradient(11).max())}")
    expect(busy).to_have_text("[*]:", timeout=1)
    stop.touch()
    expect(busy).to_have_text("[2]:")


def test_steps_of_another_process_appear(lab, writer, tmp_path):
    saved(writer, 3)
    notebook = lab.open([f"import smdwidgets\nt = smdwidgets.create_trial({str(tmp_path / 'live')!r}, wait=60)\nt.wait_for_steps([2])",
                         "w = smdwidgets.explore(t, tensor='net/fc.weight')\nw"])  # fmt: skip
    notebook.run(0).run(1)
    look = Looking.at(notebook, 1).at_step(2)
    saved(writer, 2)
    look.at_step(4)
    expect_histogram_of(look, runs.weight(4))
    look.keys("ArrowLeft").at_step(3)
    saved(writer, 2)
    fresh = look.el.locator(".smdw-fresh")
    expect(fresh).to_have_text("2 new steps")
    look.at_step(3)
    fresh.click()
    look.at_step(6)
    expect_histogram_of(look, runs.weight(6))
    assert writer.stdin
    writer.stdin.close()
    expect(look.el.locator(".smdw-run-status")).to_have_text("Ended")


def expect_query(look: Looking) -> None:
    """A regex selects rows of the map; an invalid one is underlined."""
    found = look.el.locator(".smdw-found")
    rows = look.el.locator(".smdw-map-row:not(.smdw-map-module)")
    look.query(r"/^(gradient\/)?net\/.*WEIGHT$/")
    expect(found).to_have_text("2 of 3 tensors")
    expect(rows).to_have_count(2)
    look.query("/net(/")
    expect(look.el.locator(".smdw-query-error")).to_contain_text("Invalid regular expression")
    expect(look.el.locator(".smdw-query-marks u")).to_have_text("(")
    expect(rows).to_have_count(2)
    look.query("")
    expect(found).to_be_hidden()


def test_query_ranks_tensors_and_shows_their_curves(lab, run):
    notebook = lab.open([show(run, "step=29"), "print('query:', w.query)", "w.query = 'weight | as histograms'"])
    look = Looking.at(notebook.run(0)).at_step(29)
    expect(look.el).to_contain_text("all read")  # the order by change is final
    expect_query(look)
    box = look.el.get_by_role("combobox", name="Query")
    box.press_sequentially("weight | t")
    expect(look.el.get_by_role("option", name="top")).to_be_visible()
    box.press("Tab")
    box.press_sequentially("cha")
    box.press("Tab")
    box.press_sequentially("| as cur")
    box.press("Tab")
    box.press("Enter")
    cells = look.el.get_by_role("option").and_(look.el.locator(".smdw-multiple"))
    expect(cells).to_have_count(2)
    notebook.expect_output(1, "query: weight | top 12 by change | as curves")
    # Without "≈": the kernel has answered the whole query, so that the cells keep their order.
    expect(look.el.locator(".smdw-found")).to_have_text("2 of 3 tensors")
    cells.nth(1).click()
    expect(cells.nth(1)).to_have_attribute("aria-selected", "true")
    expect(cells.nth(1)).to_have_class(re.compile("smdw-active"))
    notebook.run(2)
    expect(box).to_have_value("weight | as histograms")
    expect(cells.first.locator("b")).to_contain_text("\N{HORIZONTAL ELLIPSIS}")


HELD = """
import gc, ipywidgets, json, re, threading
gc.collect()
with open("/proc/self/status") as status:
    memory = int(re.search(r"RssAnon:\\s+(\\d+)", status.read())[1]) / 1024
print(json.dumps([len(ipywidgets.widgets.widget._instances), threading.active_count(), memory]))
"""


def object_counts(notebook: Notebook, cell: int) -> dict[str, float]:
    """Return what a kernel and a page keep after garbage collection."""
    widgets, threads, memory = json.loads(notebook.run(cell).text(cell))
    devtools = notebook.page.context.new_cdp_session(notebook.page)
    devtools.send("HeapProfiler.collectGarbage")
    devtools.send("Performance.enable")
    page = {each["name"]: each["value"] for each in devtools.send("Performance.getMetrics")["metrics"]}
    return {
        "widgets": widgets,
        "threads": threads,
        "memory": memory,
        "nodes": page["Nodes"],
        "listeners": page["JSEventListeners"],
        "heap": page["JSHeapUsedSize"] / 1e6,
    }


@pytest.mark.slow
def test_running_a_cell_again_keeps_the_view_and_leaks_nothing(lab, run):
    notebook = lab.open([show(run, "rules=['VanishingGradient']"), HELD, "w.step"], fresh=True)
    notebook.run(0)
    look = Looking.at(notebook)
    look.choose(runs.WEIGHT).go(13)
    notebook.expect_output(2, "13")
    before: dict[str, float] = {}
    for round_ in range(50):
        if round_ % 2:
            notebook.clear(0)
        notebook.run(0)
        if round_ == 9:
            Looking.at(notebook).at_step(13)
            before = object_counts(notebook, 1)
    look = Looking.at(notebook).at_step(13)
    expect(look.el.locator(".smdw-name")).to_have_text(runs.WEIGHT)
    assert notebook.page.locator(".smdw").count() == 1
    after = object_counts(notebook, 1)
    assert after["widgets"] == before["widgets"]
    # A thread kept by each of the 40 runs would be 40 more. The threads of pools and those that read begin and end.
    assert after["threads"] <= before["threads"] + 10, (before, after)
    assert after["memory"] <= before["memory"] + 40, (before, after)
    # The rest, a tenth of a megabyte per run, is a leak of JupyterLab: CommHandler of @jupyterlab/services connects a
    # listener to
    # its kernel's statusChanged and never disconnects it, so that every model stays in memory, with its style sheet.
    # A page never unloads a module either: one per run would be a megabyte.
    assert after["heap"] <= before["heap"] + 40 * 0.25, (before, after)
    # The browser frees objects at any time after garbage collection: the limit is far below 40 views.
    assert after["nodes"] <= before["nodes"] * 1.5, (before, after)
    assert after["listeners"] <= before["listeners"] * 1.5, (before, after)


@pytest.mark.slow
def test_click_on_a_firing_selects_its_step_and_tensor(lab, run):
    notebook = lab.open([show(run, "tensor='net/fc.weight', step=3, rules=['VanishingGradient']")]).run(0)
    look = Looking.at(notebook).at_step(3)
    lane = look.el.locator(".smdw-lane-rule")
    expect(lane.locator(".smdw-lane-count")).to_have_text("10 steps")
    lane.locator(".smdw-lane-button").click()
    lane.get_by_role("button", name=f"step {runs.VANISHES_AT}", exact=True).click()
    look.at_step(runs.VANISHES_AT)
    expect(look.el.locator(".smdw-name")).to_have_text(runs.GRADIENT)
    notebook.screenshot("rules-lab-light")


HOSTILE = '<img src=x onerror="window.pwned=1"><script>window.pwned=2</script>'


@pytest.mark.slow
def test_markup_in_names_and_texts_is_text(lab, tmp_path):
    run = runs.write(
        tmp_path / "<b onclick=alert(1)>&amp;",
        3,
        lambda step: {
            HOSTILE: (np.array([HOSTILE, "plain"]), HOSTILE),
            "n" * 100_000: (np.float32(step), "weights"),
        },
    )
    notebook = lab.open([show(run, f"tensor={HOSTILE!r}, panels=['values', 'rules']")]).run(0)
    look = Looking.at(notebook)
    expect(look.el.locator(".smdw-name")).to_have_text(HOSTILE)
    expect(look.panel("values").locator("[role=gridcell]").first).to_contain_text("<img")
    look.choose("nnnn")
    expect(look.el.locator(".smdw-name")).to_contain_text("n" * 200)
    assert look.el.locator("img, script, b[onclick]").count() == 0
    assert notebook.page.evaluate("() => window.pwned") is None


def test_exported_page_works_under_its_content_security_policy(browser, run, tmp_path, shots):
    import smdwidgets

    page_file = tmp_path / "page.html"
    widget = smdwidgets.explore(run, tensor=runs.WEIGHT, rules=["VanishingGradient"])
    assert widget.to_html(page_file) == page_file
    widget.close()
    asked, complaints = [], []
    page = browser.new_page(viewport={"width": 1100, "height": 900})
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(page_file.as_uri())
    look = Looking(page.locator(".smdw"))
    look.at_step(29).drag(0.9, 0.4)
    step = int(look.box.input_value())
    assert 8 <= step <= 16
    expect_histogram_of(look, runs.weight(step))
    look.keys("ArrowRight").at_step(step + 1)
    expect_histogram_of(look, runs.weight(step + 1))
    page.screenshot(path=str(shots / "page-light.png"))
    expect_query(look)
    page.close()
    # A worker of the scalar panel comes from a blob of the page.
    assert [url for url in asked if not url.startswith("blob:")] == [page_file.as_uri()]
    assert complaints == []
