"""The first screen of the explorer shows the culprit of a planted fault.

A healthy run is healthy.
"""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

import smdwidgets
from diagnosis.cases import HEALTHY, PLANTED
from e2e.looking import Looking

#: A seed that neither tunes nor reports a limit of the diagnosis.
SEED = 918_273
FAULTS = (
    "rate too high (Adam)",
    "rate x 60 at 800",
    "rate 0 from 600",
    "bias -6 to -8",
    "7 to 9 sigmoid layers",
    "half-precision log 0",
    "frozen layer",
    "inputs not scaled",
    "same batch from 600",
    "inputs x 30 for 3 steps",
)
CALM = ("momentum", "Adam", "dropout", "regression", "deep tanh")
SHOW = "import smdwidgets\nw = smdwidgets.explore({path!r})\nw"


def trained(cases, name, tmp_path):
    """Train the case with this name; return it with its run."""
    case = next(each for each in cases if each.name == name)
    case.train(tmp_path / "run", SEED)
    return case, tmp_path / "run"


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_the_culprit_is_selected_on_the_first_screen(lab, tmp_path, name):
    case, run = trained(PLANTED, name, tmp_path)
    notebook = lab.open([SHOW.format(path=str(run))])
    cause = smdwidgets.diagnose(run).findings[0]
    assert cause.kind in case.expected
    view = Looking.at(notebook.run(0))
    # The page writes names as code, without quotes.
    title = cause.title.replace("`", "")
    expect(view.el.get_by_role("region", name="Diagnosis").get_by_role("button").first).to_have_text(title)
    selected = view.el.locator(".smdw-map-selected")
    view.el.scroll_into_view_if_needed()
    expect(selected).to_be_in_viewport()
    assert selected.get_attribute("title") in {cause.subject, *cause.others}
    view.at_step(cause.first)
    notebook.screenshot(f"culprit-{FAULTS.index(name)}")


@pytest.mark.slow
@pytest.mark.parametrize("name", CALM)
def test_a_healthy_run_opens_at_its_last_step(lab, tmp_path, name):
    _, run = trained(HEALTHY, name, tmp_path)
    view = Looking.at(lab.open([SHOW.format(path=str(run))]).run(0))
    expect(view.el.get_by_role("region", name="Diagnosis")).to_contain_text("Nothing wrong seen")
    view.at_step(1490)
