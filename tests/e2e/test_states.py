"""Pictures of every state of a widget, for review in .cache/gallery."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

import smdwidgets
from e2e import runs
from e2e.jupyter import Jupyter, Notebook
from e2e.looking import Looking
from e2e.test_explorer import busy_until

pytestmark = pytest.mark.slow

#: Every state that a widget can be in.
STATES = (
    "empty run",
    "loading",
    "live",
    "ended",
    "replaced",
    "damaged",
    "removed",
    "not judged",
    "kernel busy",
    "kernel gone",
    "version mismatch",
    "saved page",
)
SIZE = (1500, 1700)
PANELS = ["histogram", "heatmap", "history", "statistics"]
SHOW = "import smdwidgets\nw = smdwidgets.explore({run!r}, tensor='net/fc.weight', panels={panels}, rules={rules})\nw"
HOOK = "import numpy as np, smdwidgets, smdwidgets.numpy as smd\nhook = smd.Hook({run!r})\n"

Scene = Callable[[Jupyter, Path], Notebook]
SCENES: dict[str, Scene] = {}


def scene(name: str) -> Callable[[Scene], Scene]:
    """Register the function that opens a notebook whose first cell is in a state."""

    def register(make: Scene) -> Scene:
        SCENES[name] = make
        return make

    return register


def show(run: Path, rules: list[str] | None = None) -> str:
    panels = PANELS if rules is None else [*PANELS, "rules"]
    return SHOW.format(run=str(run), panels=panels, rules=rules or [])


@scene("empty run")
def _(lab: Jupyter, folder: Path) -> Notebook:
    # A hook writes nothing before the first step; TensorBoard's writer begins a file.
    run = str(folder / "run")
    begin = f"import smdwidgets, tensorboardX\nlog = tensorboardX.SummaryWriter({run!r})\nlog.flush()\n"
    notebook = lab.open(size=SIZE, cells=[begin + f"w = smdwidgets.explore({run!r})\nw"]).run(0)
    expect(Looking.at(notebook).el).to_contain_text("0 steps")
    return notebook


@scene("loading")
def _(lab: Jupyter, folder: Path) -> Notebook:
    slow = (
        "import os, time\nfrom smdwidgets.widgets.tensor_requests import FrameStream, TensorRequests\n"
        "def slow(self, request, reply):\n"
        "    wanted = None\n"
        "    reply.part([FrameStream(self._view(request), self._about(request), wanted).plan()])\n"
        "    while not reply.cancelled.is_set():\n"
        "        reply.progress(0, 30)\n"
        "        time.sleep(0.2)\n"
        "TensorRequests._frames = slow\n"
    )
    notebook = lab.open(size=SIZE, cells=[slow + show(runs.write(folder / "run"))]).run(0)
    expect(Looking.at(notebook).panel("histogram")).to_contain_text("0 of 30")
    return notebook


@scene("live")
def _(lab: Jupyter, folder: Path) -> Notebook:
    run = folder / "run"
    save = (
        "for step in range(40):\n"
        "    hook.save_tensor('net/fc.weight', np.random.default_rng(0).normal(0, 1 + step / 40, (12, 16)), 'weights')\n"
        "    hook.save_tensor('loss', 1 / (step + 1), 'losses')\n"
        "    hook.step()\n"
    )
    notebook = lab.open(size=SIZE, cells=[HOOK.format(run=str(run)) + save + show(run)]).run(0)
    look = Looking.at(notebook)
    expect(look.el.locator(".smdw-run-status")).to_have_text("Running")
    look.at_step(39)
    look.has_steps(40)
    return notebook


def ended(lab: Jupyter, folder: Path, *more: str, rules: list[str] | None = None, kernel: str = "python3") -> Notebook:
    notebook = lab.open(size=SIZE, cells=[show(runs.write(folder / "run"), rules), *more], kernel=kernel).run(0)
    look = Looking.at(notebook).at_step(29)
    look.has_steps(30)
    return notebook


@scene("ended")
def _(lab: Jupyter, folder: Path) -> Notebook:
    return ended(lab, folder, rules=["VanishingGradient"])


@scene("replaced")
def _(lab: Jupyter, folder: Path) -> Notebook:
    run = str(folder / "run")
    again = (
        f"import numpy as np, smdwidgets.numpy as smd\nwith smd.Hook({run!r}, overwrite=True) as hook:\n"
        "    for step in range(8):\n"
        "        hook.save_tensor('net/fc.weight', np.random.default_rng(step).normal(size=(12, 16)), 'weights')\n"
        "        hook.step()\n"
    )
    notebook = ended(lab, folder, again)
    notebook.run(1)
    look = Looking.at(notebook)
    expect(look.el).to_contain_text("This run was started again at")
    look.has_steps(8)
    return notebook


@scene("damaged")
def _(lab: Jupyter, folder: Path) -> Notebook:
    run = runs.write(folder / "run")
    for file in (run / "events").glob("*/*29_*"):
        content = bytearray(file.read_bytes())
        content[len(content) // 3] ^= 1
        file.write_bytes(content)
    notebook = lab.open(size=SIZE, cells=[show(run)]).run(0)
    expect(Looking.at(notebook).el.locator(".smdw-from")).to_contain_text("checksum")
    return notebook


@scene("removed")
def _(lab: Jupyter, folder: Path) -> Notebook:
    notebook = ended(lab, folder)
    shutil.rmtree(folder / "run")
    expect(Looking.at(notebook).el.locator(".smdw-run-status")).to_have_text("Missing")
    return notebook


@scene("not judged")
def _(lab: Jupyter, folder: Path) -> Notebook:
    notebook = ended(lab, folder, rules=["DeadRelu", "VanishingGradient"])
    status = Looking.at(notebook).rules().locator(".smdw-status")
    expect(status.first).to_contain_text("Not judged")
    expect(status.last).to_contain_text("Found")
    return notebook


@scene("kernel busy")
def _(lab: Jupyter, folder: Path) -> Notebook:
    notebook = ended(lab, folder, busy_until(folder / "stop"), kernel="one-thread")
    notebook.run(1, wait=False)
    look = Looking.at(notebook)
    expect(notebook.prompt(1)).to_have_text("[*]:")
    look.choose(runs.GRADIENT)
    expect(look.panel("histogram")).to_contain_text("Kernel busy")
    return notebook


@scene("kernel gone")
def _(lab: Jupyter, folder: Path) -> Notebook:
    notebook = ended(lab, folder)
    notebook.restart()
    look = Looking.at(notebook)
    look.choose(runs.GRADIENT).drawn()
    expect(look.el).to_contain_text(re.compile("run the cell again", re.I))
    return notebook


@scene("version mismatch")
def _(lab: Jupyter, folder: Path) -> Notebook:
    source = show(runs.write(folder / "run")).replace("\nw", "\nw._protocol = 99\nw")
    notebook = lab.open(size=SIZE, cells=[source.replace("\nw._protocol = 99\nw =", "\nw =", 1)]).run(0)
    expect(Looking.at(notebook).el).to_contain_text("Reload the page")
    return notebook


def test_gallery_shows_every_state_once():
    assert {*SCENES, "saved page"} == set(STATES)


@pytest.fixture(scope="module")
def gallery(repository: Path) -> Path:
    folder = repository / ".cache" / "gallery"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def no_text_overflows(page: Page) -> bool:
    """Whether no widget is wider than its place."""
    fits: bool = page.evaluate(
        "() => [...document.querySelectorAll('.smdw')].every((el) => el.scrollWidth <= el.clientWidth)"
    )
    return fits


@pytest.mark.parametrize("name", [name for name in STATES if name != "saved page"])
def test_state_in_light_and_dark(lab, tmp_path, gallery, name):
    notebook = SCENES[name](lab, tmp_path)
    try:
        for theme in ("Light", "Dark"):
            notebook.theme(f"JupyterLab {theme}")
            look = Looking.at(notebook)
            look.el.evaluate("(el) => el.scrollIntoView()")
            look.drawn().drawn()
            assert no_text_overflows(notebook.page)
            look.el.screenshot(path=str(gallery / f"{name.replace(' ', '-')}-{theme.lower()}.png"))
    finally:
        (tmp_path / "stop").touch()
    notebook.errors.clear()  # of connections to a kernel that was restarted


def test_saved_page_in_light_and_dark(browser, tmp_path, gallery):
    explorer = smdwidgets.explore(runs.write(tmp_path / "run", 200), tensor=runs.WEIGHT, panels=PANELS)
    explorer.to_html(tmp_path / "page.html", limit=600_000)
    explorer.close()
    for theme in ("light", "dark"):
        context = browser.new_context(viewport={"width": 1000, "height": 800}, color_scheme=theme)
        page = context.new_page()
        page.goto((tmp_path / "page.html").as_uri())
        look = Looking(page.locator(".smdw-page"))
        expect(look.panel("histogram").locator(".smdw-readout")).to_contain_text("mean")
        assert no_text_overflows(page)
        look.drawn().el.screenshot(path=str(gallery / f"saved-page-{theme}.png"))
        context.close()


#: How a page is looked at: colour scheme, forced colours, and a simulated kind of vision.
VIEWS = {
    "light": ("light", False, "none"),
    "dark": ("dark", False, "none"),
    "forced": ("light", True, "none"),
    "deuteranopia": ("light", False, "deuteranopia"),
}


@pytest.fixture(scope="module")
def troubled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved page of a run in which a layer turns NaN."""
    folder = tmp_path_factory.mktemp("troubled")
    rules = ["ExplodingTensor", "VanishingGradient", "LossNotDecreasing", "DeadRelu"]
    explorer = smdwidgets.explore(runs.transformer(folder / "run"), rules=rules)
    explorer.to_html(folder / "page.html")
    explorer.close()
    return folder / "page.html"


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("width", [1440, 900, 500])
def test_explorer_of_a_troubled_run(browser, troubled, gallery, width, view):
    scheme, forced, vision = VIEWS[view]
    context = browser.new_context(
        viewport={"width": width, "height": 680}, color_scheme=scheme, forced_colors="active" if forced else "none"
    )
    page = context.new_page()
    context.new_cdp_session(page).send("Emulation.setEmulatedVisionDeficiency", {"type": vision})
    page.goto(troubled.as_uri())
    look = Looking(page.locator(".smdw-page"))
    explorer = look.el.locator(".smdw-explorer")
    expect(look.el.locator(".smdw-map-row", has_text="NaN").first).to_be_visible()
    look.drawn().drawn()
    page.screenshot(path=str(gallery / f"explorer-{width}-{view}-survey.png"))
    height = explorer.bounding_box()["height"]
    # The tensor of the finding is one click away, with its pictures.
    look.el.locator(".smdw-diagnosis .smdw-link").first.click()
    explorer.focus()
    expect(look.el.locator(".smdw-name")).not_to_be_empty()
    expect(look.el.locator(".smdw-picture").first).to_be_visible()
    expect(look.panel("histogram").locator(".smdw-readout")).not_to_be_empty()
    look.drawn().drawn()
    page.screenshot(path=str(gallery / f"explorer-{width}-{view}-inspect.png"))
    assert explorer.bounding_box()["height"] == height == 600
    assert no_text_overflows(page)
    context.close()
