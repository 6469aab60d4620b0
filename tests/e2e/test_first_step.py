"""A widget that is opened before the run has a step."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import expect

from e2e.jupyter import Jupyter
from e2e.looking import Looking

OPEN = """
import numpy as np, smdwidgets, tensorboardX
log = tensorboardX.SummaryWriter({run!r})
log.flush()
w = smdwidgets.explore({run!r})
w
"""
SAVE = "log.add_histogram('kernel', np.arange(9.0), 0)\nlog.close()"


def test_the_first_step_appears_with_a_tensor_selected(lab: Jupyter, tmp_path: Path) -> None:
    run = str(tmp_path / "run")
    notebook = lab.open([OPEN.format(run=run), SAVE, "print(w.tensor)"]).run(0)
    look = Looking.at(notebook)
    expect(look.el).to_contain_text("No step saved yet")
    notebook.run(1)
    expect(look.el.locator(".smdw-name")).to_have_text("kernel")
    expect(look.panel("histogram").locator(".smdw-readout")).to_contain_text("max")
    look.at_step(0)
    notebook.run(2)
    expect(notebook.output(2)).to_have_text("kernel")
