"""Incidents of a live run as marks on the axis of steps, with screenshots."""

from __future__ import annotations

import io
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import expect

from e2e.jupyter import Jupyter
from e2e.looking import Looking, until

pytestmark = pytest.mark.slow

TRAIN = """
import numpy as np, smdwidgets
from smdwidgets.numpy import Hook
hook = Hook({run!r}, overwrite=True)
def train(steps, nan_at=None):
    for step in range(steps):
        rng = np.random.default_rng(step)
        values = {{name: rng.normal(size=(12, 16)).astype(np.float32) for name in ("w", "x", "y", "gradient/w")}}
        if step == nan_at:
            values["y"][2, 3] = np.nan
        for name, collection in zip(values, ("weights", "inputs", "outputs", "gradients")):
            hook.save_tensor(name, values[name], collection)
        hook.step()
train(20)
w = smdwidgets.explore({run!r}, tensor="y", rules=["ExplodingTensor"])
w
"""
AGAIN = "hook.close()\nhook = Hook({run!r}, overwrite=True)\ntrain(10)"


@pytest.mark.parametrize("theme", ["JupyterLab Light", "JupyterLab Dark", "JupyterLab Dark High Contrast"])
def test_incident_of_a_live_run_is_marked_and_described(lab: Jupyter, tmp_path: Path, theme: str) -> None:
    run = str(tmp_path / "run")
    notebook = lab.open([TRAIN.format(run=run), "train(40, nan_at=17)", AGAIN.format(run=run)], dark="Dark" in theme)
    notebook.theme(theme)
    notebook.run(0)
    look = Looking.at(notebook).at_step(19)
    incidents = look.el.get_by_role("list", name="Incidents", include_hidden=True).locator("li")
    expect(incidents).to_have_count(0)
    notebook.run(1)
    expect(incidents).to_have_count(1)
    text = incidents.inner_text()
    assert text.startswith("Incident at step 37: NaN in 'y'; whole tensors of steps "), text
    look.at_step(59).go(37)
    # The text names the steps that were saved, which are more while the run grows.
    expect(look.track).to_have_attribute("aria-valuetext", re.compile(r"saved\. Incident at step 37: NaN in 'y'"))
    text = incidents.inner_text()
    expect(look.track).to_have_attribute("aria-valuetext", re.compile(re.escape(f"saved. {text}") + "$"))
    look.track.hover(position={"x": look.place(37), "y": 10}, force=True)
    expect(look.track).to_have_attribute("title", text)
    look.leave()
    look.go(19)
    name = theme.removeprefix("JupyterLab ").lower().replace(" ", "-")
    notebook.screenshot(f"incident-{name}")
    notebook.run(2)
    expect(look.el).to_contain_text("This run was started again at")
    expect(incidents).to_have_count(0)


def test_incident_is_marked_with_forced_colours(lab: Jupyter, tmp_path: Path) -> None:
    run = str(tmp_path / "run")
    notebook = lab.open([TRAIN.format(run=run), "train(40, nan_at=17)"], fresh=True)
    notebook.page.emulate_media(forced_colors="active")
    notebook.run(0)
    look = Looking.at(notebook)
    notebook.run(1)
    expect(look.el.get_by_role("list", name="Incidents").locator("li")).to_have_count(1)
    look.at_step(59).go(19)
    x = round(look.place(37))

    def is_marked() -> bool:
        """Whether a diamond, wider than a tick, differs clearly from the background."""
        pixels = np.asarray(Image.open(io.BytesIO(look.track.screenshot())).convert("RGB")).astype(int)
        return bool((abs(pixels[4, x - 2 : x + 3] - pixels[18, x + 9]).sum(axis=1) > 150).all())

    until(is_marked, "no diamond at step 37")
    notebook.screenshot("incident-forced-colours")
