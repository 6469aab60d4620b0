"""The first three notebooks in a real JupyterLab, on a new run."""

import re
import shutil

import pytest
from playwright.sync_api import expect

from e2e.looking import Looking
from smdwidgets import demo
from smdwidgets.demo import training

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The demo's run, ended."""
    run = tmp_path_factory.mktemp("demo") / "run"
    training.train(run)
    return run


@pytest.fixture
def opened(lab, written, request):
    """Open a notebook next to the run, which it reads instead of starting a training.

    Then run it from top to bottom.
    """

    def open_and_run(name, *, dark=False):
        folder = lab.server.files / request.node.name.translate(str.maketrans("[]", "--"))
        shutil.copytree(written, folder / "runs" / "demo")
        notebook = lab.open(demo.notebooks() / name, folder=folder.name, size=(1280, 1400), dark=dark)
        notebook.page.evaluate(
            """() => window.jupyterapp.shell.currentWidget.content.widgets.forEach(cell => {
                 const model = cell.model.sharedModel;
                 model.setSource(model.getSource().replace("demo.run()", "'runs/demo'"));
               })"""
        )
        kinds = "() => window.jupyterapp.shell.currentWidget.content.widgets.map(cell => cell.model.type)"
        for index, kind in enumerate(notebook.page.evaluate(kinds)):
            if kind == "code":
                notebook.run(index)
        return notebook

    return open_and_run


def looked_at(notebook, name, nth=0):
    """Return a widget of the notebook, drawn; save a screenshot for review."""
    widget = notebook.page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .smdw").nth(nth)
    widget.wait_for()
    widget.scroll_into_view_if_needed()
    expect(widget.locator("canvas").first).to_be_visible()
    notebook.page.wait_for_timeout(1000)
    notebook.screenshot(name)
    return Looking(widget)


def text_of(notebook):
    return notebook.page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Notebook").inner_text()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_first_notebook_displays_the_run(opened, dark):
    notebook = opened("01_look_around.ipynb", dark=dark)
    look = looked_at(notebook, f"demo-{'dark' if dark else 'light'}")
    assert "changed by 0.0" in text_of(notebook)
    look.drag(0.9, 0.3)
    assert int(look.box.input_value()) < 200


def test_second_notebook_displays_the_training_of_its_kernel(opened):
    notebook = opened("02_live_training.ipynb")
    look = looked_at(notebook, "live-training")
    expect(look.box).to_have_value("200")
    assert "201 steps; loss" in text_of(notebook)
    # The loss curve has grown too: its value at the last step is almost zero.
    expect(look.panel("scalars")).to_contain_text("loss at step 200: 4.264e−15")


def test_third_notebook_displays_rules_and_findings(opened):
    notebook = opened("03_rules.ipynb")
    look = looked_at(notebook, "rules-notebook")
    rules = look.rules()
    expect(rules).to_have_count(3)
    expect(rules.first.locator(".smdw-status")).to_contain_text("Found")
    assert "unchanged over its last" in text_of(notebook)


@pytest.mark.parametrize(
    ("name", "cell"), [("02_live_training.ipynb", 2), ("04_smdebug_run_on_s3.ipynb", 4)], ids=["live training", "S3"]
)
def test_run_all_shows_the_tensor_of_a_widget(lab, name, cell):
    notebook = lab.open(demo.notebooks() / name, size=(1280, 1000))
    notebook.run_all()
    look = Looking.at(notebook, cell)
    expect(look.panel("history")).to_contain_text("steps loaded")
    expect(look.panel("histogram").locator(".smdw-readout")).to_contain_text("mean")
    # Also after the last cell.
    codes = notebook.page.locator(".jp-Notebook .jp-CodeCell")
    expect(codes.last.locator(".jp-InputPrompt")).to_have_text(re.compile(r"\[\d+\]:"), timeout=120_000)
    steps = re.compile(r"\d{2,} steps loaded")
    expect(look.panel("history")).to_contain_text(steps)
    look.keys("Home").at_step(0)
    expect(look.panel("histogram").locator(".smdw-readout")).to_contain_text("mean")
    notebook.screenshot(f"run-all-{name[:2]}", cell)
