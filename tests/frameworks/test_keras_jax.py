"""Keras on the JAX backend, which compiles the training step."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from smdwidgets import create_trial, modes

SCRIPT = """
import json, os, sys
os.environ["KERAS_BACKEND"] = "jax"
import keras
import numpy as np
import smdwidgets.keras as smd

keras.utils.set_random_seed(0)
x = np.linspace(-1, 1, 128, dtype="float32").reshape(32, 4)
y = x.sum(axis=1, keepdims=True)
layers = keras.layers
net = keras.Sequential([layers.Input((4,)), layers.Dense(4, "relu", name="hidden"), layers.BatchNormalization(), layers.Dropout(0.1),
    layers.Reshape((2, 2)), layers.LSTM(3), layers.Dense(1, name="last")])
net.compile("sgd", "mse")
seen, before = [], []

class Weights(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        seen.append(keras.ops.convert_to_numpy(self.model.get_layer("hidden").kernel).tolist())
        before.append(keras.ops.convert_to_numpy(self.model.get_layer("last").bias).tolist())

callbacks = [Weights()]
if sys.argv[1] != "none":
    callbacks.append(smd.Hook(sys.argv[1], **json.loads(sys.argv[2])))
history = net.fit(x, y, epochs=2, batch_size=8, shuffle=False, callbacks=callbacks, verbose=0)
print(json.dumps({"weights": seen, "biases": before, "loss": history.history["loss"]}))
"""


def train(run: str | Path, **options: object) -> tuple[dict[str, list[float]], str]:
    """Train in a separate process; return what the script recorded and its log."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(run), json.dumps(options)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


def check(trial, recorded):
    """Compare the values that both have."""
    weights = trial.tensor("hidden/weights/kernel")
    assert [weights.value(step, mode=modes.TRAIN).tolist() for step in range(8)] == recorded["weights"]
    assert trial.tensor("loss").value(3, mode=modes.TRAIN) == pytest.approx(recorded["loss"][0])
    assert len(trial.tensor("optimizer/sgd/learning_rate").steps(mode=modes.TRAIN)) == 8


def test_without_a_choice_weights_and_losses_are_saved_and_the_rest_is_one_warning(tmp_path):
    pytest.importorskip("jax")
    recorded, log = train(tmp_path / "run")
    assert log.count("JAX backend; weights, losses and metrics are saved") == 1
    assert "Tracer" not in log
    trial = create_trial(tmp_path / "run")
    check(trial, recorded)
    assert not [name for name in trial.tensor_names() if "gradients" in name or name.endswith(("inputs", "outputs"))]


def test_chosen_gradients_and_outputs_are_saved_and_the_training_is_the_same(tmp_path):
    pytest.importorskip("jax")
    recorded, log = train(tmp_path / "run", save_all=True, plan={})
    assert "recording failed" not in log
    assert "not saved" not in log
    assert recorded == train("none")[0]
    trial = create_trial(tmp_path / "run")
    check(trial, recorded)
    # The gradient of the bias explains the update by SGD, whose rate is 0.01.
    gradient, biases = trial.tensor("gradients/last/biasGrad"), recorded["biases"]
    for step in range(7):
        expected = biases[step][0] - 0.01 * gradient.value(step, mode=modes.TRAIN).item()
        assert biases[step + 1][0] == pytest.approx(expected, rel=1e-5)
    for name in ("batch_loss", "hidden/outputs", "last/inputs", "optimizer/sgd/gradient_norm"):
        assert trial.tensor(name).steps(mode=modes.TRAIN) == list(range(8)), name
    losses = [trial.tensor("batch_loss").value(step, mode=modes.TRAIN).item() for step in range(4)]
    assert sum(losses) / 4 == pytest.approx(recorded["loss"][0], rel=1e-5)
    hidden = trial.tensor("hidden/outputs").value(0, mode=modes.TRAIN)
    assert hidden.shape == (8, 4)
    assert (hidden >= 0).all()


def test_steps_that_are_not_saved_pass_nothing_on(tmp_path):
    pytest.importorskip("jax")
    train(tmp_path / "run", include_collections=["gradients"], save_config={"TRAIN": {"save_interval": 3}})
    trial = create_trial(tmp_path / "run")
    assert trial.tensor("gradients/last/biasGrad").steps(mode=modes.TRAIN) == [0, 3, 6]
    assert trial.tensor("batch_loss").steps(mode=modes.TRAIN) == [0, 3, 6]
