"""The Run Map in a notebook."""

from __future__ import annotations

import io
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import expect

import smdwidgets.numpy as smd
from e2e.jupyter import Notebook
from e2e.looking import until

STEPS, STEP = 2000, 1371
NAN = "layers.1.q_proj.weight"
VIOLET = (150, 0, 255)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """More steps than the map has bins; one weight turns NaN."""
    root = tmp_path_factory.mktemp("runs") / "run"
    rng = np.random.default_rng(0)
    names = [f"layers.{i}.{part}_proj.weight" for i in range(12) for part in "qkv"]
    with smd.Hook(root) as hook:
        for step in range(STEPS):
            for name in names:
                value = rng.normal(0, 0.1, 16).astype(np.float32)
                if name == NAN and step >= STEP:
                    value[:3] = np.nan
                hook.save_tensor(name, value, "weights")
            hook.step()
    return root


class RunMap:
    """The map of a widget on a page."""

    def __init__(self, notebook: Notebook) -> None:
        self.el = notebook.output(0).locator(".smdw-map")
        self.page = self.el.page
        expect(self.el.locator(".smdw-map-row").first).to_be_visible()

    @property
    def plot(self) -> dict[str, float]:
        box = self.el.locator(".smdw-map-plot").bounding_box()
        assert box is not None
        return dict(box)

    def x(self, step: int, first: float = -0.5, last: float = STEPS - 0.5) -> float:
        """Return the position of a step on the page."""
        return self.plot["x"] + (step - first) / (last - first) * self.plot["width"]

    def y(self, label: str) -> float:
        """Return the middle of a row on the page."""
        box = self.el.locator(".smdw-map-row", has_text=label).first.bounding_box()
        assert box is not None
        return box["y"] + box["height"] / 2

    def drawn(self) -> None:
        """Wait until the current state is painted."""
        self.page.evaluate("() => new Promise((on) => requestAnimationFrame(() => requestAnimationFrame(() => on())))")

    def colour(self, x: float, y: float) -> tuple[int, ...]:
        """Return the colour of a point of the page."""
        clip = {"x": round(x), "y": round(y), "width": 1, "height": 1}
        shot = Image.open(io.BytesIO(self.page.screenshot(clip=clip))).convert("RGB")
        return shot.getpixel((0, 0))


def test_nan_is_violet_at_its_step_and_a_look_around_sends_nothing(lab, run):
    notebook = lab.open(
        [f"import smdwidgets\nw = smdwidgets.explore({str(run)!r})\nw", "(w.tensor, w.step, w.inspect)"],
        fresh=True,
    )
    notebook.run(0)
    seen = RunMap(notebook)
    page = seen.page
    expect(seen.el.locator(".smdw-map-nan").first).to_be_visible()
    # It opens on the first finding, and asks for its tensor.
    row = seen.el.locator(".smdw-map-row", has_text="q_projNaN").or_(
        seen.el.locator(".smdw-map-row", has_text="q_proj.weightNaN")
    )
    expect(row).to_be_visible()
    # The line of the shown step, which is that of the NaN, covers the pixels beside it.
    expect(notebook.output(0).locator(".smdw-step-box")).to_have_value(str(STEP))
    for step in (STEP + 12, STEP + 300, STEPS - 10):
        until(lambda step=step: seen.colour(seen.x(step), seen.y("q_proj.weightNaN")) == VIOLET, step)
    assert seen.colour(seen.x(STEP - 20), seen.y("q_proj.weightNaN")) != VIOLET
    notebook.screenshot("run-map")

    # All that is needed has been requested once the page rests.
    page.wait_for_timeout(2000)

    page.evaluate(
        """() => {
            const send = WebSocket.prototype.send;
            window.sentWhileLooking = [];
            WebSocket.prototype.send = function (data) {
              const text = data instanceof ArrayBuffer ? new TextDecoder().decode(data) : String(data);
              if (text.includes('comm_msg')) window.sentWhileLooking.push(text);
              return send.call(this, data);
            };
        }"""
    )
    for step in range(200, 1900, 60):
        page.mouse.move(seen.x(step), seen.y("q_proj.weightNaN"))
    page.mouse.move(seen.x(STEP + 2), seen.y("q_proj.weightNaN"))
    line = notebook.output(0).locator(".smdw-hover")
    expect(line).to_contain_text("NaN")
    sent = page.evaluate("() => window.sentWhileLooking")
    assert sent == []

    height = seen.y("q_proj.weightNaN")
    page.mouse.move(seen.x(STEP), height)
    page.keyboard.down("Control")
    for _ in range(4):  # about 300 steps remain in view, so that no two share a pixel
        page.mouse.wheel(0, -120)
    page.keyboard.up("Control")
    expect(line).not_to_contain_text("\u2013")  # bins of single steps have come

    ends = seen.plot["x"], seen.plot["x"] + seen.plot["width"]
    low, high = ends

    def at_the_step() -> bool:
        nonlocal low, high
        if high - low < 1:  # a line that lagged behind the pointer has misled the search
            low, high = ends
        middle = (low + high) / 2
        page.mouse.move(middle, height)
        seen.drawn()
        shown = re.search(r"step ([\d,]+) ", line.inner_text())
        step = int(shown[1].replace(",", "")) if shown else -1
        low, high = (middle, high) if step < STEP else (low, middle)
        return step == STEP

    until(at_the_step, line.inner_text)
    expect(line).to_contain_text(f"step {STEP:,} ")
    page.mouse.down()
    page.mouse.up()
    page.mouse.move(0, 0)
    expect(notebook.output(0).locator(".smdw-name").first).to_contain_text("q_proj.weight")
    notebook.screenshot("run-map-inspector")
    notebook.expect_output(1, f"('{NAN}', {STEP}, True)")
