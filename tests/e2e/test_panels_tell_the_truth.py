"""The rule panel acts on one rule; a new run in the same place is noticed."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from e2e import runs
from e2e.looking import Looking

pytestmark = pytest.mark.slow

PANEL = """
import threading
import smdwidgets
from smdwidgets.rules import Rule

gate = threading.Event()

class Gated(Rule):
    def invoke_at_step(self, step):
        gate.wait(120)
        return False

trial = smdwidgets.create_trial({path!r})
w = smdwidgets.RulePanel(trial, [Gated(trial), Gated(trial)])
w
"""


def test_pause_run_and_stop_act_on_one_rule(lab, tmp_path):
    run = runs.write(tmp_path / "run", 5)
    notebook = lab.open(
        [PANEL.format(path=str(run)), "gate.set()\nw.rules.wait(60)\n[str(each.status) for each in w.rules]"]
    )
    notebook.run(0)
    look = Looking.at(notebook)
    rules = look.el.locator(".smdw-rule")
    expect(rules).to_have_count(2)
    first, second = (rules.nth(i).locator(".smdw-status") for i in range(2))

    def click(rule: int, name: str) -> None:
        rules.nth(rule).get_by_role("button", name=name, exact=True).click()

    expect(first).to_contain_text("Running")
    click(0, "Pause rule")
    expect(first).to_contain_text("Paused")
    expect(second).to_contain_text("Running")
    notebook.screenshot("rule-paused-lab-light")
    click(0, "Run rule")
    expect(first).to_contain_text("Running")
    click(1, "Stop rule")
    expect(second).to_contain_text("Stopped")
    expect(first).to_contain_text("Running")
    notebook.run(1)
    expect(first).to_contain_text("Clear")
    expect(second).to_contain_text("Stopped")
    assert notebook.text(1).endswith("['NoIssuesFound', 'Stopped']")


AGAIN = """
import numpy as np
from smdwidgets.numpy import Hook
with Hook({path!r}, overwrite=True) as hook:
    for step in range(10):
        hook.save_tensor("net/fc.weight", np.full((12, 16), 7, np.float32), "weights")
        hook.save_tensor("gradient/net/fc.weight", np.full((12, 16), 1, np.float32), "gradients")
        hook.step()
"""


def test_a_run_that_is_trained_again_is_shown_instead_of_the_earlier_one(lab, tmp_path):
    run = runs.write(tmp_path / "run")
    show = f"import smdwidgets\nw = smdwidgets.explore({str(run)!r}, tensor='net/fc.weight', rules=['VanishingGradient'])\nw"
    notebook = lab.open([show, AGAIN.format(path=str(run))]).run(0)
    look = Looking.at(notebook).at_step(29)
    expect(look.rules().locator(".smdw-status")).to_contain_text("Found")
    notebook.run(1)
    expect(look.el.locator(".smdw-run")).to_contain_text(re.compile(r"This run was started again at \d\d:\d\d:\d\d"))
    expect(look.rules().locator(".smdw-status")).to_contain_text("Clear")
    look.at_step(9)
    expect(look.el.locator(".smdw-run")).to_contain_text("10 steps")
    cells = look.panel("values").locator("[role=row]").nth(1).locator("[role=gridcell]")
    expect(cells.first).to_have_text("7.0")
    notebook.screenshot("run-restarted-lab-light")
