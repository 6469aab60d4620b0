"""Steps of which only a sample was kept, in JupyterLab and in a saved page."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, expect

import smdwidgets
from e2e.looking import Looking, until
from smdwidgets.numpy import Hook

SAMPLED = re.compile(r"from a sample of 4,096 of 102,400 elements")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("samples") / "run"
    random = np.random.default_rng(0)
    with Hook(path, plan={"budget": "4MB"}) as hook:
        for step in range(60):
            hook.save_scalar("loss", 1 / (step + 1))
            hook.save_tensor("w", random.normal(step / 20, 1, (200, 512)).astype(np.float32), "weights")
            hook.step()
    return path


def steps_of(run: Path) -> tuple[int, int]:
    """Return a step with a value, and a later one with a sample only."""
    with smdwidgets.create_trial(run) as trial:
        w = trial.tensor("w")
        whole = w.steps_with_value()[-2]
        return whole, next(step for step in w.sample_steps() if step > whole and step not in w.steps_with_value())


def expect_sample(look: Looking, whole: int, sampled: int) -> None:
    look.go(whole).at_step(whole)
    expect(look.el.locator(".smdw-from")).to_have_text("")
    look.go(sampled).at_step(sampled)
    expect(look.el.locator(".smdw-from")).to_have_text(SAMPLED)
    expect(look.panel("histogram").locator("p.smdw-sr").first).to_have_text(SAMPLED)
    expect(look.panel("histogram").locator(".smdw-readout")).to_contain_text("mean")
    pixels = look.pixels("histogram").astype(int)
    assert (np.abs(pixels[..., 2] - pixels[..., 0]) > 60).mean() > 0.02  # blue bars


def shows_nan(look: Looking) -> bool:
    red, green, blue = np.moveaxis(look.pixels("heatmap").astype(int), -1, 0)
    return bool(((red > 100) & (green < 40) & (blue > 200)).any())


@pytest.mark.parametrize("dark", [False, True])
def test_a_step_without_its_value_has_the_histogram_of_its_sample(lab, run, dark):
    whole, sampled = steps_of(run)
    cell = f"import smdwidgets\nw = smdwidgets.explore({str(run)!r}, tensor='w', inspect=True, step=0)\nw"
    notebook = lab.open([cell], size=(1400, 1400), dark=dark)
    notebook.run(0)
    look = Looking.at(notebook)
    expect_sample(look, whole, sampled)
    until(lambda: not shows_nan(look), "a heat map without the colour of NaN")
    notebook.screenshot(f"sample-{'dark' if dark else 'light'}")


def test_a_saved_page_has_the_sample(browser: Browser, run, tmp_path):
    whole, sampled = steps_of(run)
    path = tmp_path / "page.html"
    explorer = smdwidgets.explore(run, tensor="w", inspect=True, step=0)
    explorer.to_html(path)
    explorer.close()
    context = browser.new_context(viewport={"width": 1280, "height": 1000}, offline=True)
    page = context.new_page()
    page.goto(path.as_uri())
    expect_sample(Looking(page.locator(".smdw-page")), whole, sampled)
    context.close()
