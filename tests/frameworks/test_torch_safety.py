"""Test that a hook neither changes nor ends a training.

It warns of what it cannot record, and what it records is right.
"""

from __future__ import annotations

import dataclasses
import logging

import pytest
import torch
from torch import nn

from smdwidgets import create_trial
from smdwidgets.pytorch import Hook, SaveConfig

EVERY = SaveConfig(save_interval=1)


@pytest.fixture
def run(tmp_path):
    return tmp_path / "run"


def value(run, name, step=0):
    with create_trial(run) as trial:
        return torch.from_numpy(trial.tensor(name).value(step))


def test_input_is_saved_before_the_module_changes_it_in_place(run):
    x = torch.linspace(-2, 2, 8).reshape(2, 4)
    with Hook(run, save_all=True, save_config=EVERY) as hook:
        model = nn.Sequential(nn.Identity(), nn.ReLU(inplace=True))
        hook.register_module(model)
        model(x.clone())
    assert torch.equal(value(run, "1_input_0"), x)
    assert torch.equal(value(run, "1_output_0"), x.relu())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool])
@pytest.mark.parametrize("shape", [(), (3, 4), (500, 1000), (2, 0)])
def test_saving_leaves_memory_resizable(run, shape, dtype):
    """FSDP frees the memory of tensors that it has gathered."""
    given = (torch.rand(shape) > 0.5).to(dtype)
    with Hook(run, save_all=True, save_config=EVERY) as hook:
        model = nn.Sequential(nn.Identity())
        hook.register_module(model)
        output = model(given)
        assert given.untyped_storage().resizable()
        assert output.untyped_storage().resizable()
    with create_trial(run) as trial:
        assert trial.tensor("0_input_0").value(0).astype("f4").tolist() == given.float().tolist()


def test_keyword_inputs_and_data_class_outputs(run):
    @dataclasses.dataclass
    class Output:
        loss: torch.Tensor
        hidden: tuple[torch.Tensor, ...]
        cache: object = None

    class Inner(nn.Module):
        def forward(self, x, *, scale):
            return Output(x.sum(), (x * scale, x + scale))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Inner()

        def forward(self, x):
            return self.inner(x, scale=torch.tensor(3.0)).loss

    with Hook(run, save_all=True, save_config=EVERY) as hook:
        model = Net()
        hook.register_module(model)
        model(torch.ones(2, 4))
    assert value(run, "inner_input_0").tolist() == torch.ones(2, 4).tolist()
    assert value(run, "inner_input_1").item() == 3
    assert [value(run, f"inner_output_{i}").sum().item() for i in range(3)] == [8, 24, 32]


def test_lazy_modules_are_recorded_once_they_have_parameters(run):
    with Hook(run, save_all=True, save_config=EVERY) as hook:
        model = nn.Sequential(nn.LazyLinear(3), nn.LazyBatchNorm1d(), nn.Linear(3, 1))
        hook.register_module(model)
        for _ in range(3):
            model(torch.randn(4, 5)).sum().backward()
    with create_trial(run) as trial:
        assert trial.steps() == [0, 1, 2]
        assert trial.tensor("Sequential_0.weight").steps() == [1, 2]
        assert trial.tensor("gradient/Sequential_0.weight").steps() == [1, 2]


def test_failure_in_a_callback_is_a_warning(run, caplog, monkeypatch):
    hook = Hook(run, save_all=True, save_config=EVERY)
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
    hook.register_module(model)
    monkeypatch.setattr(hook.parts.tensors, "capture", lambda *_: 1 / 0)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            model(torch.ones(2, 4)).sum().backward()
    assert model[0].weight.grad is not None
    assert [record.getMessage() for record in caplog.records] == [
        (
            "recording failed, and the training continues: ZeroDivisionError: division by zero; "
            "further failures of this kind are not logged"
        )
    ]
    hook.close()


def test_report_at_close_knows_the_registered_model(run, caplog):
    hook = Hook(run, include_collections=["gradients"], save_config=EVERY)
    model = nn.Linear(4, 3)
    hook.register_module(model)
    for _ in range(3):
        model(torch.ones(2, 4))
    hook.close()
    assert "no backward pass was seen" in caplog.text
    assert "no model was registered" not in caplog.text
