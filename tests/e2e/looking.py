"""Read a widget in the browser, and use it with mouse and keyboard."""

from __future__ import annotations

import io
import re
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image
from playwright.sync_api import FloatRect, Locator, Page, expect

from e2e.jupyter import Notebook

#: Tabs of the panels of an explorer.
TABS = {
    "histogram": "Histogram",
    "heatmap": "Heat map",
    "values": "Values",
    "statistics": "Statistics",
    "history": "Over steps",
    "scalars": "Curves",
    "rules": "Rules",
}


def until(condition: Callable[[], bool], what: object) -> None:
    """Wait for a condition on more than the document, such as colours."""
    end = time.monotonic() + 90
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.05)


class Looking:
    """One view of a widget on a page."""

    def __init__(self, el: Locator) -> None:
        self.el = el
        self.page: Page = el.page
        self.track = el.locator(".smdw-track")
        self.box = el.locator(".smdw-step-box")

    @classmethod
    def at(cls, notebook: Notebook, cell: int = 0, nth: int = 0) -> Looking:
        """Return the widget in a cell's output, once it is displayed."""
        el = notebook.output(cell).locator(".smdw").nth(nth)
        expect(el).to_be_visible()
        return cls(el)

    def figure(self, name: str) -> Locator:
        """Return the picture of a panel."""
        return self.panel(name).locator(".smdw-figure").first

    def panel(self, name: str) -> Locator:
        """Return a whole panel, after a click on its tab in an explorer.

        Use `closed_panel` for one that the tensor in view does not have.
        """
        opener = self.el.get_by_role("button", name="Open inspector")
        # A scalar has one large curve instead of pictures.
        others = self.el.get_by_role("button", name="Curves and rules", pressed=False)
        tab = self.el.get_by_role("tab", name=TABS[name], exact=True, selected=False)
        panel = self.closed_panel(name)
        end = time.monotonic() + 90
        while True:
            for control in (opener, others, tab):
                # What the page says is what it was asked for last, so that no click undoes the one before.
                self.loaded()
                # One that is there is clicked, without waiting for one that is not.
                control.evaluate_all("(all) => all.filter((el) => !el.disabled).forEach((el) => el.click())")
            self.loaded()
            # A control that is missing or disabled may come with the run's data.
            if panel.first.is_visible() or time.monotonic() > end:
                return panel
            self.page.wait_for_timeout(50)

    def closed_panel(self, name: str) -> Locator:
        """Return a panel without opening it."""
        return self.el.locator(f".smdw-panel-{name}")

    def loaded(self) -> Looking:
        """Wait until the code of all that is shown is there."""
        expect(self.drawn().el.locator(".smdw-deferred:visible")).to_have_count(0)
        return self.drawn()

    def rules(self) -> Locator:
        """Return the rows of the rule panel."""
        return self.panel("rules").locator(".smdw-rule")

    def has_steps(self, n: int) -> None:
        """Wait until the steps of the tensor in view have been loaded."""
        strip = self.el.locator(".smdw-lane-values-strip canvas")
        expect(strip).to_have_attribute("aria-label", re.compile(rf" over {n} steps\.$"))

    def at_step(self, step: int) -> Looking:
        """Wait until the slider is at a step."""
        expect(self.box).to_have_value(str(step))
        return self

    def drag(self, *shares: float) -> Looking:
        """Press the mouse at the first of these positions, and drag it over the others."""
        self.track.scroll_into_view_if_needed()
        box = self.track.bounding_box()
        assert box is not None
        self.page.mouse.move(box["x"] + 8 + shares[0] * (box["width"] - 16), box["y"] + box["height"] / 2)
        self.page.mouse.down()
        for share in shares[1:]:
            self.page.mouse.move(box["x"] + 8 + share * (box["width"] - 16), box["y"] + box["height"] / 2, steps=5)
        self.page.mouse.up()
        return self.at_rest()

    def place(self, step: int) -> float:
        """Return the position of a step on the track of a run whose steps are 0, 1, 2, …"""
        box = self.track.bounding_box()
        assert box is not None
        last = int(self.track.get_attribute("aria-valuemax") or 0)
        return (step + 0.5) / (last + 1) * box["width"]

    def drawn(self) -> Looking:
        """Wait until the current state is painted."""
        self.page.evaluate("() => new Promise((on) => requestAnimationFrame(() => requestAnimationFrame(() => on())))")
        return self

    def at_rest(self) -> Looking:
        """Wait until the slider stops.

        On a busy machine, a page receives the last movements frames later.
        """
        stood = None
        while stood != (stood := self.drawn().box.input_value()):
            self.page.wait_for_timeout(100)
        return self

    def settled(self, el: Locator) -> FloatRect:
        """Return the place of an element, once it moves no longer."""
        place = None
        while True:
            earlier, place = place, self.drawn() and el.bounding_box()
            if place and place == earlier:
                return place
            self.page.wait_for_timeout(100)

    def keys(self, *keys: str) -> Looking:
        """Press keys with the slider focused."""
        self.track.focus()
        for key in keys:
            self.page.keyboard.press(key)
        return self

    def go(self, step: int) -> Looking:
        """Go to a step with the number box."""
        self.box.fill(str(step))
        self.box.press("Enter")
        return self.at_step(step)

    def choose(self, name: str) -> Looking:
        """Select a tensor in the map, or among the small curves of a run of scalars."""
        self.query(f'"{name}"')
        self.row(name).click()
        self.query("")
        return self

    def query(self, text: str) -> Looking:
        """Fill in the query, and close the list of suggestions."""
        box = self.el.get_by_role("combobox", name="Query")
        box.fill(text)
        box.press("Enter")
        return self

    def row(self, name: str) -> Locator:
        """Return the first row of the map whose tensor has this in its name."""
        rows = self.el.locator(".smdw-map-row:not(.smdw-map-module), .smdw-multiple")
        return rows.and_(self.el.get_by_title(name)).first

    def pixels(self, name: str) -> np.ndarray[Any, Any]:
        """Return the pixels of a figure on the screen, [y, x, rgb]."""
        figure = self.figure(name)
        # In the middle, because the slider stays at the top and would cover it.
        figure.evaluate("(el) => el.scrollIntoView({ block: 'center' })")
        return np.asarray(Image.open(io.BytesIO(figure.screenshot())).convert("RGB"))

    def hover(self, name: str, x: float, y: float) -> str:
        """Return the readout of a panel for the position of the pointer."""
        figure = self.figure(name)
        figure.hover(position={"x": x, "y": y}, force=True)
        return self.panel(name).locator(".smdw-readout").inner_text()

    def leave(self) -> None:
        """Move the pointer away from the pictures."""
        self.page.mouse.move(1, 1)
