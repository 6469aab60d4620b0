"""A TensorBoard log in the explorer: images, histograms and smoothed curves."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import expect
from tensorboardX import SummaryWriter

from e2e.looking import Looking, until

pytestmark = pytest.mark.slow

STEPS = 24


def picture(step: int) -> np.ndarray:
    """A disc that moves over a sky with changing colour: all steps differ."""
    rows, columns = np.mgrid[0:96, 0:128]
    sky = np.stack([np.full_like(rows, 240 - 9 * step), 120 + rows, np.full_like(rows, 10)], axis=-1)
    disc = (rows - 30) ** 2 + (columns - 14 - 4 * step) ** 2 < 144
    return np.where(disc[..., None], [255, 240, 90], sky).astype(np.uint8)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    with SummaryWriter(str(tmp_path / "run")) as out:
        for step in range(10 * STEPS):
            out.add_scalar("train/loss", 2 / (1 + step / 20) + rng.normal(0, 0.15), step)
            out.add_scalar("train/accuracy", 1 - 1 / (1 + step / 30) + rng.normal(0, 0.03), step)
            if step % 10 == 0:
                out.add_image("samples", picture(step // 10), step, dataformats="HWC")
                out.add_histogram("weights/fc", rng.normal(step / 80, 1 + step / 200, 4000), step)
    return tmp_path / "run"


def test_log_in_the_explorer(lab, log):
    show = "import smdwidgets\nw = smdwidgets.explore({!r}, {})\nw"
    notebook = lab.open(
        [
            show.format(str(log), "tensor='samples', panels=['heatmap', 'statistics']"),
            show.format(str(log), "tensor='weights/fc', panels=['histogram', 'history']"),
            show.format(str(log), "tensor='train/loss', panels=['scalars']"),
        ]
    )
    notebook.run(0)
    look = Looking.at(notebook, 0).at_step(230)
    panel = look.panel("heatmap")
    expect(panel.locator(".smdw-title")).to_have_text("Image")
    expect(panel.locator(".smdw-readout")).to_have_text("128 × 96 pixels")
    # Every step shows the image that was logged; three pixels identify it.
    for step in range(STEPS):
        look.go(10 * step).drawn()
        pixels, value = look.pixels("heatmap").astype(int), picture(step)
        height, width = _extent(pixels)
        for row, column in ((80, 10), (60, 64), (30, 14 + 4 * step)):
            shown = pixels[
                height[0] + (row * (height[1] - height[0])) // 96, width[0] + column * (width[1] - width[0]) // 128
            ]
            assert shown == pytest.approx(value[row, column], abs=4), (step, row, column)
    look.go(120)
    look.leave()
    notebook.screenshot("log-image-light")

    notebook.run(1)
    look = Looking.at(notebook, 1).at_step(230)
    words = look.panel("histogram").locator(".smdw-readout")
    expect(words).to_contain_text("min")
    # What was counted, not the numbers of the buckets: a mean near 2.9, and no edge or count as a value.
    assert 2.6 < float(words.inner_text().split("mean")[1].split()[0]) < 3.2
    look.has_steps(24)
    notebook.output(1).scroll_into_view_if_needed()
    notebook.screenshot("log-histogram-light")

    notebook.run(2)
    look = Looking.at(notebook, 2).at_step(239)
    look.panel("scalars").get_by_role("button", name="Scalars menu").click()
    smooth = look.panel("scalars").get_by_label("Smoothing")
    smooth.fill("0.6")
    expect(look.panel("scalars").locator(".smdw-smoothing")).to_have_text("0.6")
    # Two curves and their averages: four lines.
    expect(look.figure("scalars").locator("canvas").first).to_have_attribute("aria-label", re.compile("train/loss"))
    notebook.output(2).scroll_into_view_if_needed()
    until(lambda: (np.ptp(look.pixels("scalars").astype(int), axis=-1) > 60).mean() > 0.005, "curves in colour")
    notebook.screenshot("log-scalars-light")


def _extent(pixels: np.ndarray) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the rows and columns of the image.

    Its sky has green, unlike background and axes.
    """
    sky = (np.ptp(pixels, axis=-1) > 40) & (pixels[..., 1] > 100)
    rows, columns = np.flatnonzero(sky.mean(1) > 0.2), np.flatnonzero(sky.mean(0) > 0.2)
    return (int(rows[0]), int(rows[-1]) + 1), (int(columns[0]), int(columns[-1]) + 1)


def test_log_in_the_dark_theme(lab, log):
    notebook = lab.open(
        [f"import smdwidgets\nw = smdwidgets.explore({str(log)!r}, tensor='samples')\nw"], dark=True, size=(1280, 1300)
    ).run(0)
    look = Looking.at(notebook).at_step(230)
    expect(look.panel("heatmap").locator(".smdw-title")).to_have_text("Image")
    look.go(130)
    look.has_steps(24)
    notebook.screenshot("log-image-dark")
    look.choose("weights/fc")
    expect(look.el.locator(".smdw-name")).to_have_text("weights/fc")
    look.has_steps(24)
    expect(look.closed_panel("heatmap")).to_be_hidden()
    notebook.screenshot("log-histogram-dark")


def test_many_scalars_are_a_map_and_few_are_curves(lab, tmp_path):
    rng = np.random.default_rng(0)
    names = [f"layers/{layer}/{part}_norm" for layer in range(20) for part in ("grad", "attn", "mlp", "update")]
    for folder, columns in (("many", names), ("few", names[:8])):
        rows = rng.normal(1, 0.05, (200, len(columns)))
        rows[77, 5] = np.nan
        table = tmp_path / folder / "metrics.csv"
        table.parent.mkdir()
        head = ",".join(["step", "loss", *columns])
        losses = 2 * np.exp(-np.arange(200) / 60)
        table.write_text(
            "\n".join([head, *(f"{i},{losses[i]},{','.join(map(str, row))}" for i, row in enumerate(rows))])
        )
    show = "import smdwidgets\nsmdwidgets.explore({!r})"
    cells = [show.format(str(tmp_path / folder / "metrics.csv")) for folder in ("many", "few")]
    notebook = lab.open(cells, size=(1500, 900))
    notebook.run(0)
    many = Looking.at(notebook, 0).at_step(199)
    map_, curves = many.el.locator(".smdw-map"), many.el.locator(".smdw-multiples")
    expect(map_.locator(".smdw-map-row", has_text="layers/7").first).to_be_visible()
    expect(curves).to_be_hidden()
    # The module with the NaN is open, and its cell has the colour of one.
    row = map_.locator(".smdw-map-row", has_text="attn_norm").first
    expect(row).to_be_visible()
    notebook.screenshot("log-many-scalars-light")
    many.el.get_by_role("button", name="View").click()
    many.el.get_by_label("Show", exact=True).select_option("curves")
    expect(curves).to_be_visible()
    expect(map_).to_be_hidden()
    expect(many.el.get_by_label("Query", exact=True)).to_have_value("| as curves")
    many.el.get_by_label("Show", exact=True).select_option("map")
    expect(map_).to_be_visible()

    notebook.run(1)
    few = Looking.at(notebook, 1)
    expect(few.el.locator(".smdw-multiples")).to_be_visible()
    expect(few.el.locator(".smdw-map")).to_be_hidden()
    few.el.get_by_role("button", name="View").click()
    few.el.get_by_label("Show", exact=True).select_option("map")
    expect(few.el.locator(".smdw-map")).to_be_visible()
    expect(few.el.locator(".smdw-map-row", has_text="layers/1").first).to_be_visible()
    notebook.screenshot("log-few-scalars-as-map")
