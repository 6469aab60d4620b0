"""Scripts and subclasses that were written for smdebug's PyTorch hook."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

from smdwidgets import create_trial, modes
from smdwidgets.exceptions import SMDebugTypeError
from smdwidgets.pytorch import Hook, SaveConfig

EVERY = SaveConfig(save_interval=1)


class ImageHook(Hook):
    """Saves gradients of inputs and outputs, as public programs do."""

    called = 0

    def image_gradients(self, image):
        image.register_hook(self.backward_hook("image"))

    def forward_pre_hook(self, module, inputs):
        assert (type(module), inputs[0].shape, self.step) == (nn.Sequential, (5, 4), self.global_step)
        self.called += 1

    def forward_hook(self, module, inputs, outputs):
        name = self.module_maps[module]
        self._write_inputs(name, inputs)
        if outputs.requires_grad:
            outputs.register_hook(self.backward_hook(f"{name}_output"))
        if isinstance(module, nn.BatchNorm1d):
            self._write_outputs(f"{name}.running_mean", module.running_mean)
        self._write_outputs(name, outputs)
        self.last_saved_step = self.step


def _model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.Linear(3, 2))


def _train(model, steps=3, image=lambda x: None):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    losses = []
    for step in range(steps):
        x = torch.rand(5, 4, generator=torch.Generator().manual_seed(step)).requires_grad_()
        image(x)
        optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        losses.append((loss.item(), x.grad.clone()))
    return losses


def test_overridden_methods_are_called_and_what_they_save_is_right(tmp_path):
    plain = _train(_model())
    model = _model()
    outputs = []
    model[0].register_forward_hook(lambda module, inputs, output: outputs.append(output.detach().clone()))
    with ImageHook(tmp_path, save_all=True, save_config=EVERY) as hook:
        hook.register_hook(model)
        assert set(hook.module_set) == set(model.modules())
        trained = _train(model, image=hook.image_gradients)
        assert (hook.called, hook.last_saved_step) == (3, 2)
    assert all(a[0] == b[0] and torch.equal(a[1], b[1]) for a, b in zip(plain, trained, strict=True))
    with create_trial(tmp_path) as trial:
        for step in range(3):
            np.testing.assert_array_equal(trial.tensor("gradient/image").value(step), trained[step][1])
            np.testing.assert_array_equal(trial.tensor("0_output_0").value(step), outputs[step])
        assert trial.tensor("gradient/2_output").steps() == [0, 1, 2]
        assert trial.tensor("1.running_mean_output_0").value(0).any()
        assert not trial.notes()


def test_the_default_forward_hook_saves_what_the_hook_saves(tmp_path):
    class Counting(Hook):
        calls = 0

        def forward_hook(self, module, inputs, outputs):
            self.calls += 1
            super().forward_hook(module, inputs, outputs)

    for kind in (Hook, Counting):
        with kind(tmp_path / kind.__name__, save_all=True, save_config=EVERY) as hook:
            model = _model()
            hook.register_module(model)
            _train(model)
    assert hook.calls == 3 * 5
    with create_trial(tmp_path / "Hook") as plain, create_trial(tmp_path / "Counting") as counted:
        assert counted.tensor_names() == plain.tensor_names()
        for name in plain.tensor_names():
            assert counted.tensor(name).steps() == plain.tensor(name).steps()
            np.testing.assert_array_equal(counted.tensor(name).value(2), plain.tensor(name).value(2), name)


def test_an_overridden_backward_hook_sees_the_gradients_of_parameters_and_changes_none(tmp_path):
    seen = []

    class Doubling(Hook):
        def backward_hook(self, tname):
            def double(gradient):
                seen.append(tname)
                return 2 * gradient

            return double

    plain = _train(_model())
    model = _model()
    with Doubling(tmp_path, save_all=True, save_config=EVERY) as hook:
        hook.register_module(model)
        assert [loss for loss, _ in _train(model)] == [loss for loss, _ in plain]
    assert set(seen) == {f"Sequential_{name}" for name, _ in model.named_parameters()}


def test_a_failing_override_does_not_end_the_training(tmp_path):
    class Failing(Hook):
        def forward_hook(self, module, inputs, outputs):
            raise ValueError("of the script")

    model = _model()
    with Failing(tmp_path, save_all=True, save_config=EVERY) as hook:
        hook.register_module(model)
        _train(model)
    with create_trial(tmp_path) as trial:
        assert trial.tensor("Sequential_0.weight").steps() == [0, 1, 2]
        assert "of the script" in str(trial.notes())


def test_what_no_hook_calls_is_refused_when_the_class_is_defined():
    with pytest.raises(SMDebugTypeError, match="Mine overrides _log_params, which no hook calls"):
        type("Mine", (Hook,), {"_log_params": lambda self, module: None, "__module__": "train"})


def test_the_step_is_a_number_and_ends_when_it_is_called(tmp_path):
    model = _model()
    with Hook(tmp_path, save_all=True, save_config=EVERY) as hook:
        hook.register_module(model)
        _train(model, 4)
        assert (hook.step % 2, 1 <= hook.step < 4, hook.step == hook.global_step) == (1, True, True)
        hook.step()
        model(torch.rand(5, 4))
        assert hook.step == 4


def test_a_value_is_saved_whatever_the_collections_select(tmp_path):
    model = _model()
    with Hook(tmp_path, include_collections=["losses"], save_config=SaveConfig(save_interval=100)) as hook:
        hook.register_module(model)
        hook.set_mode(modes.EVAL)
        for batch in range(3):
            model(torch.rand(5, 4))
            hook._write_raw_tensor_simple("input_tokens", np.array([f"a{batch}", "b"]))
    with create_trial(tmp_path) as trial:
        assert [trial.tensor("input_tokens").value(step, mode=modes.EVAL)[0] for step in range(3)] == ["a0", "a1", "a2"]


_SCRIPT = """
import sys, torch, smdwidgets
smdwidgets.install_as_smdebug()
import smdebug.pytorch as smd
settings = {"save_all": True, "save_config": smd.SaveConfig(save_interval=5)}
hook = smd.Hook.create_from_json_file(sys.argv[2]) if len(sys.argv) > 2 else smd.Hook(sys.argv[1], **settings)
model = torch.nn.Sequential(torch.nn.Linear(4, 2))
hook.register_hook(model)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(8):
    optimizer.zero_grad()
    model(torch.rand(5, 4)).pow(2).mean().backward()
    optimizer.step()
