"""Take the pictures of the README and the docs from the real widgets.

Usage: `python tools/pictures.py`.

The demo's training runs to its end, the explorer opens it, and headless Chromium draws it, light and dark, at twice the
usual pixel density.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot as plt
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

import smdwidgets
from smdwidgets.demo import training

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from e2e.chromium import launch  # noqa: E402

PICTURES = ROOT / "docs" / "pictures"
THEMES = ("light", "dark")
#: The global step of the learning rate spike, and the first step of the pictures.
SLIP = training.SLIP_AT * (training.EVALUATE_EVERY + 1) // training.EVALUATE_EVERY
#: What a reader can use in the pictures, by its words; a test looks for each in the front end's sources.
CONTROLS = PICTURES / "controls.json"
FRAMES = 24


def main() -> None:
    """Write all pictures."""
    mpl.use("agg")
    PICTURES.mkdir(exist_ok=True)
    with scratch(), chromium() as browser:
        training.train("runs/demo")
        plots()
        shown: set[str] = set()
        exported("explorer.html", inspect=False)
        for theme in THEMES:
            with opened(browser, "explorer.html", theme, density=2) as page:
                second_finding(page)
                shown |= controls(page)
                save(shot(page), f"explorer-{theme}")
        exported("drag.html", inspect=True)
        for theme in THEMES:
            with opened(browser, "drag.html", theme, density=1, width=1000) as page:
                second_finding(page)
                page.locator(".smdw-map-grid").get_by_text(
                    "weight", exact=True
                ).last.click()  # the gradient of the last layer
                page.get_by_text("Histogram", exact=True).first.wait_for()
                shown |= controls(page)
                save_moving(dragged(page), f"drag-{theme}")
        for name, width, more, prepare in scenes():
            with opened(browser, "explorer.html", "light", density=2, width=width, **more) as page:
                second_finding(page)
                prepare(page)
                page.mouse.move(0, 0)
                settle(page)
                shown |= controls(page)
                save(shot(page), name)
        CONTROLS.write_text(json.dumps(sorted(shown), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def plots() -> None:
    """The figure of the page on plots."""
    trial = smdwidgets.create_trial("runs/demo")
    weight = trial.tensor("fc1.weight")
    figure, axes = plt.subplots(2, 2, figsize=(9, 6), layout="constrained")
    weight.plot.histogram(SLIP, ax=axes[0, 0])
    weight.plot.heatmap(SLIP + 12, ax=axes[0, 1])
    weight.plot.distribution(ax=axes[1, 0])
    trial.plot.scalars("loss", ax=axes[1, 1])
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=200)
    save(Image.open(drawn).convert("RGB"), "plots")


@contextlib.contextmanager
def scratch() -> Iterator[None]:
    """Change to an empty directory, so that pictures show a relative path."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """The Chromium that the tests use."""
    with sync_playwright() as driver:
        browser = launch(driver)
        yield browser
        browser.close()


def exported(file: str, **state: Any) -> None:
    """Write the explorer on the demo's run as a page."""
    with smdwidgets.create_trial("runs/demo") as trial:
        widget = smdwidgets.explore(trial, **state)
        widget.to_html(file)
        widget.close()


@contextlib.contextmanager
def opened(browser: Browser, file: str, theme: str, density: int, width: int = 1080, **more: Any) -> Iterator[Page]:
    """The page, rendered."""
    page = browser.new_page(
        viewport={"width": width, "height": 760},
        device_scale_factor=density,
        color_scheme=theme,  # type: ignore[arg-type]
        **more,
    )
    page.goto(Path(file).absolute().as_uri())
    page.locator(".smdw canvas").first.wait_for()
    settle(page)
    yield page
    page.close()


def second_finding(page: Page) -> None:
    """Go to the second finding: row and step of the learning rate's jump."""
    page.get_by_role("button", name="Next finding").click()
    page.get_by_role("button", name="The learning rate jumps").wait_for()
    settle(page)


