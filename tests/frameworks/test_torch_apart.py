"""Code of the script that checks call once more leaves no trace in the training."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

import smdwidgets.pytorch as smd
from smdwidgets.checks.torch.trials_apart import changes_globals

CALLS = 0


class Noisy(torch.optim.Optimizer):
    """Descends with noise from three generators."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.01})

    @torch.no_grad()
    def step(self, closure=None):
        """Update."""
        for one in self.param_groups[0]["params"]:
            noise = random.random() + float(np.random.rand()) + float(torch.rand(()))
            one.sub_(one.grad, alpha=0.01 * (1 + noise))


class Counting(torch.optim.Optimizer):
    """Descends by a rate that falls with the calls of all optimizers."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.01})

    @torch.no_grad()
    def step(self, closure=None):
        """Update."""
        global CALLS
        CALLS += 1
        for one in self.param_groups[0]["params"]:
            one.sub_(one.grad, alpha=0.1 / CALLS)


def train(kind, run=None):
    """Return the weights after some updates."""
    global CALLS
    CALLS = 0
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    model = torch.nn.Linear(6, 3)
    optimizer = kind(model.parameters())
    hook = None if run is None else smd.record(model, run, checks=True)
    for _ in range(20):
        optimizer.zero_grad()
        model(torch.randn(8, 6)).square().mean().backward()
        optimizer.step()
    if hook is not None:
        hook.close()
    return model.weight.detach().clone()


@pytest.mark.parametrize("kind", [Noisy, Counting])
def test_trying_an_optimizer_changes_nothing(kind, tmp_path):
    assert torch.equal(train(kind), train(kind, tmp_path / "run"))


def test_functions_that_set_outer_variables_are_known():
    assert changes_globals(Counting.step.__wrapped__)
    assert not changes_globals(Noisy.step.__wrapped__)
