"""Saved pages work without kernel or network; every click in them is answered."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, expect

#: What a reader of a page must never wait for, and what is no text.
DEAD_END = re.compile(r"Loading|Reading\u2026|Waiting|Searching|Kernel|undefined|\[object|NaN px")
#: What two frames show alike: a click, or a finding that arrives, changes rows and tabs in a later frame.
SETTLED = """async () => {
  const shown = SHOWN;
  for (let before = shown(); ; ) {
    await new Promise(requestAnimationFrame);
    await new Promise(requestAnimationFrame);
    const after = shown();
    if (JSON.stringify(after) === JSON.stringify(before)) return after;
    before = after;
  }
}"""
#: For each row: what distinguishes its class from others, its name, and whether it is a module.
ROWS = """() => [...document.querySelectorAll(".smdw-map-row")].map(row => [
  (row.querySelector(".smdw-map-mark").textContent.replace(/[\u25b8\u25be]/, "module")) + " "
    + row.classList.contains("smdw-absent") + " " + [...row.querySelectorAll("[class*=badge]")].map(each => each.className),
  row.title.split("\\n")[0], row.classList.contains("smdw-map-module")])"""
#: For each visible tab: its name, whether it can be opened, and its hint.
TABS = """() => [...document.querySelectorAll("[role=tab]")].filter(tab => tab.checkVisibility())
  .map(tab => [tab.textContent, !tab.disabled, tab.title])"""


@contextlib.contextmanager
def without_network(browser: Browser) -> Iterator[Callable[[Path], Page]]:
    """Give a function that opens a file in a tab.

    At the end, no page had an error or sent a request.
    """
    context = browser.new_context(viewport={"width": 1280, "height": 1000}, offline=True)
    problems: list[str] = []

    def open_file(path: Path) -> Page:
        page = context.new_page()
        page.on("pageerror", lambda error: problems.append(f"{path.name}: {error}"))
        page.on("console", lambda said: problems.append(f"{path.name}: {said.text}") if said.type == "error" else None)
        page.goto(path.as_uri())
        page.on(
            "request", lambda sent: problems.append(sent.url) if not sent.url.startswith(("data:", "blob:")) else None
        )
        expect(page.locator(".smdw-page.smdw")).to_be_visible()
        return page

    yield open_file
    context.close()
    assert not problems


def settled(page: Page, shown: str) -> list[Any]:
    """Return what the page shows, once it stays the same."""
    found: list[Any] = page.evaluate(SETTLED.replace("SHOWN", shown))
    return found


def click_each_class_of_row(page: Page) -> list[str]:
    """Click one row of each class; return the classes."""
    clicked: list[str] = []
    while True:
        rows = settled(page, ROWS)
        new = next((number for number, (kind, _, _) in enumerate(rows) if kind not in clicked), None)
        if new is None:
            return clicked
        kind, name, is_module = rows[new]
        clicked.append(kind)
        row = page.locator(".smdw-map-row").nth(new)
        fold = row.locator(".smdw-map-mark").text_content()
        row.click()
        if is_module:
            expect(row.locator(".smdw-map-mark")).not_to_have_text(str(fold))
        else:
            expect(page.locator(".smdw-name")).to_have_text(name)
            answered(page)
            if " true " in kind:
                expect(page.locator(".smdw-from")).to_contain_text(f'w.to_html("page.html", tensors=["{name}"])')


def answered(page: Page) -> None:
    expect(page.locator(".smdw-page")).not_to_contain_text(DEAD_END)


def click_tabs(page: Page) -> None:
    opened: set[str] = set()
    while True:
        tabs = settled(page, TABS)
        assert all(can or "Not in this file" in title for _, can, title in tabs)
        new = next((name for name, can, _ in tabs if can and name not in opened), None)
        if new is None:
            return
        opened.add(new)
        page.get_by_role("tab", name=new, exact=True).click()
        answered(page)


def expect_no_dead_end(page: Page, *, statistics: bool) -> None:
    """Open every tab and one row of each class.

    With `statistics`, the file has no values of some tensors.
    """
    answered(page)
    classes = click_each_class_of_row(page)
    assert bool(classes) == (page.locator(".smdw-map-row").count() > 0)
    if statistics and classes:
        assert any(" true " in kind for kind in classes)
    click_tabs(page)
    page.close()
