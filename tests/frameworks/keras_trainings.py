"""Trainings with Keras that every backend must get right.

Imported by the tests of the backends.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import reading

import smdwidgets.keras as smd
from smdwidgets import create_trial, modes
from smdwidgets.stop import request_stop

EVERY = smd.SaveConfig(save_interval=1)


@pytest.fixture
def run(tmp_path):
    keras.utils.set_random_seed(0)
    return tmp_path / "run"


def model():
    built = keras.Sequential(
        [
            keras.Input((4,)),
            keras.layers.Dense(8, activation="relu", name="hidden"),
            keras.layers.Dense(1, name="last"),
        ]
    )
    built.compile(keras.optimizers.SGD(0.1), "mse", metrics=["mae"])
    return built


def data(n=32):
    x = np.random.default_rng(0).random((n, 4)).astype("float32")
    return x, x.sum(1, keepdims=True)


def test_fit_evaluate_and_predict_read_back_in_both_readers(run, tmp_path):
    net = model()
    x, y = data()
    start = {variable.path: keras.ops.convert_to_numpy(variable).copy() for variable in net.weights}
    with smd.Hook(run, save_all=True, save_config=EVERY, export_tensorboard=True) as hook:
        net.fit(x, y, batch_size=16, epochs=2, shuffle=False, validation_data=(x, y), callbacks=[hook], verbose=0)
        mean, mae = net.evaluate(x, y, batch_size=32, callbacks=[hook], verbose=0)
        predicted = net.predict(x, batch_size=32, callbacks=[hook], verbose=0)
    found = reading.check(run, {}, tmp_path)
    assert list(found["modes"]) == [
        *("0 TRAIN 0", "1 TRAIN 1", "2 EVAL 0", "3 EVAL 1", "4 TRAIN 2", "5 TRAIN 3"),
        *("6 EVAL 2", "7 EVAL 3", "8 EVAL 4", "9 PREDICT 0"),
    ]
    at = lambda step, name: found[f"{step}|worker_0|{name}"]  # noqa: E731
    kernel = next(value for path, value in start.items() if path.endswith("hidden/kernel"))
    assert (at(0, "hidden/weights/kernel") == kernel).all()
    # Plain gradient descent: what the weights lost is what the gradient says.
    for layer, kind in (("hidden", "kernel"), ("last", "bias")):
        step = at(0, f"{layer}/weights/{kind}") - 0.1 * at(0, f"gradients/{layer}/{kind}Grad")
        np.testing.assert_allclose(at(1, f"{layer}/weights/{kind}"), step, rtol=1e-5, atol=1e-7)
    hidden = np.maximum(x[:16] @ at(0, "hidden/weights/kernel") + at(0, "hidden/weights/bias"), 0)
    np.testing.assert_allclose(at(0, "hidden/outputs"), hidden, rtol=1e-5, atol=1e-6)
    assert (at(0, "hidden/inputs") == x[:16]).all()
    np.testing.assert_allclose(at(0, "batch_loss"), ((at(0, "last/outputs") - y[:16]) ** 2).mean(), rtol=1e-5)
    assert at(8, "loss") == pytest.approx(mean)
    assert at(8, "mae") == pytest.approx(mae)
    np.testing.assert_allclose(at(9, f"{net.name}/outputs"), predicted, rtol=1e-6)
    assert "8|worker_0|gradients/hidden/kernelGrad" not in found
    assert any("optimizer/" in key for key in found)
    scalars, histograms = reading.tensorboard(run / "tensorboard" / "TRAIN")
    assert [step for step, _ in scalars["loss"]] == [0, 1, 4, 5]
    assert histograms["all/gradients/hidden/kernelGrad"] == 4


def test_collections_say_what_is_saved(run):
    net = model()
    x, y = data()
    with smd.Hook(run, include_collections=["gradients", "mine"], save_config=smd.SaveConfig(save_interval=2)) as hook:
        hook.get_collection("mine").add_keras_layer(net.get_layer("last"), inputs=True)
        net.fit(x, y, batch_size=8, callbacks=[hook], verbose=0)
    names = {key.split("|", 2)[2] for key in reading.by_us(run) if "|" in key}
    gradients = {f"gradients/{layer}/{kind}Grad" for layer in ("hidden", "last") for kind in ("kernel", "bias")}
    updates = {f"optimizer/{net.optimizer.name}/{kind}" for kind in ("learning_rate", "gradient_norm")}
    assert names == gradients | updates | {"last/inputs", "last/outputs", "loss", "batch_loss", "mae"}


def test_without_a_plan_losses_and_metrics_alone(run):
    net = model()
    x, y = data()
    with smd.Hook(run, plan=False) as hook:
        net.fit(x, y, batch_size=8, callbacks=[hook], verbose=0)
    assert {key.split("|", 2)[2] for key in reading.by_us(run) if "|" in key} == {
        "loss", "batch_loss", "mae", f"optimizer/{net.optimizer.name}/learning_rate"
    }  # fmt: skip


def test_by_default_weights_gradients_and_layers_at_every_step(run):
    net = model()
    x, y = data()
    with smd.Hook(run) as hook:
        net.fit(x, y, batch_size=8, callbacks=[hook], verbose=0)
    wanted = {"loss", "batch_loss", "mae", "hidden/weights/kernel", "gradients/hidden/biasGrad", "last/inputs"}
    steps = {}
    for key in reading.by_us(run):
        if "|" in key:
            step, _, name = key.split("|", 2)
            steps.setdefault(name, set()).add(int(step))
    assert wanted <= set(steps)
    assert {len(steps[name]) for name in wanted} == {len(steps["loss"])}
    assert (run / "statistics/worker_0/000000.arrows").stat().st_size


def test_closed_hook_leaves_the_model_unchanged(run):
    net = model()
    x, y = data()
    hook = smd.Hook(run, save_all=True, save_config=EVERY)
    net.fit(x, y, callbacks=[hook], verbose=0)
    assert "call" in net.get_layer("hidden").__dict__
    hook.close()
    for owner in (net, *net.layers, net.optimizer):
        assert not {"call", "apply", "compute_loss"} & set(owner.__dict__)
    net.fit(x, y, verbose=0)
    assert len(list(run.glob("index/*/*"))) == 1


def test_a_hook_that_comes_late_hears_as_much(run):
    net = model()
    x, y = data()
    net.fit(x, y, verbose=0)  # traces the step without listeners
    with smd.Hook(run, include_collections=["gradients"], save_config=EVERY) as hook:
        net.fit(x, y, batch_size=32, callbacks=[hook], verbose=0)
        net.fit(x, y, batch_size=32, callbacks=[hook], verbose=0)
    assert {"0|worker_0|gradients/last/biasGrad", "1|worker_0|gradients/last/biasGrad"} <= set(reading.by_us(run))


def test_the_stop_file_ends_fit(run, caplog):
    net = model()
    x, y = data()
    with smd.Hook(run, save_config=EVERY) as hook, caplog.at_level(logging.WARNING):
        request_stop(run, by="VanishingGradient", reason="nothing is learnt")
        history = net.fit(x, y, batch_size=8, epochs=5, callbacks=[hook], verbose=0)
    assert len(history.epoch) == 1
    assert len(list(run.glob("index/*/*"))) == 1
    assert "VanishingGradient requested a training stop" in caplog.text


def test_a_script_that_wraps_the_optimizer_and_registers_the_model(run):
    net, (x, y) = model(), data()
    with smd.KerasHook(run, include_collections=["gradients", "inputs", "outputs"], save_config=EVERY) as hook:
        optimizer = keras.optimizers.SGD(0.1)
        assert hook.wrap_optimizer(optimizer) is optimizer
        hook.register_model(net)
        net.compile(optimizer, "mse")
        net.fit(x, y, batch_size=16, callbacks=[hook], verbose=0)
        assert smd.get_hook("keras") is hook
    names = {key.split("|", 2)[2] for key in reading.by_us(run) if key.startswith("1|")}
    gradients = {f"gradients/{layer}/{of}Grad" for layer in ("hidden", "last") for of in ("kernel", "bias")}
    assert {*gradients, f"{net.name}/inputs", f"{net.name}/outputs", "loss"} <= names


def test_wrong_arguments_of_smdebugs_methods(run):
    with smd.KerasHook(run, dry_run=True) as hook:
        with pytest.raises(TypeError, match="model must be a Keras model, got str"):
            hook.register_model("model")
        with pytest.raises(TypeError, match="optimizer must be a Keras optimizer, got str"):
            hook.wrap_optimizer("sgd")


def test_learning_rates_and_gradient_norms_of_a_schedule(run):
    net = model()
    net.compile(keras.optimizers.SGD(keras.optimizers.schedules.ExponentialDecay(0.1, 1, 0.5)), "mse")
    x, y = data()
    with smd.Hook(run) as hook:
        net.fit(x, y, batch_size=8, callbacks=[hook], verbose=0, validation_data=(x, y))
    trial = create_trial(run)
    rate, norm = (trial.tensor(f"optimizer/{net.optimizer.name}/{kind}") for kind in ("learning_rate", "gradient_norm"))
    steps = trial.steps(mode=modes.TRAIN)
    assert rate.steps() == norm.steps() == trial.tensor("batch_loss").steps(mode=modes.TRAIN)
    assert [rate.value(step, mode=modes.TRAIN).item() for step in steps] == pytest.approx(
        [0.1 / 2**step for step in steps]
    )
    for step in steps:
        gradients = [
            trial.tensor(name).value(step, mode=modes.TRAIN) for name in trial.tensor_names(collection="gradients")
        ]
        expected = np.sqrt(sum(np.sum(np.square(one, dtype=np.float64)) for one in gradients))
        assert norm.value(step, mode=modes.TRAIN).item() == pytest.approx(expected, rel=1e-6)
