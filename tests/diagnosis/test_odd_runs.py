"""Diagnose runs with odd tensors, without an exception or a warning."""

import numpy as np
import pytest

import smdwidgets
from smdwidgets.config import ReductionConfig
from smdwidgets.modes import ModeKeys
from smdwidgets.numpy import Hook, SaveConfig

NAMES = {
    "fc1.weight": "weights",
    "gradient/fc1.weight": "gradients",
    "fc2.weight": "weights",
    "gradient/fc2.weight": "gradients",
    "fc2.bias": "biases",
    "gradient/unknown": "gradients",
    "input": "inputs",
    "fc1.relu_output": "activations",
    "fc2.tanh_output": "activations",
    "output": "outputs",
    "train/loss": "losses",
    "val/loss": "losses",
}


@np.errstate(all="ignore")
def odd_value(rng, kind):
    shape = tuple(rng.integers(0, 6, rng.integers(0, 5)))
    if kind == "constant":
        return np.full(shape, rng.normal(), np.float32)
    if kind == "lost":
        return np.where(rng.random(shape) < 0.3, np.nan, rng.normal(size=shape) * 1e38).astype(np.float32)
    if kind == "huge":
        return rng.normal(size=shape) * 1e300
    if kind == "integer":
        return rng.integers(-5, 5, shape)
    if kind == "complex":
        return rng.normal(size=shape) + 1j
    if kind == "half":
        return (rng.normal(size=shape) * 1e4).astype(np.float16)
    return rng.normal(size=shape).astype(np.float32)


KINDS = ("normal", "constant", "lost", "huge", "integer", "complex", "half")


@pytest.mark.parametrize("seed", range(24))
def test_random_runs(seed, tmp_path):
    rng = np.random.default_rng(seed)
    reductions = ReductionConfig(norms=["l2"], reductions=["mean"]) if seed % 4 == 3 else None
    kinds = {name: str(rng.choice(KINDS)) for name in NAMES}
    with Hook(tmp_path, reduction_config=reductions) as hook:
        for step in range(int(rng.integers(1, 40))):
            hook.set_mode(ModeKeys.EVAL if step % 5 == 4 else ModeKeys.TRAIN)
            for name, collection in NAMES.items():
                if rng.random() < 0.8:
                    value = rng.normal() if "loss" in name else odd_value(rng, kinds[name])
                    hook.save_tensor(name, value, collection)
            hook.step()
    whole = smdwidgets.diagnose(tmp_path)
    assert whole.can_tell in (True, False)
    assert whole.text(notes=True)
    live = smdwidgets.diagnosis.Diagnoser(smdwidgets.create_trial(tmp_path))
    assert live.update().findings == whole.findings


@pytest.mark.parametrize("kind", KINDS)
def test_every_tensor_of_one_odd_kind(kind, tmp_path):
    rng = np.random.default_rng(0)
    with Hook(tmp_path) as hook:
        for _ in range(25):
            for name, collection in NAMES.items():
                shape_of = np.random.default_rng(list(name.encode()))  # a tensor keeps its shape
                value = odd_value(shape_of, kind)
                jitter = value.dtype.type(rng.integers(0, 3)) if value.dtype.kind in "fi" else 0
                with np.errstate(all="ignore"):
                    value = value + jitter
                hook.save_tensor(name, value.reshape(-1)[:1].sum() if "loss" in name else value, collection)
            hook.step()
    assert smdwidgets.diagnose(tmp_path).text(notes=True)


def test_units_of_a_network_with_nan_weights_are_not_dead(tmp_path):
    """Some frameworks turn NaN into 0 in a ReLU."""
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(8, 8)).astype(np.float32)
    with Hook(tmp_path, save_config=SaveConfig(save_interval=1)) as hook:
        for step in range(60):
            healthy = step < 10
            weight = weight + rng.normal(0, 1e-3, (8, 8)).astype(np.float32)
            outputs = np.maximum(rng.normal(size=(300, 8)), 0).astype(np.float32)
            hook.save_tensor("fc.weight", weight if healthy else np.full_like(weight, np.nan), "weights")
            hook.save_tensor("fc.relu_output", outputs if healthy else np.zeros_like(outputs), "activations")
            hook.save_tensor("loss", np.float32(2 / (1 + step) if healthy else np.nan), "losses")
            hook.step()
    assert [one.kind for one in smdwidgets.diagnose(tmp_path)] == ["not_finite"]


def test_nan_in_a_batch_is_not_blamed_on_the_rate(tmp_path):
    """Updates are large from the first step, but a batch with NaN did the harm."""
    rng = np.random.default_rng(0)
    weight = rng.normal(0, 0.1, (8, 8)).astype(np.float32)
    with Hook(tmp_path, save_config=SaveConfig(save_interval=1)) as hook:
        for step in range(100):
            batch = rng.normal(size=(32, 8)).astype(np.float32)
            if step == 60:
                batch[3, 5] = np.nan
            hook.save_tensor("x", batch, "inputs")
            hook.save_tensor("fc.weight", weight, "weights")
            hook.save_tensor("loss", np.float32(2 / (1 + step) * (1 + 0 * batch.sum())), "losses")
            hook.step()
            weight = weight + np.float32(0.03) * rng.normal(size=(8, 8)).astype(np.float32) + 0 * batch.sum()
    (finding, *_) = smdwidgets.diagnose(tmp_path)
    assert (finding.kind, finding.first, finding.subject) == ("input_not_finite", 60, "x")
    assert "not_finite:loss:60" in finding.explains