def show_inspector(page: Page) -> None:
    """The pictures of a weight at the step of the finding."""
    row = page.locator(".smdw-map-row:not(.smdw-map-module)").get_by_text("weight", exact=True)
    row.first.click()
    page.locator(".smdw-explorer").focus()
    page.keyboard.press("Enter")  # opens it, or leaves it open
    page.get_by_text("Histogram", exact=True).first.wait_for()
    page.locator(".smdw-panel-heatmap canvas").first.wait_for()


def show_compare(page: Page) -> None:
    """The same weight, beside its values twenty steps later."""
    show_inspector(page)
    page.locator(".smdw-explorer").focus()
    page.keyboard.press("c")
    box = page.locator(".smdw-step-box")
    box.fill(str(SLIP + 20))
    box.press("Enter")
    page.get_by_role("button", name="A|B").click()
    page.get_by_text("Values: A above, B below").wait_for()


def show_query(page: Page) -> None:
    """The four tensors that change most."""
    box = page.get_by_role("combobox", name="Query")
    box.fill("| top 4 by change")
    box.press("Enter")
    page.locator(".smdw-map-row").nth(3).wait_for()


def scenes() -> list[tuple[str, int, dict[str, Any], Callable[[Page], None]]]:
    """Return name, width, page options and preparation of further pictures."""
    return [
        ("inspector", 1080, {}, show_inspector),
        ("compare", 1080, {}, show_compare),
        ("query", 1080, {}, show_query),
        ("narrow", 640, {}, settle),
        ("forced", 1080, {"forced_colors": "active"}, settle),
    ]


def controls(page: Page) -> set[str]:
    """Return the words on the controls that the page shows, but not those of its run."""
    words: list[str] = page.evaluate("""() => [...document.querySelectorAll(".smdw button, .smdw input, .smdw select")]
        .filter(control => control.offsetParent && !control.matches(".smdw-link, [aria-label$=' menu']"))
        .map(control => control.placeholder || control.getAttribute("aria-label") || control.innerText.split("\\n")[0])""")
    # The choice of B names a step of the run.
    return {word.strip() for word in words if len(word.strip()) > 1 and not word.startswith("B = ")}


def settle(page: Page) -> None:
    """Everything requested is drawn two frames later."""
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


def shot(page: Page) -> Image.Image:
    """Return a picture of the widget.

    The directory of the run is hidden: it is specific to this program.

    """
    page.evaluate("() => { document.querySelector('.smdw-run-name').textContent = 'runs/demo'; }")
    return Image.open(io.BytesIO(page.locator(".smdw").first.screenshot())).convert("RGB")


def dragged(page: Page) -> list[Image.Image]:
    """Return the frames of a drag across the step of the learning rate spike."""
    track = page.locator(".smdw-axis .smdw-track").first.bounding_box()
    assert track is not None
    y = track["y"] + track["height"] / 2
    page.mouse.move(track["x"] + 0.3 * track["width"], y)
    page.mouse.down()
    frames = []
    last = training.STEPS * (training.EVALUATE_EVERY + 1) // training.EVALUATE_EVERY - 1
    for number in range(FRAMES):
        step = round((0.3 + 0.6 * number / (FRAMES - 1)) * last)
        step -= step % (training.EVALUATE_EVERY + 1) == training.EVALUATE_EVERY  # has no weights
        page.mouse.move(track["x"] + step / last * track["width"], y)
        settle(page)
        frames.append(shot(page))
    page.mouse.up()
    return frames


def save(picture: Image.Image, name: str) -> None:
    """Lossless, and small."""
    path = PICTURES / f"{name}.webp"
    picture.save(path, lossless=True, quality=100, method=6)
    print(f"{path.relative_to(ROOT)}: {picture.width} x {picture.height}, {path.stat().st_size / 1e3:.0f} kB")


def save_moving(frames: list[Image.Image], name: str) -> None:
    """Forward and back, in an endless loop."""
    path = PICTURES / f"{name}.webp"
    there_and_back = frames + frames[-2:0:-1]
    there_and_back[0].save(
        path, save_all=True, append_images=there_and_back[1:], duration=100, loop=0, quality=60, method=5
    )
    print(f"{path.relative_to(ROOT)}: {len(there_and_back)} frames, {path.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
