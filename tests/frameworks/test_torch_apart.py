"""Code of the script that checks call once more leaves no trace in the training."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

import smdwidgets
import smdwidgets.pytorch as smd
from smdwidgets.checks.torch.trials_apart import is_self_contained

CALLS = 0
AVERAGES = []
UPDATES = 20


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


class Averaging(torch.optim.SGD):
    """Moves a list of averages at each update, and scales by them."""

    def step(self, closure=None):
        """Update."""
        super().step()
        AVERAGES.append(_size(self.param_groups))
        for one in self.param_groups[0]["params"]:
            one.data.mul_(1 - 0.001 * len(AVERAGES))


class Keeping(torch.optim.SGD):
    """Calls the update of the library, and nothing outside."""

    def step(self, closure=None):
        """Update."""
        super().step()


def _size(groups):
    return sum(one.numel() for one in groups[0]["params"])


def train(kind, run=None):
    """Return the weights after some updates."""
    global CALLS
    CALLS = 0
    AVERAGES.clear()
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    model = torch.nn.Linear(6, 3)
    optimizer = kind(model.parameters(), **({"lr": 0.01} if issubclass(kind, torch.optim.SGD) else {}))
    hook = None if run is None else smd.record(model, run, checks=True)
    for _ in range(UPDATES):
        optimizer.zero_grad()
        model(torch.randn(8, 6)).square().mean().backward()
        optimizer.step()
    if hook is not None:
        assert hook.global_step == UPDATES - 1  # what is tried is no step
        hook.close()
        assert not hook.parts.guard.failures
        assert not smdwidgets.create_trial(run).checks().off
    return model.weight.detach().clone()


@pytest.mark.parametrize("kind", [Noisy, Counting, Averaging, Keeping])
def test_trying_an_optimizer_changes_nothing(kind, tmp_path):
    assert torch.equal(train(kind), train(kind, tmp_path / "run"))


def test_optimizers_that_use_what_is_outside_are_known():
    assert is_self_contained(Noisy)
    assert is_self_contained(Keeping)
    assert not is_self_contained(Counting)
    assert not is_self_contained(Averaging)
    assert is_self_contained(torch.optim.SGD)


@pytest.mark.parametrize("when", ["before", "beside", "itself"])
def test_checks_run_on_a_model_beside_another_that_was_compiled(tmp_path, when):
    other, model = torch.nn.Linear(4, 4), torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 2))
    other.compile(backend="eager")
    scaled = torch.compile(lambda x: 3 * x, backend="eager")
    if when == "before":
        other(torch.randn(2, 4))
    if when == "itself":
        model.compile(backend="eager")
    with smd.Hook(tmp_path / "run", plan=False, checks=True) as hook:
        hook.register_module(model)
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        for _ in range(4):
            if when == "beside":  # it may be a function that calls the model
                scaled(torch.randn(2, 4))
            optimizer.zero_grad()
            model(torch.randn(8, 4)).square().mean().backward()
            optimizer.step()
    assert bool(smdwidgets.create_trial(tmp_path / "run").checks().off) is (when != "before")
