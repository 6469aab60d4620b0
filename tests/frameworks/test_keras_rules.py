"""Rules on real trainings with Keras."""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from ruling import first_firing

import smdwidgets.keras as smd


def train(path, *, bias=0.0, depth=1, activation=keras.layers.ReLU, epochs=2, rate=0.1):
    keras.utils.set_random_seed(0)
    layers = [keras.Input((4,))]
    for _ in range(depth):
        layers += [keras.layers.Dense(8, bias_initializer=keras.initializers.Constant(bias)), activation()]
    net = keras.Sequential([*layers, keras.layers.Dense(1)])
    net.compile(keras.optimizers.SGD(rate), "mse")
    x = np.random.default_rng(0).random((96, 4)).astype("float32")
    with smd.Hook(path, save_all=True, save_config=smd.SaveConfig(save_interval=1)) as hook:
        net.fit(x, x.sum(1, keepdims=True), batch_size=32, epochs=epochs, shuffle=False, callbacks=[hook], verbose=0)
    return path


def sigmoid():
    return keras.layers.Activation("sigmoid")


def test_rules_on_keras(tmp_path):
    healthy = train(tmp_path / "healthy", epochs=5)
    for rule in (
        "DeadRelu",
        "VanishingGradient",
        "ExplodingTensor",
        "WeightUpdateRatio",
        "LossNotDecreasing",
        "ActivationCollapse",
    ):
        assert first_firing(healthy, rule) is None, rule
    assert first_firing(train(tmp_path / "dead", bias=-20.0), "DeadRelu") == 0
    assert first_firing(train(tmp_path / "deep", depth=14, activation=sigmoid), "VanishingGradient") == 0
    # Three batches an epoch: nine steps earlier it was the same batch.
    assert first_firing(train(tmp_path / "stuck", rate=0.0, epochs=5), "LossNotDecreasing", num_steps=9) == 9
    assert first_firing(train(tmp_path / "slow", rate=1e-12), "WeightUpdateRatio") == 1
