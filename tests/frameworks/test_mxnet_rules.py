"""Rules on real trainings of Gluon blocks, with planted faults and healthy.

Each training is saved by our hook and by smdebug's.

SageMaker's default patterns are made for MXNet's names. Weights are left out of what is compared: smdebug's hook saves
them as a step leaves them, ours as it finds them, as every other hook does.
"""

from __future__ import annotations

import sys
from pathlib import Path

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon, nd

sys.path.insert(0, str(Path(__file__).parent))
from ruling import both, hooks_of, on_both

from smdwidgets import create_trial


def train(path, library, *, depth=2, activation="relu", rate=0.5, bias=0.0, steps=12):
    mx.random.seed(0)
    np.random.seed(0)
    net = gluon.nn.HybridSequential(prefix="net_")
    with net.name_scope():
        for _ in range(depth):
            net.add(gluon.nn.Dense(16, bias_initializer=mx.init.Constant(bias)), gluon.nn.Activation(activation))
        net.add(gluon.nn.Dense(3))
    net.initialize(mx.init.Xavier())
    smd = hooks_of(library, "mxnet")
    hook = smd.Hook(out_dir=str(path), save_all=True, save_config=smd.SaveConfig(save_interval=1))
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    hook.register_block(net)
    hook.register_block(loss_of)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": rate})
    points = np.random.default_rng(0).normal(size=(64, 8))
    x, y = nd.array(points), nd.array(points[:, :3].argmax(1))
    for _ in range(steps):
        with autograd.record():
            loss = loss_of(net(x), y)
        loss.backward()
        trainer.step(64)
    hook.close()
    return path


@pytest.fixture
def trained(tmp_path):
    def with_faults(**faults):
        return lambda library: train(tmp_path / f"{library} {sorted(faults)}", library, **faults)

    return with_faults


def first_not_finite(path):
    trial = create_trial(path)
    return next(
        step
        for step in trial.steps()
        if any(
            not np.isfinite(trial.tensor(name).value(step)).all()
            for name in trial.tensor_names(step=step, regex="output")
        )
    )


@pytest.mark.parametrize(
    ("rule", "faults", "reported"),
    [
        ("VanishingGradient", {"depth": 16, "activation": "sigmoid", "steps": 3}, {}),
        ("DeadRelu", {"bias": -30.0, "steps": 3}, {}),
        ("AllZero", {"bias": -30.0, "steps": 3}, {"tensor_regex": "relu.*output"}),
    ],
)
def test_a_planted_fault(trained, rule, faults, reported):
    assert on_both(trained(**faults), rule, **reported) == both(0)


def test_exploding_tensor(trained, tmp_path):
    faults = {"rate": 1e15}
    reported = {"tensor_regex": "output"}
    expected = first_not_finite(train(tmp_path / "run", "smdwidgets", **faults))
    assert on_both(trained(**faults), "ExplodingTensor", **reported) == both(expected)


@pytest.mark.parametrize(
    ("rule", "reported"),
    [
        ("VanishingGradient", {}),
        ("DeadRelu", {}),
        ("ExplodingTensor", {}),
        ("AllZero", {"tensor_regex": "relu.*output"}),
        ("WeightUpdateRatio", {}),
        ("GradientNormSpike", {}),
    ],
)
def test_silence_on_a_healthy_training(trained, rule, reported):
    # A norm is compared with those of 15 steps before it.
    assert on_both(trained(steps=20), rule, **reported) == both(None)
