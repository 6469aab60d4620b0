"""DeadRelu and SaturatedActivation find layers by recorded module classes."""

from __future__ import annotations

import numpy as np
import pytest

from smdwidgets import create_trial
from smdwidgets._core import StepWriter
from smdwidgets.config import Collection, CollectionManager
from smdwidgets.rules.builtin.dead_relu import DeadRelu
from smdwidgets.rules.builtin.saturated_activation import SaturatedActivation

DEAD = np.zeros((32, 4), "f4")
FAR = np.full((32, 4), 50.0, "f4")


def trial_of(root, tensors, modules):
    manager = CollectionManager()
    manager.add(Collection("default"))
    manager.add_modules(modules)
    manager.export(root, "worker_0_collections.json")
    with StepWriter(root, 0) as writer:
        for name, value in tensors.items():
            writer.tensor(name, value)
    (root / "training_job_end.ts").touch()
    return create_trial(root)


def names(rule):
    rule.invoke_at_step(0)
    return sorted(finding.subject for finding in rule.findings)


def test_relu_is_found_by_its_class(tmp_path):
    tensors = {f"{name}_output_0": DEAD for name in ("act", "mine", "relu_like", "relu_unknown", "linear")}
    modules = {"act": ["ReLU"], "mine": ["MyRelu", "ReLU"], "relu_like": ["LeakyReLU"], "linear": ["Linear"]}
    trial = trial_of(tmp_path, tensors | {"act_input_0": DEAD}, modules)
    assert trial.modules() == modules
    # A tensor of an unknown module is selected by its name.
    assert names(DeadRelu(trial)) == ["act_output_0", "mine_output_0", "relu_unknown_output_0"]
    assert names(DeadRelu(trial, tensor_regex="linear_output|relu_like")) == ["linear_output_0", "relu_like_output_0"]


def test_limits_are_those_of_the_class(tmp_path):
    near = np.full((32, 4), 12.0, "f4")  # outside the limits of tanh, within those of sigmoid
    tensors = {"gate_input_0": near, "squash_input_0": near, "tanh_like_input_0": FAR, "far_input_0": FAR}
    modules = {"gate": ["Sigmoid"], "squash": ["Tanh"], "tanh_like": ["Linear"], "far": ["MySigmoid", "Sigmoid"]}
    assert names(SaturatedActivation(trial_of(tmp_path, tensors, modules))) == ["far_input_0", "squash_input_0"]


def test_without_classes_names_decide(tmp_path):
    tensors = {"relu_output_0": DEAD, "act_output_0": DEAD, "tanh_input_0": FAR, "sigmoid_input_0": FAR}
    trial = trial_of(tmp_path, tensors, {})
    assert names(DeadRelu(trial)) == ["relu_output_0"]
    assert names(SaturatedActivation(trial)) == ["sigmoid_input_0", "tanh_input_0"]


@pytest.mark.parametrize("meta", [{"modules": 3}, {"modules": {"act": "ReLU"}}, {"modules": {"act": [3]}}])
def test_invalid_classes_are_ignored(tmp_path, meta):
    trial = trial_of(tmp_path, {"relu_output_0": DEAD}, {})
    trial.collection_manager.update_meta(meta)
    assert names(DeadRelu(trial)) == ["relu_output_0"]
