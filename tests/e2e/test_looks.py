"""Two runs side by side in common widths and themes, with screenshots for review."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from e2e import runs
from e2e.looking import Looking
from e2e.test_explorer import shown

pytestmark = pytest.mark.slow

COMPARE = """
import smdwidgets
w = smdwidgets.explore([{a!r}, {b!r}], tensor={tensor!r}, compare={{"run": 1}}, panels=[
    "histogram", "heatmap", "history", "statistics", "scalars", "rules"], rules=["VanishingGradient"])
w
"""


def other(step: int) -> dict[str, object]:
    """Saved at each second step only, and twice as large."""
    value, collection = runs.tensors(step)[runs.WEIGHT]
    return {runs.WEIGHT: (2 * value, collection)} if step % 2 == 0 else {}


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """Write a run, and one that lacks each second step."""
    folder = tmp_path_factory.mktemp("two")
    return runs.write(folder / "one", modes=True), runs.write(folder / "two", of_step=other)


@pytest.mark.parametrize(
    ("width", "theme"),
    [(1280, "JupyterLab Dark High Contrast"), (860, "JupyterLab Light")],
    ids=["high-contrast", "narrow"],
)
def test_two_runs_are_aligned_by_step(lab, two, width, theme):
    a, b = two
    source = COMPARE.format(a=str(a), b=str(b), tensor=runs.WEIGHT)
    notebook = lab.open([source], size=(width, 1300), dark="Dark" in theme)
    if "Contrast" in theme:
        notebook.theme(theme)
    notebook.run(0)
    look = Looking.at(notebook).go(13)
    histogram = look.panel("histogram").locator(".smdw-readout")
    expect(histogram).to_contain_text(f"max {shown(runs.weight(13).max())}")
    # The other run has no step 13: its latest earlier step is displayed and labelled.
    expect(look.el.locator(".smdw-from")).to_have_text("two: not saved at this step: showing step 12")
    expect(look.el.get_by_label("Run of B")).to_have_value("1")
    expect(look.panel("scalars")).to_contain_text("loss")
    widths = look.el.evaluate("(el) => [el.scrollWidth, el.clientWidth]")
    assert widths[0] <= widths[1], "something is wider than the widget"
    look.el.evaluate("(el) => el.scrollIntoView()")
    notebook.screenshot(f"compare-{'contrast' if 'Contrast' in theme else 'narrow'}")
