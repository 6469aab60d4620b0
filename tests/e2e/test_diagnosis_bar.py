"""The explorer says in one sentence what went wrong, and leads there."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from playwright.sync_api import expect

from e2e import runs
from e2e.looking import Looking

SHOW = "import smdwidgets\nw = smdwidgets.explore({path!r})\nw"
ASK = "(w.tensor, w.step, w.mode, len(w.diagnosis))"


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """The demo's training, which has two faults."""
    run = tmp_path_factory.mktemp("demo") / "run"
    command = [sys.executable, "-m", "smdwidgets.demo.training", str(run), "--seconds", "1"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as training:
        assert training.wait(120) == 0
    return run


def bar(notebook, cell=0):
    return Looking.at(notebook, cell).el.get_by_role("region", name="Diagnosis")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_sentence_leads_to_the_fault(lab, demo, dark):
    notebook = lab.open([SHOW.format(path=str(demo)), ASK], dark=dark)
    notebook.run(0)
    diagnosis = bar(notebook)
    first = diagnosis.get_by_role("button", name="The weights of fc2.weight never change")
    expect(first).to_be_visible()
    expect(diagnosis).to_contain_text("1 of 2")
    diagnosis.get_by_role("button", name="Details").click()
    expect(diagnosis).to_contain_text("Try: If that is not intended, check that they are passed to the optimizer")
    notebook.screenshot(f"diagnosis-{'dark' if dark else 'light'}")
    first.click()
    expect(Looking.at(notebook).el.get_by_role("heading", name="fc2.weight")).to_be_visible()
    diagnosis.get_by_role("button", name="Next finding").press("Enter")
    expect(diagnosis).to_contain_text("The learning rate jumps at step 220")
    expect(Looking.at(notebook).el.get_by_role("heading", name="learning_rate")).to_be_visible()
    notebook.expect_output(1, "('learning_rate', 220, '', 2)")
    notebook.check()


def test_run_without_a_fault_says_so(lab, tmp_path):
    def healthy(step):
        return {
            "net/fc.weight": (runs.weight(step + 20), "weights"),
            "loss": (runs.np.float32(2 * 0.9**step), "losses"),
        }

    notebook = lab.open([SHOW.format(path=str(runs.write(tmp_path / "run", 6, healthy)))])
    notebook.run(0)
    expect(bar(notebook)).to_contain_text(re.compile("Nothing wrong seen|Cannot tell"))
    # What was checked, and what could not be judged, with the reason.
    bar(notebook).get_by_role("button", name="Details").click()
    expect(bar(notebook)).to_contain_text("Checked: ")
    expect(bar(notebook)).to_contain_text("Gradients were not recorded: ")


@pytest.mark.slow
def test_sentence_follows_a_live_run(lab, tmp_path):
    """A loss that turns NaN while the run is shown; the kernel is busy in between."""
    path = str(tmp_path / "run")
    train = f"""
import numpy as np
from smdwidgets.numpy import Hook
hook = Hook({path!r}, flush_seconds=0.1)
def train(first, last):
    for step in range(first, last):
        hook.save_scalar("train/loss", float("nan") if step >= 60 else 2 / (1 + step))
        hook.step()
    hook.flush() if hasattr(hook, "flush") else None
train(0, 40)
import smdwidgets
trial = smdwidgets.create_trial({path!r}, wait=60)
trial.wait_for_steps([39], timeout=60)
"""
    notebook = lab.open([train, SHOW.format(path=path), "train(40, 200)\nhook.close()"])
    notebook.run(0)
    notebook.run(1)
    expect(bar(notebook, 1)).to_contain_text("Nothing wrong seen")
    notebook.run(2)
    expect(bar(notebook, 1)).to_contain_text("is NaN")
