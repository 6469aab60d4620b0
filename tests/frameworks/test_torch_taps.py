"""Callbacks on modules are registered only while a step is saved.

They record as if they always were.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn

from smdwidgets import create_trial
from smdwidgets.pytorch import Hook, SaveConfig, SaveConfigMode, modes


@pytest.fixture(autouse=True)
def nothing_compiled():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture(autouse=True)
def nothing_fails(caplog):
    yield
    assert not [record.message for record in caplog.get_records("call") if "recording failed" in record.message]


def make():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Linear(4, 1))
    return model, torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)


def callbacks(model):
    return [len(part._forward_hooks) + len(part._forward_pre_hooks) for part in model]


def register(run, model, interval=3, **options):
    hook = Hook(run, save_all=True, save_config=SaveConfig(save_interval=interval), **options)
    hook.register_module(model)
    return hook


def train(model, optimizer, steps, first=0, observe=lambda step, inputs: None):
    losses = []
    for step in range(first, first + steps):
        inputs = torch.randn(5, 4, generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        loss = model(inputs).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        observe(step, inputs)
    return losses


def test_modules_have_callbacks_at_saved_steps_only(tmp_path):
    bare = train(*make(), steps=8)
    model, optimizer = make()
    counts, values = {}, {}

    def observe(step, inputs):
        counts[step] = callbacks(model)
        values[step] = inputs

    with register(tmp_path, model) as hook:
        assert train(model, optimizer, steps=8, observe=observe) == bare
        assert hook.global_step == 7
    assert counts == {step: [2, 2, 2] if step % 3 == 0 else [0, 0, 0] for step in range(8)}
    assert callbacks(model) == [0, 0, 0]
    with create_trial(tmp_path) as trial:
        names = {f"{name}_{kind}_0" for name in ("Sequential", "0", "1", "2") for kind in ("input", "output")}
        for step in (0, 3, 6):
            assert names <= set(trial.tensor_names(step=step))
            for name in ("Sequential_input_0", "0_input_0"):
                assert torch.equal(torch.from_numpy(trial.tensor(name).value(step)), values[step])
            weight, bias = (
                torch.from_numpy(trial.tensor(f"Sequential_0.{name}").value(step)) for name in ("weight", "bias")
            )
            hidden = torch.from_numpy(trial.tensor("1_input_0").value(step))
            assert torch.equal(hidden, nn.functional.linear(values[step], weight, bias))
        for step in (1, 2, 4, 5, 7):
            assert not names & set(trial.tensor_names(step=step))


def test_callbacks_keep_their_place_among_those_of_the_script(tmp_path):
    model, optimizer = make()
    model[0].register_forward_hook(lambda module, inputs, output: output * 2)
    seen, later = {}, []
    model[1].register_forward_pre_hook(lambda module, inputs: later.append(inputs[0].clone()))

    def observe(step, inputs):
        seen[step] = later.pop()
        if step in (0, 2):  # with the callbacks of the hook, and without
            model[0].register_forward_hook(lambda module, inputs, output: output + 1)

    with register(tmp_path, model):
        train(model, optimizer, steps=7, observe=observe)
    with create_trial(tmp_path) as trial:
        for step, added in ((0, 0), (3, 2), (6, 2)):
            output = torch.from_numpy(trial.tensor("0_output_0").value(step))
            assert torch.equal(output + added if added < 2 else output + 1 + 1, seen[step])


def test_callbacks_that_the_script_removed_stay_removed(tmp_path):
    model, optimizer = make()

    def observe(step, inputs):
        if step == 0:
            model[2]._forward_hooks.clear()

    with register(tmp_path, model):
        train(model, optimizer, steps=5, observe=observe)
    with create_trial(tmp_path) as trial:
        assert trial.tensor("2_input_0").steps() == trial.tensor("0_output_0").steps() == [0, 3]
        assert trial.tensor("2_output_0").steps() == [0]


@pytest.mark.parametrize("compiles_at", [1, 2, 4])
def test_model_that_is_compiled_between_saved_steps(tmp_path, compiles_at, caplog):
    def run(model, optimizer):
        losses = train(model, optimizer, compiles_at)
        compiled = torch.compile(model, backend="eager")
        return losses + train(compiled, optimizer, 7 - compiles_at, first=compiles_at)

    bare = run(*make())
    torch._dynamo.reset()
    model, optimizer = make()
    with register(tmp_path, model):
        assert run(model, optimizer) == bare
    with create_trial(tmp_path) as trial:
        for name in ("0_input_0", "0_output_0", "1_output_0", "2_output_0"):
            assert trial.tensor(name).steps() == [0, 3, 6], name
    assert sum("compiles it once more" in record.message for record in caplog.records) <= 1


def test_training_step_that_continues_after_an_evaluation(tmp_path):
    model, optimizer = make()
    never = SaveConfigMode(save_interval=1, start_step=10**6)
    configs = {modes.TRAIN: SaveConfigMode(save_interval=2), modes.EVAL: never}
    batches = [torch.randn(5, 4) for _ in range(6)]
    with Hook(tmp_path, save_all=True, save_config=SaveConfig(configs)) as hook:
        hook.register_module(model)
        hook.register_optimizer(optimizer)
        for step in range(3):
            for half in range(2):
                model(batches[2 * step + half]).mean().backward()
                model.train(False)
                with torch.no_grad():
                    model(torch.zeros(5, 4))
                if not half:  # the first evaluation pass after an update is a separate step
                    assert callbacks(model) == [0, 0, 0]
                model.train()
            optimizer.step()
            optimizer.zero_grad()
    with create_trial(tmp_path) as trial:
        for name in ("Sequential_input", "0_input"):
            assert trial.tensor(f"{name}_0").steps(mode=modes.TRAIN) == [0, 2]
            for step in (0, 2):
                for half in range(2):
                    found = trial.tensor(f"{name}_{half}").value(step, mode=modes.TRAIN)
                    assert torch.equal(torch.from_numpy(found), batches[2 * step + half])
