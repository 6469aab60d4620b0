"""Buffers, collections by module class, and trainable parameters."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from smdwidgets import create_trial
from smdwidgets.exceptions import SMDebugTypeError
from smdwidgets.pytorch import Hook, SaveConfig
from smdwidgets.rules.builtin.dead_relu import DeadRelu

EVERY = SaveConfig(save_interval=1)


class MyAct(nn.ReLU):
    pass


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.act = nn.Linear(4, 4), MyAct()

    def forward(self, x):
        return self.act(self.linear(x))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.relu_like = nn.LeakyReLU()
        self.register_buffer("cache", torch.ones(3), persistent=False)

    def forward(self, x):
        x = self.norm(x)
        for block in self.blocks:
            x = block(x)
        return self.relu_like(x)


def train(model, steps=2):
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    for _ in range(steps):
        model(torch.randn(8, 4)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def test_buffers_are_saved_as_the_step_uses_them(tmp_path):
    model = Net()
    means = []
    model.register_forward_pre_hook(lambda module, args: means.append(module.norm.running_mean.clone()))
    with Hook(tmp_path, include_collections=["buffers"], save_config=EVERY) as hook:
        hook.register_module(model)
        train(model)
    with create_trial(tmp_path) as trial:
        names = [f"Net_norm.{name}" for name in ("num_batches_tracked", "running_mean", "running_var")]
        assert trial.tensor_names(collection="buffers") == names
        assert trial.tensor_names(regex="^Net_") == names
        mean = trial.tensor("Net_norm.running_mean")
        assert [torch.from_numpy(mean.value(step)).tolist() for step in (0, 1)] == [one.tolist() for one in means]
        assert trial.tensor("Net_norm.num_batches_tracked").value(1) == 1


def test_buffers_belong_to_save_all(tmp_path):
    with Hook(tmp_path, save_all=True, save_config=EVERY) as hook:
        hook.register_module(model := Net())
        train(model, 1)
    with create_trial(tmp_path) as trial:
        assert "Net_norm.running_var" in trial.tensor_names(step=0)
        assert "Net_cache" not in trial.tensor_names(step=0)


def test_collection_of_a_module_class(tmp_path):
    with Hook(tmp_path, save_config=EVERY) as hook:
        hook.collection("blocks", modules=Block)
        hook.collection("activations", modules=(nn.ReLU, nn.LeakyReLU), inputs=False)
        hook.register_module(model := Net())
        train(model)
    with create_trial(tmp_path) as trial:
        parameters = [f"Net_blocks.{i}.linear.{kind}" for i in (0, 1) for kind in ("bias", "weight")]
        gradients = [f"gradient/{name}" for name in parameters]
        calls = [f"blocks.{i}_{kind}_0" for i in (0, 1) for kind in ("input", "output")]
        assert trial.tensor_names(step=1, collection="blocks") == sorted([*parameters, *gradients, *calls])
        outputs = ["blocks.0.act_output_0", "blocks.1.act_output_0", "relu_like_output_0"]
        assert trial.tensor_names(step=1, collection="activations") == outputs
        assert trial.modules()["blocks.0.act"] == ["MyAct", "ReLU"]


def test_collection_of_trainable_parameters(tmp_path):
    model = Net()
    for name, parameter in model.named_parameters():
        parameter.requires_grad = "blocks.1" in name
    with Hook(tmp_path, save_config=EVERY) as hook:
        hook.collection("adapters", trainable=True)
        hook.register_module(model)
        train(model)
    with create_trial(tmp_path) as trial:
        parameters = [f"Net_blocks.1.linear.{kind}" for kind in ("bias", "weight")]
        assert trial.tensor_names(step=1, regex="Net_") == [*parameters, *(f"gradient/{name}" for name in parameters)]


def test_collection_takes_module_classes_only(tmp_path):
    with (
        Hook(tmp_path) as hook,
        pytest.raises(SMDebugTypeError, match="must be subclasses of"),
    ):
        hook.collection("attention", modules=["attention"])


def test_dead_relu_is_found_whatever_its_name(tmp_path):
    model = Net()
    torch.nn.init.constant_(model.blocks[1].linear.bias, -100)
    with Hook(tmp_path, save_all=True, save_config=EVERY) as hook:
        hook.register_module(model)
        for _ in range(3):
            model(torch.randn(32, 4)).sum().backward()
    rule = DeadRelu(create_trial(tmp_path))
    rule.invoke_at_step(0)
    assert [finding.subject for finding in rule.findings] == ["blocks.1.act_output_0"]
