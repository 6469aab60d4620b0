"""A training with tensors of more than a megabyte, on any device."""

from __future__ import annotations

import torch
from torch import nn

from smdwidgets.hooks.torch.device import DeviceCopies
from smdwidgets.pytorch import record

ROWS, INPUTS, UNITS = 128, 80, 4096


class Wide(nn.Module):
    """Has weights and outputs of more than a megabyte."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(INPUTS, UNITS), nn.Linear(UNITS, 8)

    def forward(self, x):
        """Return the outputs."""
        return self.last(self.first(x).relu())


def train_wide(run, accelerator=None, steps=8, breaks=None, device="cpu", **options):
    """Train; return the losses, and the tensors of each step.

    ``breaks``: the step at which an input is NaN.
    """
    torch.manual_seed(0)
    model = Wide().to(device)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    outputs, losses, expected = [], [], {}
    model.first.register_forward_hook(lambda module, inputs, output: outputs.append(output.detach().clone()))
    hook = None
    if run is not None:
        hook = record(model, run, **options)
        if accelerator is not None:
            hook.parts.tensors.devices = DeviceCopies(accelerator)
    for step in range(steps):
        inputs = torch.randn(ROWS, INPUTS, device=device)
        if step == breaks:
            inputs[7, 3] = float("nan")
        weight = model.first.weight.detach().clone()
        optimizer.zero_grad()
        loss = model(inputs).square().mean()
        loss.backward()
        gradient = model.first.weight.grad.clone()
        optimizer.step()
        losses.append(loss.item())
        expected[step] = {
            "Wide_first.weight": weight,
            "gradient/Wide_first.weight": gradient,
            "first_output_0": outputs[-1],
        }
    if hook is not None:
        hook.close()
    return losses, expected
