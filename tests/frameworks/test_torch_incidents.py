"""An incident of a whole PyTorch training with the defaults alone."""

from __future__ import annotations

import numpy as np

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
hook = smd.Hook(sys.argv[1])
hook.register_module(model)
hook.register_loss(criterion)
for step in range(1000):
    x = torch.randn(8, 16)
    optimizer.zero_grad()
    criterion(model(x, step == 337), x[:, :1]).backward()
    optimizer.step()
"""


def test_nan_at_step_337_of_1000_shows_its_cause_with_the_defaults_alone(tmp_path):
    done = run_script(SCRIPT, tmp_path, tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert "failed and is called no more" not in done.stderr, done.stderr
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
        assert any("head_input_0" in one.series and one.onset == 337 for one in diagnose(trial).findings)
    assert sum(file.stat().st_size for file in (tmp_path / "run").rglob("*") if file.is_file()) < 2e9
