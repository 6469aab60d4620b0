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
net = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(3, "relu", name="hidden"), keras.layers.Dense(1)])
net.compile("sgd", "mse")
seen = []

class Weights(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        seen.append(keras.ops.convert_to_numpy(self.model.get_layer("hidden").kernel).tolist())

callbacks = [Weights()]
if sys.argv[1] != "none":
    callbacks.append(smd.Hook(sys.argv[1], save_all=True, save_config=smd.SaveConfig(save_interval=1)))
history = net.fit(x, y, epochs=2, batch_size=8, shuffle=False, callbacks=callbacks, verbose=0)
print(json.dumps({"weights": seen, "loss": history.history["loss"]}))
"""


def train(run: str | Path) -> tuple[dict[str, list[float]], str]:
    """Train in a separate process; return what the script recorded and its log."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(run)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


def test_weights_and_losses_are_saved_and_the_rest_is_one_warning(tmp_path):
    pytest.importorskip("jax")
    recorded, log = train(tmp_path / "run")
    assert log.count("JAX backend; weights, losses and metrics are saved") == 1
    assert "Tracer" not in log
    trial = create_trial(tmp_path / "run")
    weights = trial.tensor("hidden/weights/kernel")
    steps = weights.steps(mode=modes.TRAIN)
    assert [weights.value(step, mode=modes.TRAIN).tolist() for step in steps] == recorded["weights"]
    assert trial.tensor("loss").value(3, mode=modes.TRAIN) == pytest.approx(recorded["loss"][0])
    assert not [name for name in trial.tensor_names() if "gradients" in name or name.endswith(("inputs", "outputs"))]
    assert any("JAX" in note for notes in [trial.notes()] for note in map(str, notes))


def test_training_is_the_same_without_the_hook(tmp_path):
    pytest.importorskip("jax")
    assert train(tmp_path / "run")[0] == train("none")[0]
