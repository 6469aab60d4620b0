"""Coordinate checks of PyTorch models.

Some parametrizations scale with the width, and others do not.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional

import smdwidgets
from smdwidgets.exceptions import SMDebugTypeError, SMDebugValueError

WIDTHS = (64, 128, 256, 512)
FILE = """
import sys
sys.path.insert(0, {folder!r})
from test_torch_coordinate_check import Made

print("text of the file")
make = Made(is_scaled=False)
make_scaled = Made(is_scaled=True)
"""


class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.embed, self.fc, self.out = nn.Linear(16, width), nn.Linear(width, width), nn.Linear(width, 8)
        self.unused, self.relu = nn.Linear(2, 2), nn.ReLU(inplace=True)

    def forward(self, x):
        return {"logits": self.out(self.relu(self.fc(self.relu(self.embed(x)))))}


class Made:
    """Makes a model whose rates and output scale with the width, or do not."""

    def __init__(self, is_scaled, rate=0.02, fresh_batches=False, optimizer=torch.optim.Adam):
        self.is_scaled, self.rate, self.fresh, self.optimizer = is_scaled, rate, fresh_batches, optimizer

    def __call__(self, width):
        model = Net(width)
        if self.is_scaled:
            nn.init.zeros_(model.out.weight)
        wide = [model.fc.weight, model.out.weight]
        other = [one for one in model.parameters() if all(one is not each for each in wide)]
        rate = self.rate * 64 / width if self.is_scaled else self.rate
        optimizer = self.optimizer([{"params": other, "lr": self.rate}, {"params": wide, "lr": rate}])
        generator = torch.Generator().manual_seed(1)
        batch = [torch.randn(64, 16, generator=generator), torch.randint(0, 8, (64,), generator=generator)]

        def step():
            if self.fresh:
                batch[0] = torch.randn(64, 16, generator=generator)
            loss = functional.cross_entropy(model(batch[0])["logits"], batch[1])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

        return model, step


def test_a_model_with_rates_of_one_width_fails_and_a_scaled_one_passes():
    standard = smdwidgets.coordcheck(Made(False), WIDTHS)
    assert {one.name: one.verdict for one in standard.layers}["fc"] == "grows"
    assert [one.name for one in standard.layers] == ["embed", "relu", "fc", "out"]
    scaled = smdwidgets.coordcheck(Made(True), WIDTHS)
    assert scaled.passed, scaled
    assert max(abs(one.change_slope) for one in scaled.layers) < 0.15


def test_sizes_are_those_of_the_outputs_before_they_are_changed_in_place():
    found = smdwidgets.coordcheck(Made(True), WIDTHS, steps=1, seeds=1)
    sizes = {one.name: one.sizes for one in found.layers}
    torch.manual_seed(0)
    model, _ = Made(True)(64)
    generator = torch.Generator().manual_seed(1)
    expected = float(model.embed(torch.randn(64, 16, generator=generator)).detach().abs().mean())
    assert sizes["embed"][0, 0] == pytest.approx(expected, rel=1e-5)
    assert sizes["embed"].shape == (4, 2)


def test_changes_are_not_judged_where_batches_differ():
    found = smdwidgets.coordcheck(Made(False, fresh_batches=True), WIDTHS)
    assert all(one.change_slope != one.change_slope for one in found.layers)
    assert {one.name: one.verdict for one in found.layers}["fc"] == "grows"


def test_rates_that_are_too_small_for_wide_models_vanish():
    class Shrinking(Made):
        def __call__(self, width):
            self.rate = 0.02 * (64 / width) ** 1.5
            return super().__call__(width)

    found = smdwidgets.coordcheck(Shrinking(False), WIDTHS)
    assert "vanishes" in {one.verdict for one in found.layers}
    assert not found.passed


def test_a_model_that_diverges_is_said():
    found = smdwidgets.coordcheck(Made(False, 1e30, optimizer=torch.optim.SGD), WIDTHS, seeds=1)
    assert not found.passed
    assert "not finite" in found.summary


def test_wrong_functions_are_named():
    with pytest.raises(
        SMDebugTypeError, match=r"make\(64\) must return a model and a function that trains one step, got"
    ):
        smdwidgets.coordcheck(Net, WIDTHS)
    with pytest.raises(SMDebugValueError, match="does the function that trains a step call the model"):
        smdwidgets.coordcheck(lambda width: (Net(width), lambda: None), WIDTHS)


def test_the_command_prints_a_table_or_json(tmp_path):
    (tmp_path / "model.py").write_text(FILE.format(folder=str(Path(__file__).parent)))

    def run(*words):
        command = [sys.executable, "-m", "smdwidgets", "coordcheck", *words, "--steps", "3", "--seeds", "1"]
        return subprocess.run(
            command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, cwd=tmp_path
        )

    failed = run("model.py")
    assert failed.returncode == 1, failed.stderr
    assert failed.stdout.startswith("coordinate check FAILED: 4 widths, 3 updates, 1 seed\n")
    assert "text of the file" in failed.stderr
    passed = run("model.py:make_scaled", "--json")
    assert passed.returncode == 0, passed.stdout + passed.stderr
    content = json.loads(passed.stdout)
    assert content["passed"] is True
