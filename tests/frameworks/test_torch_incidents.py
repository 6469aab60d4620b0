"""An incident of a whole PyTorch training with the defaults alone."""

from __future__ import annotations

import numpy as np
import pytest

from endings.running import run_script
from smdwidgets import create_trial, diagnose

SCRIPT = """
import sys
import torch
from torch import nn
import smdwidgets.pytorch as smd

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.act, self.fc2, self.head = nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16), nn.Linear(16, 1)

    def forward(self, x, poison=False):
        h = self.fc2(self.act(self.fc1(x)))
        if poison:
            h = h * torch.log(-1 - h.abs())
        return self.head(torch.tanh(h))

torch.manual_seed(0)
model, criterion = Net(), nn.MSELoss()
optimizer = torch.optim.SGD(model.parameters(), 0.01)
hook = smd.Hook(sys.argv[1], plan={"statistics": 1})  # a slow machine would take less of a long training
hook.register_module(model)
hook.register_loss(criterion)
for step in range(1000):
    x = torch.randn(8, 16)
    optimizer.zero_grad()
    criterion(model(x, step == 337), x[:, :1]).backward()
    optimizer.step()
"""


def test_nan_at_step_337_of_1000_shows_its_cause(tmp_path):
    done = run_script(SCRIPT, tmp_path, tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert "failed and was removed" not in done.stderr, done.stderr
    with create_trial(tmp_path / "run") as trial:
        [incident] = trial.incidents()
        assert incident.step == 337
        assert incident.why == ("NaN in 'head_input_0'",)
        assert {336, 337} <= set(incident.steps)
        before = trial.tensor_names(step=336)
        assert {"Net_input_0", "fc1_input_0", "fc2_output_0", "head_input_0", "Net_fc1.weight"} <= set(before)
        assert all(np.isfinite(trial.tensor(name).value(336)).all() for name in before)
        assert np.isfinite(trial.tensor("fc2_output_0").value(337)).all()
        assert np.isnan(trial.tensor("head_input_0").value(337)).all()
        assert any("head_input_0" in one.names and one.first == 337 for one in diagnose(trial).findings)
    assert sum(file.stat().st_size for file in (tmp_path / "run").rglob("*") if file.is_file()) < 2e9


WITHOUT_WEIGHT_IN_THE_NAME = """
import sys
import torch
from torch import nn
import torch.nn.functional as F
import smdwidgets.pytorch as smd

class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_up_proj = nn.Parameter(torch.randn(4, 16, 16) * 0.1)
    def forward(self, x):
        return F.gelu(x @ self.gate_up_proj[0])

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj, self.experts, self.head = nn.Linear(8, 16), Experts(), nn.Linear(16, 1)
        self.pos_embed = nn.Parameter(torch.zeros(1, 4, 16))
        self.frozen = nn.Parameter(torch.ones(3), requires_grad=False)
    def forward(self, x):
        return self.head(self.experts(self.proj(x) + self.pos_embed).mean(1))

torch.manual_seed(0)
model = Net()
optimizer = torch.optim.AdamW(model.parameters(), 0.01)
hook = smd.record(model, sys.argv[1])
kind = sys.argv[2]
for step in range(60):
    x = torch.randn(16, 4, 8)
    y = x.sum((1, 2))[:, None]
    if kind == "loss" and step == 40:
        y = y * 1e38
    optimizer.zero_grad()
    F.mse_loss(model(x), y).backward()
    optimizer.step()
    with torch.no_grad():
        if kind == "weight" and step == 39:
            model.pos_embed[0, 0, 3] = float("nan")
"""


def damaged(tmp_path, kind):
    done = run_script(WITHOUT_WEIGHT_IN_THE_NAME, tmp_path, tmp_path / "run", kind)
    assert done.returncode == 0, done.stderr
    return create_trial(tmp_path / "run")


def at_40(trial):
    """Return the incident of the damage. There may be a spike before."""
    [found] = [incident for incident in trial.incidents() if incident.step == 40]
    return found


def test_every_parameter_is_a_weight_of_the_default_plan(tmp_path):
    with damaged(tmp_path, "weight") as trial:
        parameters = {"Net_pos_embed", "Net_frozen", "Net_experts.gate_up_proj", "Net_proj.weight", "Net_head.bias"}
        assert parameters <= set(trial.tensor_names())
        for name in parameters:
            table = trial.statistics(name, columns=["l2", "update_ratio"])
            assert len(table["step"]) == 60
        assert {"Net_pos_embed", "Net_experts.gate_up_proj"} <= set(trial.tensor_names(collection="weights"))
        assert at_40(trial).why[0] == "NaN in 'Net_pos_embed'"


def test_loss_that_overflows_is_named(tmp_path):
    with damaged(tmp_path, "loss") as trial:
        assert at_40(trial).why[0] == "infinity in 'loss_output_0'"


NAN_IN_A_GRADIENT = """
import sys
import torch
from torch import nn
import torch.nn.functional as F
import smdwidgets.pytorch as smd

class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc1, self.fc2, self.head = nn.Linear(16, width), nn.Linear(width, 32), nn.Linear(32, 1)

    def forward(self, x):
        return self.head(F.relu(self.fc2(F.relu(self.fc1(x)))))

torch.manual_seed(0)
model = Net(int(sys.argv[2]))
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
hook = smd.Hook(sys.argv[1], plan={"statistics": 64})  # no gradient is due at the step
hook.register_module(model)
for step in range(400):
    x = torch.randn(8, 16)
    loss = F.mse_loss(model(x), x[:, :1])
    optimizer.zero_grad()
    loss.backward()
    if step == 337:
        model.fc2.weight.grad[1, 1] = float("nan")
    optimizer.step()
"""


@pytest.mark.parametrize("width", [32, 4096])
def test_nan_in_a_gradient_that_is_not_due_is_named(tmp_path, width):
    done = run_script(NAN_IN_A_GRADIENT, tmp_path, tmp_path / "run", width)
    assert done.returncode == 0, done.stderr
    assert "failed and was removed" not in done.stderr, done.stderr
    with create_trial(tmp_path / "run") as trial:
        incident = trial.incidents()[0]
        assert (incident.step, incident.why[0]) == (337, "NaN in 'gradient/Net_fc2.weight'")
