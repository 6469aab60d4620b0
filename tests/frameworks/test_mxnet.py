"""A real training of a Gluon block."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from mxnet import autograd, gluon, nd

sys.path.insert(0, str(Path(__file__).parent))
import reading

import smdwidgets.mxnet as smd
from smdwidgets.exceptions import SMDebugTypeError, SMDebugValueError

EVERY = smd.SaveConfig(save_interval=1)


@pytest.fixture
def run(tmp_path):
    return tmp_path / "run"


def training(hook, steps, hybridize=False):
    net = gluon.nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(gluon.nn.Dense(8, activation="relu"), gluon.nn.Dense(3))
    net.initialize()
    if hybridize:
        net.hybridize()
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    hook.register_block(net)
    hook.register_block(loss)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    expected = {}
    for step in range(steps):
        x, y = nd.array(np.random.default_rng(step).random((6, 4))), nd.array(np.arange(6) % 3)
        with autograd.record():
            output = net(x)
            value = loss(output, y)
        value.backward()
        for name, parameter in net.collect_params().items():
            expected[f"{step}|worker_0|{name}"] = parameter.data().asnumpy()
            expected[f"{step}|worker_0|gradient/{name}"] = parameter.grad().asnumpy()
        expected[f"{step}|worker_0|{net.name}_input_0"] = x.asnumpy()
        expected[f"{step}|worker_0|{net.name}_output_0"] = output.asnumpy()
        expected[f"{step}|worker_0|{loss.name}_output_0"] = value.asnumpy()
        trainer.step(6)
    return expected


@pytest.mark.parametrize("hybridize", [False, True])
def test_a_training_reads_back_equal_in_both_readers(run, tmp_path, hybridize):
    hook = smd.Hook(run, save_all=True, save_config=EVERY)
    hook.set_mode(smd.modes.TRAIN)
    expected = training(hook, 3, hybridize)
    hook.close()
    found = reading.check(run, expected, tmp_path)
    assert list(found["modes"]) == [f"{step} TRAIN {step}" for step in range(3)]
    assert ("1|worker_0|net_dense0_output_0" in found) == (not hybridize)


def test_collections_say_what_is_saved(run):
    hook = smd.Hook(run, include_collections=["gradients"], save_config=smd.SaveConfig(save_interval=2))
    training(hook, 3)
    hook.close()
    names = {key.split("|", 2)[2] for key in reading.by_us(run) if "|" in key}
    assert {name for name in names if not name.startswith("gradient/")} == {name for name in names if "loss" in name}
    assert sum(name.startswith("gradient/") for name in names) == 4


def test_wrong_arguments(run):
    with smd.Hook(run, dry_run=True) as hook:
        block = gluon.nn.Dense(3)
        hook.register_block(block)
        with pytest.raises(SMDebugValueError, match="registered"):
            hook.register_block(block)
        with pytest.raises(SMDebugTypeError, match=r"gluon\.Block"):
            hook.register_block("dense")


def test_collections_of_blocks_and_arrays_of_the_script(run):
    net = gluon.nn.Sequential()
    net.add(gluon.nn.Dense(3, activation="relu"), gluon.nn.Dense(1))
    net.initialize()
    with smd.Hook(run, include_collections=["first", "mine"], save_config=smd.SaveConfig(save_interval=2)) as hook:
        hook.get_collection("first").add_block_tensors(net[0], inputs=True, outputs=True)
        hook.register_block(net)
        for step in range(3):
            net(nd.ones((2, 4)))
            hook.save_tensor("array", nd.full((2,), step), "mine")
    with smd.create_trial(run) as trial:
        assert trial.steps() == [0, 2]
        name = net[0].name
        assert trial.tensor_names(collection="first") == [f"{name}_input_0", f"{name}_output_0"]
        assert trial.tensor("array").value(2).tolist() == [2, 2]
