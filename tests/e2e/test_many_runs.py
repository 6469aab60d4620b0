"""The table of runs in JupyterLab: two runs compared in three actions."""

from __future__ import annotations

import json

import numpy as np
from playwright.sync_api import expect

import smdwidgets.numpy as smd
from e2e.looking import Looking

LAYERS, STEPS = 5, 6


def test_two_runs_are_compared_in_three_actions(lab, tmp_path):
    for number in range(6):
        run = tmp_path / "runs" / f"run_{number}"
        with smd.Hook(run) as hook:
            (run / "hparams.json").write_text(json.dumps({"lr": 0.1 / (number + 1), "seed": number}))
            for step in range(STEPS):
                for layer in range(LAYERS):
                    value = np.full((4, 3), number + layer + step / 10, np.float32)
                    hook.save_tensor(f"layers.{layer}.weight", value, "weights")
                hook.save_scalar("loss", 1.0 / (step + 1) + number)
                hook.step()
    cells = [
        f"import smdwidgets\nw = smdwidgets.explore(smdwidgets.runs({str(tmp_path / 'runs')!r}))\nw",
        "w.trial.name, w.tensor, [number for number, _ in w.trials.opened()], float(w.difference().value().mean())",
    ]
    notebook = lab.open(cells).run(0)
    look = Looking.at(notebook)
    rows = look.el.locator("[data-run]")
    expect(rows).to_have_count(6, timeout=30_000)
    expect(rows.first).to_contain_text("run_0")
    notebook.screenshot("many-runs-table")

    rows.filter(has_text="run_4").locator(".smdw-runs-name").click(modifiers=["Alt"])
    expect(rows.filter(has_text="run_4").locator(".smdw-runs-b")).to_be_visible()
    rows.filter(has_text="run_1").locator(".smdw-runs-name").dblclick()
    layer = look.el.locator(".smdw-map-row").filter(has_text="layers.3")
    expect(layer).to_be_visible(timeout=30_000)
    layer.click()

    expect(look.el.locator(".smdw-name").first).to_have_text("layers.3.weight")
    notebook.screenshot("many-runs-compared")
    assert "('run_1', 'layers.3.weight', [1, 4], -3.0)" in notebook.run(1).text(1)

    look.el.get_by_role("button", name="Runs").first.click()
    expect(rows.filter(has_text="run_4").locator(".smdw-runs-b")).to_be_visible()
