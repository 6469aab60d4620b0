"""A browser without required features shows an explanation, not a blank page."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

import smdwidgets
from e2e import runs

pytestmark = pytest.mark.slow


def test_exported_page_without_javascript_shows_its_requirements(browser, tmp_path):
    run = runs.write(tmp_path / "run", 3)
    widget = smdwidgets.explore(run)
    widget.to_html(tmp_path / "page.html")
    widget.close()
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((tmp_path / "page.html").as_uri())
    words = page.get_by_text("This page requires JavaScript that this browser does not support")
    expect(words).to_have_css("opacity", "1")
    context.close()


def test_exported_page_in_an_old_browser_names_the_missing_features(browser, tmp_path):
    run = runs.write(tmp_path / "run", 3)
    widget = smdwidgets.explore(run)
    widget.to_html(tmp_path / "page.html")
    widget.close()
    page = browser.new_page()
    page.add_init_script("delete Array.prototype.findLast; delete globalThis.ResizeObserver;")
    page.goto((tmp_path / "page.html").as_uri())
    expect(page.get_by_role("alert")).to_contain_text(
        "Unsupported browser: missing Array.prototype.findLast, ResizeObserver."
    )
    page.close()
