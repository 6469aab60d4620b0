"""The first notebook in a real JupyterLab, on a run that has just been written."""

import pytest

from smdwidgets import demo
from smdwidgets.demo import training


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_first_notebook_shows_the_run(lab, dark):
    folder = lab.server.files / f"demo-{'dark' if dark else 'light'}"
    folder.mkdir()
    training.train(folder / "runs" / "demo")
    source = demo.notebooks() / "01_look_around.ipynb"
    notebook = lab.open(source, folder=folder.name, size=(1280, 1400), dark=dark)
    # The run is there: the notebook looks at it in place of starting one.
    notebook.page.evaluate(
        """() => window.jupyterapp.shell.currentWidget.content.widgets.forEach(cell => {
             const model = cell.model.sharedModel;
             model.setSource(model.getSource().replace("demo.run()", "'runs/demo'"));
           })"""
    )
    cells = notebook.page.evaluate("() => window.jupyterapp.shell.currentWidget.content.widgets.map(w => w.model.type)")
    for index, kind in enumerate(cells):
        if kind == "code":
            notebook.run(index)
    notebook.page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .smdw").first.wait_for(timeout=20_000)
    notebook.page.wait_for_timeout(1500)
    notebook.page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .smdw").first.scroll_into_view_if_needed()
    notebook.screenshot(f"demo-{'dark' if dark else 'light'}")
    assert "moved by 0.0" in notebook.page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Notebook").inner_text()
    assert notebook.page.locator(".smdw canvas").count() > 0
