"""Rules on real trainings with PyTorch: a fault planted in each, and a healthy one."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))
from ruling import first_firing

from smdwidgets import create_trial, modes
from smdwidgets.pytorch import Hook, SaveConfig


class Net(nn.Module):
    def __init__(self, depth=2, activation=nn.ReLU, bias=None):
        super().__init__()
        self.activation = activation.__name__.lower()
        sizes = [8] + [16] * depth
        for i in range(depth):
            layer = nn.Linear(sizes[i], sizes[i + 1])
            if bias is not None:
                nn.init.constant_(layer.bias, bias)
            self.add_module(f"fc{i}", layer)
            self.add_module(f"{self.activation}{i}", activation())
        self.out = nn.Linear(16, 3)
        self.depth = depth

    def forward(self, x):
        for i in range(self.depth):
            x = getattr(self, f"{self.activation}{i}")(getattr(self, f"fc{i}")(x))
        return self.out(x)


def train(path, *, steps=20, rate=0.05, change=None, frozen=False, evaluate=0, noise=0.0, **net):
    torch.manual_seed(0)
    model = Net(**net)
    x = torch.randn(64, 8)
    y = (x[:, :3] + noise * torch.randn(64, 3)).argmax(1)
    held = torch.randn(64, 8), torch.randint(0, 3, (64,))
    loss_of = nn.CrossEntropyLoss()
    if frozen:
        model.fc1.requires_grad_(False)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=rate)
    hook = Hook(path, save_all=True, save_config=SaveConfig(save_interval=1))
    hook.register_module(model)
    hook.register_loss(loss_of)
    for step in range(steps):
        if change and step in change:
            change[step](model, optimizer)
        hook.set_mode(modes.TRAIN)
        optimizer.zero_grad()
        loss = loss_of(model(x), y)
        loss.backward()
        optimizer.step()
        if evaluate and step % evaluate == evaluate - 1:
            hook.set_mode(modes.EVAL)
            with torch.no_grad():
                loss_of(model(held[0]), held[1])
    hook.close()
    return path


@pytest.fixture(scope="module")
def healthy(tmp_path_factory):
    return train(tmp_path_factory.mktemp("healthy") / "run")


@pytest.mark.parametrize(
    ("rule", "parameters"),
    [
        ("VanishingGradient", {}),
        ("ExplodingTensor", {}),
        ("DeadRelu", {}),
        ("WeightUpdateRatio", {}),
        ("LossNotDecreasing", {}),
        ("UnchangedTensor", {"collection_names": "weights"}),
        ("AllZero", {"collection_names": "weights"}),
        ("TensorVariance", {"collection_names": "weights", "max_threshold": 10}),
        ("GradientNormSpike", {}),
        ("LossSpike", {}),
        ("WeightNormGrowth", {}),
        ("ActivationCollapse", {}),
        ("ClassImbalance", {"samples": 64, "threshold_misprediction": 1}),
    ],
)
def test_silence_on_a_healthy_training(healthy, rule, parameters):
    assert first_firing(healthy, rule, **parameters) is None


def test_vanishing_gradient(tmp_path):
    assert first_firing(train(tmp_path / "run", depth=16, activation=nn.Sigmoid, steps=4), "VanishingGradient") == 0


def test_exploding_tensor(tmp_path):
    run = train(tmp_path / "run", rate=1e18, steps=12)
    trial = create_trial(run)
    expected = next(
        step
        for step in trial.steps()
        if any(
            not np.isfinite(value).all()
            for name in trial.tensor_names(step=step)
            if (value := trial.tensor(name).value(step)).dtype.kind == "f"
        )
    )
    assert first_firing(run, "ExplodingTensor") == expected
    assert first_firing(run, "LossSpike") is not None


def test_dead_relu(tmp_path):
    assert first_firing(train(tmp_path / "run", bias=-20.0, steps=3), "DeadRelu") == 0

    def kill(model, optimizer):
        nn.init.constant_(model.fc0.bias, -50.0)

    assert first_firing(train(tmp_path / "later", change={7: kill}), "DeadRelu") == 7


def test_saturated_activation(tmp_path):
    def scale(model, optimizer):
        with torch.no_grad():
            model.fc0.weight.mul_(1e6)

    run = train(tmp_path / "run", activation=nn.Tanh, change={6: scale})
    assert first_firing(run, "SaturatedActivation") == 6


def test_weights_that_do_not_move(tmp_path):
    assert first_firing(train(tmp_path / "slow", rate=1e-12), "WeightUpdateRatio") == 1
    frozen = train(tmp_path / "frozen", frozen=True)
    assert first_firing(frozen, "WeightUpdateRatio") == 1
    assert first_firing(frozen, "UnchangedTensor", collection_names="weights") == 2

    def stop(model, optimizer):
        optimizer.param_groups[0]["lr"] = 0.0

    assert first_firing(train(tmp_path / "stopped", steps=30, change={10: stop}), "LossNotDecreasing") == 20


def test_overfit(tmp_path):
    run = train(tmp_path / "run", steps=60, rate=0.5, evaluate=5)
    trial = create_trial(run)
    loss = trial.tensor("CrossEntropyLoss_output_0")
    training, expected = [], None
    for step in trial.steps():
        if trial.mode(step) is modes.TRAIN:
            training = [] if len(training) == 5 else training
            training.append(float(loss.value(step)))
        elif expected is None and (float(loss.value(step)) - np.mean(training)) / np.mean(training) > 0.1:
            expected = step
    assert expected is not None
    assert first_firing(run, "Overfit") == expected