model.eval()
with torch.no_grad():
    for _ in range(3):
        model(torch.rand(5, 4))
hook.close()
"""


@pytest.mark.parametrize("by", ["settings", "JSON"])
def test_steps_are_numbered_as_smdebug_does_where_the_script_sets_no_mode(tmp_path, by):
    run, file = tmp_path / "run", tmp_path / "hook.json"
    configured = [{"CollectionName": "all", "CollectionParameters": {"include_regex": ".*"}}]
    content = {"LocalPath": str(run), "HookParameters": {"save_interval": "5"}, "CollectionConfigurations": configured}
    file.write_text(json.dumps(content))
    arguments = [str(run)] if by == "settings" else [str(run), str(file)]
    subprocess.run([sys.executable, "-c", _SCRIPT, *arguments], check=True, stdin=subprocess.DEVNULL)
    with create_trial(run) as trial:
        assert trial.steps() == [0, 5, 10]
        assert (trial.steps(mode=modes.TRAIN), trial.steps(mode=modes.EVAL)) == ([], [])
        assert trial.tensor("Sequential_0.weight").steps() == [0, 5, 10]
        assert trial.tensor("gradient/Sequential_0.weight").steps() == [0, 5]


def test_with_smdebugs_numbering_a_mode_that_the_script_sets_counts(tmp_path):
    model = _model()
    with Hook(tmp_path, save_all=True, save_config=EVERY, step_on="smdebug") as hook:
        hook.register_module(model)
        hook.set_mode(modes.TRAIN)
        _train(model, 2)
        hook.set_mode(modes.EVAL)
        model(torch.rand(5, 4))
    with create_trial(tmp_path) as trial:
        assert (trial.steps(mode=modes.TRAIN), trial.steps(mode=modes.EVAL)) == ([0, 1], [0])
