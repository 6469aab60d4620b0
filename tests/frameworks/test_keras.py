"""Real trainings with Keras on TensorFlow, and with tf.GradientTape."""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import pytest
import tensorflow as tf

sys.path.insert(0, str(Path(__file__).parent))
import reading
from keras_trainings import *  # noqa: F403 - these tests are this backend's too
from keras_trainings import EVERY, data, model, run  # noqa: F401

import smdwidgets.tensorflow as smd
from smdwidgets.exceptions import SMDebugTypeError


def test_a_jit_compiled_model_trains_and_tells_what_it_lacks(run, caplog):  # noqa: F811
    net = model()
    net.compile("sgd", "mse", jit_compile=True)
    x, y = data()
    with smd.Hook(run, save_all=True, save_config=EVERY) as hook:
        net.fit(x, y, batch_size=16, callbacks=[hook], verbose=0)
    assert caplog.text.count("jit_compile=False") == 1
    names = {key.split("|", 2)[2] for key in reading.by_us(run) if "|" in key}
    assert {"loss", "hidden/weights/kernel"} <= names
    assert not any("gradients" in name for name in names)


def test_bfloat16_layers(run):  # noqa: F811
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        net = model()
        x, y = data()
        with smd.Hook(run, save_all=True, save_config=EVERY) as hook:
            net.fit(x, y, batch_size=32, callbacks=[hook], verbose=0)
    finally:
        keras.config.set_dtype_policy("float32")
    found = reading.by_us(run)
    assert found["0|worker_0|hidden/outputs"].dtype.name == "bfloat16"
    assert found["0|worker_0|hidden/weights/kernel"].dtype == np.float32


@pytest.mark.parametrize("graph", [False, True])
def test_gradient_tape(run, tmp_path, graph):  # noqa: F811
    w = tf.Variable([[1.0], [2.0]], name="w")
    hook = smd.Hook(run, include_collections=["weights", "gradients"], save_config=smd.SaveConfig(save_interval=2))
    hook.set_mode(smd.modes.TRAIN)

    def step(x):
        with hook.wrap_tape(tf.GradientTape()) as tape:
            loss = tf.reduce_sum(tf.matmul(x, w) ** 2)
        gradient = tape.gradient(loss, [w])[0]
        hook.record_tensor_value("double", 2.0 * loss)
        w.assign_sub(0.01 * gradient)
        return loss

    run_step = tf.function(step) if graph else step
    expected = {}
    for i in range(5):
        x = np.full((3, 2), float(i + 1), "float32")
        before = w.numpy().copy()
        loss = run_step(tf.constant(x))
        if i % 2 == 0:
            expected[f"{i}|worker_0|weights/w"] = before
            expected[f"{i}|worker_0|loss"] = loss.numpy()
            expected[f"{i}|worker_0|double"] = 2 * loss.numpy()
            np.testing.assert_allclose(
                2 * x.T @ (x @ before), (before - w.numpy()) / np.float32(0.01), rtol=1e-3, atol=1e-3
            )
    hook.close()
    found = reading.check(run, expected, tmp_path)
    assert list(found["modes"]) == ["0 TRAIN 0", "2 TRAIN 2", "4 TRAIN 4"]
    assert "2|worker_0|gradients/wGrad" in found


def test_wrap_tape_takes_tapes(run):  # noqa: F811
    with smd.Hook(run, dry_run=True) as hook, pytest.raises(SMDebugTypeError, match="GradientTape"):
        hook.wrap_tape(object())


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # Keras's own, reading its weights
def test_a_log_of_the_tensorboard_callback_is_a_trial(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util.tensor_util import make_ndarray

    from smdwidgets import create_trial, modes

    net = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(3, name="first"), keras.layers.Dense(1)])
    net.compile("sgd", "mse", metrics=["mae"])
    x, y = np.random.default_rng(0).normal(size=(64, 4)), np.ones((64, 1))
    callback = keras.callbacks.TensorBoard(str(tmp_path), histogram_freq=1, update_freq=1)
    net.fit(x, y, validation_data=(x, y), epochs=3, batch_size=16, verbose=0, callbacks=[callback])
    with tf.summary.create_file_writer(str(tmp_path / "train")).as_default():
        tf.summary.text("notes", "naïve", step=1)
        tf.summary.image("picture", np.zeros((2, 4, 6, 3), np.uint8), step=1)
    with create_trial(tmp_path) as trial:
        assert trial.problems() == []
        assert trial.modes() == [modes.TRAIN, modes.EVAL]
        for folder, mode in (("train", modes.TRAIN), ("validation", modes.EVAL)):
            theirs = EventAccumulator(str(tmp_path / folder), size_guidance={"tensors": 0}).Reload()
            for event in theirs.Tensors("epoch_loss"):
                assert trial.tensor("epoch_loss").value(event.step, mode) == make_ndarray(event.tensor_proto)
        assert trial.tensor("epoch_loss").steps(modes.EVAL) == [0, 1, 2]
        assert trial.tensor("notes").value(1, modes.TRAIN).item() == "naïve"
        assert trial.tensor("picture").value(1, modes.TRAIN).shape == (2, 4, 6, 3)
        kernel = next(
            name for name in trial.tensor_names(collection="histograms") if "first" in name and "bias" not in name
        )
        assert trial.tensor(kernel).value(2, modes.TRAIN)[:, 2].sum() == 12
        assert "epoch_loss" in trial.tensor_names(collection="losses")


@pytest.mark.parametrize("graph", [False, True])
def test_a_registered_model_in_a_loop_with_a_tape(run, graph):  # noqa: F811
    net, (x, y) = model(), data()
    x, y = tf.constant(x, tf.float32), tf.constant(y, tf.float32)
    every_other = smd.SaveConfig(save_interval=2)
    with smd.KerasHook(run, include_collections=["layers", "gradients"], save_config=every_other) as hook:
        hook.register_model(net)
        optimizer = hook.wrap_optimizer(keras.optimizers.SGD(0.1))
        outputs = []

        def step(x, y):
            with hook.wrap_tape(tf.GradientTape()) as tape:
                predicted = net(x, training=True)
                loss = tf.reduce_mean((predicted - y) ** 2)
            gradients = tape.gradient(loss, net.trainable_variables)
            optimizer.apply_gradients(zip(gradients, net.trainable_variables, strict=True))
            return predicted

        step = tf.function(step) if graph else step
        outputs = [step(x, y).numpy() for _ in range(3)]
        # Steps of `fit` are saved as well, by the same listeners.
        net.fit(x, y, batch_size=32, callbacks=[hook], verbose=0)
    found = reading.by_us(run)
    for at in (0, 2):
        assert (found[f"{at}|worker_0|last/outputs"] == outputs[at]).all()
        assert (found[f"{at}|worker_0|hidden/inputs"] == x.numpy()).all()
        assert f"{at}|worker_0|gradients/hidden/kernelGrad" in found
        assert f"{at}|worker_0|gradients/hidden/kernelGrad_1" not in found
    assert not any(key.startswith("1|") for key in found)
    assert not hasattr(net.layers[0].call, "__wrapped__")
