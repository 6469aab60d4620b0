"""A whole training in float8, with and without a hook, in a process each."""

from __future__ import annotations

import json

import ml_dtypes
import numpy as np
import pytest

from endings.running import run_script
from smdwidgets import create_trial, diagnose

SCRIPT = """
import json
import sys
import numpy as np
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)
torch.set_num_threads(1)
LIMITS = {torch.float8_e4m3fn: 448.0, torch.float8_e5m2: 57344.0}

class Cast(nn.Module):
    '''Casts with a scale that is set once.'''
    def __init__(self, dtype, scale):
        super().__init__()
        self.dtype, self.scale = dtype, scale
    def forward(self, x):
        most = LIMITS[self.dtype]
        return (x.detach() * self.scale).clamp(-most, most).to(self.dtype)

class Through(torch.autograd.Function):
    '''Values that were cast; gradients are cast to float8_e5m2.'''
    @staticmethod
    def forward(ctx, x, cast, scale):
        return cast.to(x.dtype) / scale
    @staticmethod
    def backward(ctx, gradient):
        scale = 57344.0 / gradient.abs().max().clamp_min(1e-12)
        return (gradient * scale).to(torch.float8_e5m2).to(gradient.dtype) / scale, None, None

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.cast, self.last = nn.Linear(8, 64), Cast(torch.float8_e4m3fn, 60.0), nn.Linear(64, 3)
    def forward(self, x):
        hidden = self.first(x)
        return self.last(torch.relu(Through.apply(hidden, self.cast(hidden), self.cast.scale)))

model = Net()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
seen, losses = {}, []
model.cast.register_forward_hook(lambda module, inputs, output: seen.update({str(len(losses)): output.view(torch.uint8).clone()}))
if sys.argv[2] == "hook":
    import smdwidgets.pytorch as smd
    hook = smd.Hook(sys.argv[1], save_all=True, save_config=smd.SaveConfig(save_interval=1))
    hook.register_module(model)
for step in range(40):
    x = torch.randn(32, 8) * (1.0 if step < 20 else 12.0)  # the scale of the cast stays as it was
    loss = F.cross_entropy(model(x), x[:, :3].argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item().hex())
np.savez("seen.npz", **{step: codes.numpy() for step, codes in seen.items()})
weights = {name: p.detach().numpy().tobytes().hex() for name, p in model.named_parameters()}
print("RESULT" + json.dumps([losses, weights]))
"""


def result(done):
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.partition("RESULT")[2])


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("float8")
    bare = result(run_script(SCRIPT, folder, folder / "run", "bare"))
    assert result(run_script(SCRIPT, folder, folder / "run", "hook")) == bare
    with np.load(folder / "seen.npz") as file:
        seen = {int(step): file[step] for step in file.files}
    with create_trial(folder / "run") as trial:
        yield trial, seen


def test_the_hook_changes_nothing_and_saves_the_codes(trained):
    trial, seen = trained
    tensor = trial.tensor("cast_output_0")
    assert tensor.steps() == [*range(40)]
    for step, codes in seen.items():
        value = tensor.value(step)
        assert value.dtype == ml_dtypes.float8_e4m3fn
        assert value.tobytes() == codes.tobytes()
    assert trial.notes() == []


def test_counts_are_those_of_the_codes(trained):
    trial, seen = trained
    table = trial.statistics("cast_output_0", columns=["count", "zeros", "saturated", "subnormal"])
    for row, step in enumerate(table["step"].tolist()):
        wide = seen[step].view(ml_dtypes.float8_e4m3fn).astype(float)
        assert table["saturated"][row] == (abs(wide) == 448).sum()
        assert table["zeros"][row] == (wide == 0).sum()
        assert table["subnormal"][row] == ((wide != 0) & (abs(wide) < 2**-6)).sum()


def test_a_scale_that_no_longer_fits_is_named(trained):
    trial, _ = trained
    [finding] = [one for one in diagnose(trial).listed if one.kind == "beyond_range"]
    assert (finding.subject, finding.first) == ("cast_output_0", 20)
