"""Exports of a widget in a real browser: downloaded files, and copied Python code."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Locator, expect

import smdwidgets
from e2e import runs
from e2e.looking import Looking

#: Formulas for spreadsheets, and texts that resemble formulas.
FORMULAS = ["=1+1", "-2+3+cmd|' /C calc'!A0", "+SUM(A1:A9)", "@now", "plain, with a comma", "-5"]
NAME = '=HYPERLINK("http://localhost","loss")'


def tensors(step: int) -> dict[str, object]:
    return {
        **runs.tensors(step),
        "texts": (np.array(FORMULAS).reshape(3, 2), "texts"),
        NAME: (np.float32(2.0 / (step + 1)), "losses"),
        "wide": (np.random.default_rng(step).normal(0, 1, (3, 4, 5, 6)), "weights"),
    }


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return runs.write(tmp_path / "run", 12, tensors)


def downloaded(look: Looking, panel: str, what: str) -> bytes:
    """Select an export in a panel's menu; return the file that the browser saved."""
    _opened(look, panel)
    with look.page.expect_download() as waiting:
        look.panel(panel).get_by_role("button", name=what, exact=True).click()
    path = waiting.value.path()
    # A name that file systems and shells accept.
    assert waiting.value.suggested_filename.replace("-", "").replace("_", "").replace(".", "").isalnum()
    return Path(path).read_bytes()


def copied(look: Looking, panel: str) -> str:
    """Return the line that "Copy as Python" copies to the clipboard."""
    _opened(look, panel)
    look.panel(panel).get_by_role("button", name="Copy as Python", exact=True).click()
    expect(look.panel(panel).locator(".smdw-note")).to_have_text("Copied")
    line: str = look.page.evaluate("() => navigator.clipboard.readText()")
    return line


def _opened(look: Looking, panel: str) -> Locator:
    menu = look.panel(panel).locator(".smdw-menu")
    if not menu.is_visible():
        look.panel(panel).locator(".smdw-corner > button").click()
    return menu


def rows(data: bytes) -> list[list[str]]:
    return list(csv.reader(io.StringIO(data.decode("utf-8"))))


@pytest.mark.slow
def test_csv_export_contains_no_formula(lab, run):
    notebook = lab.open(
        [f"import smdwidgets\nw = smdwidgets.explore({str(run)!r}, tensor='texts', panels=['values', 'scalars'])\nw"]
    ).run(0)
    look = Looking.at(notebook).at_step(11)
    expect(look.panel("values").locator("[role=gridcell]").first).to_have_text(FORMULAS[0])
    table = rows(downloaded(look, "values", "CSV"))
    cells = [cell for row in table[1:] for cell in row[1:]]
    assert cells == ["'=1+1", "'-2+3+cmd|' /C calc'!A0", "'+SUM(A1:A9)", "'@now", "plain, with a comma", "-5"]

    expect(look.panel("scalars").locator(".smdw-legend")).to_contain_text(NAME)
    curves = rows(downloaded(look, "scalars", "CSV"))
    assert curves[0] == ["curve", "step", "value"]
    mine = [row for row in curves if "HYPERLINK" in row[0]]
    assert {row[0][0] for row in mine} == {"'"}
    assert [(int(step), float(value)) for _, step, value in mine] == [
        (step, pytest.approx(2.0 / (step + 1))) for step in range(12)
    ]


def test_exported_images_and_numbers_equal_the_display(lab, run):
    notebook = lab.open([f"import smdwidgets\nw = smdwidgets.explore({str(run)!r}, tensor={runs.WEIGHT!r})\nw"]).run(0)
    look = Looking.at(notebook).go(8)
    value = runs.weight(8)
    expect(look.panel("histogram").locator(".smdw-readout")).to_contain_text("min")
    for panel in ("histogram", "heatmap", "history", "statistics"):
        picture = Image.open(io.BytesIO(downloaded(look, panel, "PNG"))).convert("RGB")
        assert len(picture.getcolors(1 << 24)) > 10, panel
        drawing = downloaded(look, panel, "SVG").decode("utf-8")
        assert drawing.startswith("<svg")
        assert "<script" not in drawing
    table = rows(downloaded(look, "histogram", "CSV"))
    assert sum(int(row[2]) for row in table[1:]) == value.size
    table = rows(downloaded(look, "values", "CSV"))
    shown = np.array([[float(cell) for cell in row[1:]] for row in table[1:]], np.float32)
    assert np.array_equal(shown, value[: shown.shape[0], : shown.shape[1]])


# The whole expression is the user's input: it is typed into a cell of the notebook and run there.
TYPE = """([index, text]) => {
  window.jupyterapp.shell.currentWidget.content.widgets[index].model.sharedModel.setSource(text);
}"""


@pytest.mark.slow
def test_copied_python_line_returns_the_displayed_array(lab, run):
    show = "import smdwidgets\nw = smdwidgets.explore({!r}, tensor='wide', axes=[3, 1], fixed=[2, 0, 1, 0])\nw"
    notebook = lab.open([show.format(str(run)), ""])
    notebook.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    notebook.run(0)
    look = Looking.at(notebook).go(5)
    expect(look.panel("values").locator("[role=gridcell]").first).not_to_have_text("\u00b7")
    with smdwidgets.create_trial(run) as trial:
        value = trial.tensor("wide").value(5)
    for panel, expected in (
        ("histogram", value),
        ("heatmap", value[2, :, 1].T),
        ("values", value[2, :, 1].T),
    ):
        line = copied(look, panel)
        notebook.page.evaluate(TYPE, [1, f"import numpy\na = {line}\nprint(a.shape, float(numpy.asarray(a).sum()))"])
        printed = notebook.run(1).text(1)
        shape, total = printed.rsplit(maxsplit=1)
        assert shape == str(expected.shape), (panel, line)
        assert float(total) == pytest.approx(float(expected.sum())), (panel, line)
    for panel in ("history", "statistics"):
        line = copied(look, panel)
        notebook.page.evaluate(TYPE, [1, f"print(len({line}) > 0)"])
        assert notebook.run(1).text(1) == "True", (panel, line)
