"""Samples of a PyTorch model's tensors, compared with a recording without a plan."""

from __future__ import annotations

import subprocess
import sys

import numpy as np

from smdwidgets import create_trial
from smdwidgets.hooks.writing.samples import sample_of

TRAINING = """
import sys
import torch
from smdwidgets.pytorch import Hook, SaveConfig

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 300), torch.nn.Linear(300, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
choice = {"plan": {"budget": "2MB"}} if sys.argv[2] == "plan" else {
    "plan": False, "save_config": SaveConfig(save_interval=1), "include_collections": ["weights", "gradients"]}
hook = Hook(sys.argv[1], **choice)
hook.register_module(model)
for step in range(40):
    optimizer.zero_grad()
    model(torch.randn(16, 64)).square().mean().backward()
    optimizer.step()
hook.close()
"""


def test_samples_are_elements_of_another_recording(tmp_path):
    for plan in ("plan", "none"):
        subprocess.run([sys.executable, "-c", TRAINING, str(tmp_path / plan), plan], check=True)
    with create_trial(tmp_path / "plan") as trial, create_trial(tmp_path / "none") as whole:
        for name in ("Sequential_0.weight", "gradient/Sequential_0.weight"):
            tensor, other = trial.tensor(name), whole.tensor(name)
            steps = tensor.sample_steps("TRAIN")
            assert set(steps) - set(tensor.steps_with_value("TRAIN"))
            for step in steps:
                value = other.value(step, "TRAIN")
                np.testing.assert_array_equal(tensor.sample(step, "TRAIN"), sample_of(value, value.shape[-1]))
