"""Small Keras networks with planted faults."""

from __future__ import annotations

import keras
import numpy as np

import smdwidgets.keras as smd

CLASSES, SIDE = 6, 8

#: The expected first finding of each fault; none for a healthy training.
FAULTS = {
    "": (),
    "rate too high": ("rate_too_high",),
    "rate too low": ("rate_too_low",),
    "frozen layer": ("frozen",),
    "same batch": ("same_batch",),
    "inputs not scaled": ("input_not_scaled",),
    "few samples": ("overfit",),
    "permuted labels": ("labels_unrelated",),
    "dead units": ("dead",),
    "logarithm of 0": ("not_finite",),
}


def network(fault):
    """Return three convolutions and a linear classifier of 8 × 8 pictures."""
    bias = keras.initializers.Constant(-20.0 if fault == "dead units" else 0.0)
    conv = keras.layers.Conv2D
    return keras.Sequential(
        [
            keras.Input((SIDE, SIDE, 1)),
            conv(8, 3, padding="same", activation="relu", name="conv1"),
            conv(16, 3, 2, padding="same", activation="relu", bias_initializer=bias, name="conv2"),
            conv(16, 3, 2, padding="same", activation="relu", bias_initializer=bias, name="conv3"),
            keras.layers.Flatten(),
            keras.layers.Dense(CLASSES, name="head"),
        ]
    )


def draw(number, rng):
    """Draw pictures, and labels by fixed random patterns; 5 % of the labels are wrong."""
    patterns = np.random.default_rng(0).normal(size=(CLASSES, SIDE, SIDE, 1)).astype(np.float32)
    labels = rng.integers(0, CLASSES, number)
    inputs = 0.6 * patterns[labels] + rng.normal(size=(number, SIDE, SIDE, 1)).astype(np.float32)
    wrong = rng.random(number) < 0.05
    return inputs.astype(np.float32), np.where(wrong, rng.integers(0, CLASSES, number), labels)


def loss_of(fault):
    """Return the cross entropy, or a loss that takes the logarithm of 0."""
    if fault != "logarithm of 0":
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def unsafe(labels, logits):
        chances = keras.ops.softmax(logits * 60.0)
        chosen = keras.ops.one_hot(keras.ops.cast(keras.ops.reshape(labels, (-1,)), "int32"), CLASSES)
        return -keras.ops.log(keras.ops.sum(chances * chosen, axis=-1))

    return unsafe


def train(directory, fault, seed, every=10, steps=300):
    """Train a network with a fault, and save the run."""
    keras.utils.set_random_seed(seed)
    rng = np.random.default_rng(seed)
    model = network(fault)
    if fault == "frozen layer":
        model.get_layer("conv2").trainable = False
    samples = {"few samples": 64, "permuted labels": 384, "same batch": 32}.get(fault, 32 * steps)
    inputs, labels = draw(samples, rng)
    valid = draw(512, rng)
    if fault == "permuted labels":
        labels = rng.permutation(labels)
    if fault == "inputs not scaled":
        inputs, valid = inputs * 300 + 400, (valid[0] * 300 + 400, valid[1])
    rate = {"rate too high": 1.0, "rate too low": 1e-6}.get(fault, 0.02)
    model.compile(keras.optimizers.SGD(rate, 0.9), loss_of(fault))
    modes = {
        smd.modes.TRAIN: smd.SaveConfigMode(save_interval=every),
        smd.modes.EVAL: smd.SaveConfigMode(save_interval=1),
    }
    epochs = 20
    with smd.Hook(directory, save_all=True, save_config=smd.SaveConfig(modes)) as hook:
        rows = rng.integers(0, samples, 32 * steps)
        if fault == "same batch":
            rows = np.tile(np.arange(32), steps)
        for part in np.split(rows, epochs):
            model.fit(inputs[part], labels[part], batch_size=32, shuffle=False, callbacks=[hook], verbose=0)
            model.evaluate(*valid, batch_size=512, callbacks=[hook], verbose=0)
