"""Saved pages and reports in a real browser, without kernel or network."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect

import smdwidgets
import smdwidgets.numpy as smd
from e2e.looking import Looking
from smdwidgets import cli

TENSORS, STEPS, BAD, BAD_AT = 60, 80, "layers.41.weight", 47


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Many tensors, one of which has NaNs from a step on."""
    path = tmp_path_factory.mktemp("saved") / "run"
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(TENSORS, 16, 16)).astype(np.float32)
    with smd.Hook(path) as hook:
        for step in range(STEPS):
            for number in range(TENSORS):
                value = weights[number] * np.float32(1 + step / 1000)
                if f"layers.{number}.weight" == BAD and step >= BAD_AT:
                    value[3, 4] = np.nan
                hook.save_tensor(f"layers.{number}.weight", value, "weights")
            hook.save_tensor("loss", np.float32(1 / (step + 1)), "losses")
            hook.step()
    return path


@pytest.fixture
def opened(browser: Browser, shots: Path) -> Iterator[Any]:
    """Open a file in a tab that has no network, and return its widget."""
    context = browser.new_context(viewport={"width": 1280, "height": 1000}, offline=True)
    errors: list[str] = []

    def open_file(path: Path, name: str) -> Looking:
        page: Page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(path.as_uri())
        expect(page.locator(".smdw-page .smdw-track")).to_be_visible()
        shots.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=str(shots / f"saved-{name}.png"))
        return Looking(page.locator(".smdw-page"))

    yield open_file
    context.close()
    assert not errors


def row(look: Looking, name: str) -> Any:
    return look.query(name).row(name)


def test_finding_of_a_report_opens_the_tensor_that_it_names(run, tmp_path, opened, capsys):
    path = tmp_path / "report.html"
    assert cli.main(["report", str(run), "-o", str(path), "--limit-mb", "1"]) == 0
    assert path.stat().st_size <= 1_000_000
    assert f"of {TENSORS + 1} tensors" in capsys.readouterr().out
    look = opened(path, "report")
    row(look, "layers.0.weight").click()
    expect(look.el.locator(".smdw-name")).to_have_text("layers.0.weight")
    look.page.locator(".smd-diagnosis a", has_text=BAD).first.click()
    expect(look.el.locator(".smdw-name")).to_have_text(BAD)
    look.at_step(BAD_AT)
    expect(look.el.locator(".smdw-chips")).to_contain_text(re.compile(r"NaN\s*1"))
    expect(look.panel("histogram").locator(".smdw-readout")).to_contain_text("median")


@pytest.mark.slow
def test_tensors_without_pictures_are_marked_before_a_click(run, tmp_path, opened, shots):
    explorer = smdwidgets.explore(run, tensor="layers.1.weight")
    explorer.to_html(tmp_path / "page.html", tensors=["layers.1.weight"], limit=1_000_000)
    explorer.close()
    look = opened(tmp_path / "page.html", "explorer")
    line = look.el.locator(".smdw-saved")
    expect(line).to_have_text(
        re.compile(rf"^Saved page: \d+ of {TENSORS + 1} tensors can be opened; of the rest, statistics only\.$")
    )
    absent = look.el.locator(".smdw-map-row.smdw-absent").first
    expect(absent).to_contain_text("\u25cb")
    expect(row(look, "layers.1.weight")).not_to_have_class(re.compile("smdw-absent"))
    bad = row(look, BAD)
    expect(bad).to_have_class(re.compile("smdw-absent"))
    bad.click()
    expect(look.el.locator(".smdw-from")).to_contain_text(f'w.to_html("page.html", tensors=["{BAD}"])')
    expect(look.panel("statistics")).to_contain_text("steps loaded")
    expect(look.el.locator(".smdw-chips")).to_contain_text(re.compile(r"NaN\s*1"))
    expect(look.el).not_to_contain_text("Loading")
    expect(look.el).not_to_contain_text("Kernel")
    expect(look.el.get_by_role("tab", name="Values", exact=True)).to_be_disabled()
    look.drawn().page.screenshot(path=str(shots / "saved-absent.png"))


@pytest.mark.slow
def test_page_that_is_saved_directly_after_display_has_judged_rules(run, tmp_path, opened):
    explorer = smdwidgets.explore(run, rules=["ExplodingTensor", "VanishingGradient"])
    explorer.to_html(tmp_path / "page.html", limit=3_000_000)
    explorer.close()
    look = opened(tmp_path / "page.html", "rules")
    rules = look.rules()
    expect(rules).to_have_count(2)
    expect(rules.nth(0).locator(".smdw-status")).to_contain_text("Found")
    expect(rules.nth(1).locator(".smdw-status")).to_contain_text("Not judged")
    # The message of the finding opens the tensor.
    rules.nth(0).locator(".smdw-rule-message").click()
    expect(look.el.locator(".smdw-name")).to_have_text(BAD)
    expect(look.panel("histogram").locator(".smdw-readout")).to_contain_text("median")


@pytest.mark.slow
def test_page_of_a_live_run_shows_no_running_rule(run, tmp_path, opened):
    with smd.Hook(tmp_path / "live") as hook:
        for step in range(5):
            hook.save_tensor("w", np.full((4, 4), step, np.float32), "weights")
            hook.step()
        trial = smdwidgets.create_trial(tmp_path / "live", wait=30)
        explorer = smdwidgets.explore(trial, rules=["ExplodingTensor"])
        explorer.to_html(tmp_path / "page.html")
        explorer.close()
    look = opened(tmp_path / "page.html", "live")
    expect(look.el.locator(".smdw-lane-rule")).to_have_attribute("data-status", "Clear")
