"""Train the notebook about a loss of NaN in a page, and press Replay."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Locator, expect

from e2e.jupyter import MS, Notebook

NOTEBOOK = Path(__file__).resolve().parents[2] / "notebooks" / "10_from_nan_to_fixed_line.ipynb"
#: The row without a word, and the line in which it breaks.
ROW, CAUSE = "413", "return scores.softmax(-1) @ self.value(x)"
#: The cells up to the explorer, which is the output of the third cell with code.
CELLS, EXPLORER = (1, 2, 4), 2


def trained(notebook: Notebook) -> Locator:
    """Run the cells up to the explorer, and return it with its button."""
    for cell in CELLS:
        notebook.run(cell, seconds=300)
    explorer: Locator = notebook.output(EXPLORER).locator(".smdw").first
    explorer.scroll_into_view_if_needed()
    expect(panel_of(explorer).get_by_role("button", name="Replay", exact=True)).to_be_visible(timeout=120 * MS)
    return explorer


def panel_of(explorer: Locator) -> Locator:
    """Return the part of the finding that executes its steps again."""
    return explorer.get_by_role("group", name="Replay", exact=True)


def replayed(explorer: Locator, key: str = "") -> Locator:
    """Press Replay once, with the mouse or a key, and return the answer."""
    panel = panel_of(explorer)
    button = panel.get_by_role("button", name="Replay", exact=True)
    if key:
        button.press(key)
    else:
        button.click()
    expect(panel.get_by_role("button", name="Replay again")).to_be_visible(timeout=300 * MS)
    return panel


def tried(panel: Locator, label: str) -> Locator:
    """Press a change, and return its outcome."""
    panel.get_by_role("button", name=label, exact=True).click()
    outcome = panel.locator(".smdw-replay-outcome").filter(has_text=f"{label}:")
    expect(outcome).to_be_visible(timeout=300 * MS)
    return outcome
