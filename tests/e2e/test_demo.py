"""The demo's notebook in a real JupyterLab, on a run that has just been written."""

from importlib import resources

from smdwidgets.demo import training


def test_the_first_notebook_shows_the_run(lab):
    folder = lab.server.files / "demo"
    folder.mkdir()
    training.train(folder / "run", seconds=4)
    with resources.as_file(resources.files("smdwidgets.demo") / "look_around.ipynb") as path:
        notebook = lab.open(path, folder="demo", size=(1280, 1400))
    cells = notebook.page.evaluate("() => window.jupyterapp.shell.currentWidget.content.widgets.map(w => w.model.type)")
    for index, kind in enumerate(cells):
        if kind == "code":
            notebook.run(index)
    notebook.page.locator(".smdw").first.wait_for(timeout=20_000)
    notebook.page.wait_for_timeout(1500)
    notebook.page.locator(".smdw").first.scroll_into_view_if_needed()
    notebook.screenshot("demo-light")
    assert "0 of 48 units active" in notebook.page.locator(".jp-Notebook").inner_text()
    assert notebook.page.locator(".smdw canvas").count() > 0
