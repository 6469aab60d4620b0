"""A copied line opens the same view in a new kernel, for a colleague."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from e2e import runs
from e2e.looking import Looking
from e2e.test_explorer import expect_histogram_of

pytestmark = pytest.mark.slow

# The whole text is the user's input: it is typed into a cell of the notebook.
TYPE = """([index, text]) => {
  window.jupyterapp.shell.currentWidget.content.widgets[index].model.sharedModel.setSource(text);
}"""


def test_copied_view_opens_in_another_kernel(lab, tmp_path):
    run = runs.write(tmp_path / "run")
    notebook = lab.open(
        [f"import smdwidgets\nw = smdwidgets.explore({str(run)!r})\nw", "", "(w.tensor, w.step, w.range)"]
    )
    notebook.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    notebook.run(0)
    look = Looking.at(notebook).choose(runs.WEIGHT).go(12)
    notebook.page.evaluate(TYPE, [1, "w.range = [5, 25]"])
    notebook.run(1)
    # Two actions: open the menu, and copy.
    look.el.locator("button", has_text="Export").click()
    look.el.get_by_role("button", name="Copy this view", exact=True).click()
    expect(look.el.locator(".smdw-actions [role=status]").first).to_have_text("Copied")
    line = notebook.page.evaluate("() => navigator.clipboard.readText()")
    assert re.fullmatch(r'smdwidgets\.explore\("[^"]+", state="smdw2\.[\w-]+"\)', line)

    notebook.restart()
    # The third action, of the colleague: run the line.
    notebook.page.evaluate(TYPE, [0, f"import smdwidgets\nw = {line}\nw"])
    notebook.run(0)
    look = Looking.at(notebook).at_step(12)
    expect(look.el.locator(".smdw-name")).to_have_text(runs.WEIGHT)
    expect_histogram_of(look, runs.weight(12))
    notebook.run(2)
    notebook.expect_output(2, f"('{runs.WEIGHT}', 12, [5.0, 25.0])")
    notebook.screenshot("shared-view", 0)
