"""The plan of the PyTorch hook shows what broke a training."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from smdwidgets import create_trial

#: A training whose second layer returns a NaN once.
SCRIPT = """
import sys
import torch
import smdwidgets.pytorch as smd

torch.manual_seed(0)
torch.set_num_threads(1)

class Poisoned(torch.nn.Linear):
    poison = False
    def forward(self, x):
        return super().forward(x * float("nan") if self.poison else x)

net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), Poisoned(16, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
criterion, optimizer = torch.nn.MSELoss(), torch.optim.Adam(net.parameters(), 1e-3)
hook = smd.Hook(sys.argv[1], plan={"statistics": 1})  # a slow machine would take less of a long training
hook.register_module(net)
hook.register_loss(criterion)
for step in range(1000):
    net[2].poison = step == 337
    x = torch.randn(16, 8)
    optimizer.zero_grad()
    criterion(net(x), x[:, :1]).backward()
    optimizer.step()
"""

#: The activations, in forward order.
FORWARD = [
    "Sequential_input_0",
    "0_input_0",
    "0_output_0",
    "1_output_0",
    "2_input_0",
    "2_output_0",
    "3_output_0",
    "4_output_0",
]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("planted")
    script = folder / "train.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, str(script), str(folder / "run")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder / "run"


def test_nan_of_step_337_is_found_at_its_layer_with_the_inputs_of_the_step_before(run):
    assert sum(path.stat().st_size for path in run.rglob("*") if path.is_file()) < 2 * 10**9
    with create_trial(run) as trial:
        (incident, *_) = trial.incidents()
        assert incident.step == 337
        assert {336, 337, 338} <= set(incident.steps)

        def finite(name, step):
            return bool(np.isfinite(trial.tensor(name).value(step)).all())

        assert [finite(name, 337) for name in FORWARD] == [True] * 5 + [False] * 3
        assert all(finite(name, 336) for name in FORWARD)
        assert trial.tensor("2_input_0").value(336).shape == (16, 16)
        losses = trial.tensor("MSELoss_output_0")
        assert losses.steps() == list(range(1000))
        assert next(step for step in losses.steps() if not np.isfinite(losses.value(step)).all()) == 337


def test_statistics_name_the_first_tensor_at_the_exact_step(run):
    with create_trial(run) as trial:
        table = trial.statistics(names=FORWARD, columns=["nan", "count"])
        nan = {
            (name, step): count for name, step, count in zip(table["name"], table["step"], table["nan"], strict=True)
        }
    assert {step for (_, step), count in nan.items() if count and step < 337} == set()
    assert next(name for name in FORWARD if nan[name, 337]) == "2_output_0"


def test_script_that_configures_collections_has_no_plan(run, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        SCRIPT.replace(', plan={"statistics": 1}', ", include_collections=['weights']").replace("1000", "3")
    )
    subprocess.run([sys.executable, str(script), str(tmp_path / "run")], check=True)
    with create_trial(tmp_path / "run") as trial:
        assert trial.steps() == [0]
    assert not (tmp_path / "run/statistics").exists()
