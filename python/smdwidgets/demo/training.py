"""Trains a small network that tells three spirals apart, in plain numpy, and saves what happens.

`python -m smdwidgets.demo.training RUN --seconds 120`

Two faults are planted. At two fifths of the time one batch arrives unscaled: the loss jumps, and comes back. At seven tenths
an oversized step takes the second layer's biases far below zero: its units are never active again, and everything before
them stops learning.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smdwidgets.modes import modes
from smdwidgets.numpy import Hook, SaveConfig

Array = NDArray[np.float32]

CLASSES, UNITS, BATCH = 3, 48, 64
STEPS_A_SECOND = 25
SAVE_EVERY = 5
UNSCALED_BATCH, DEAD_UNITS = 0.4, 0.7  # shares of the training


@dataclass
class Layer:
    """A weight matrix and its biases, with momentum."""

    weight: Array
    bias: Array

    def __post_init__(self) -> None:
        self.speed = [np.zeros_like(self.weight), np.zeros_like(self.bias)]

    def learn(self, gradients: tuple[Array, Array], rate: float) -> None:
        """One step of gradient descent."""
        for value, speed, gradient in zip((self.weight, self.bias), self.speed, gradients, strict=True):
            speed *= 0.9
            speed -= rate * gradient
            value += speed


class Network:
    """Two hidden ReLU layers and a softmax."""

    def __init__(self, random: np.random.Generator) -> None:
        sizes = (2, UNITS, UNITS, CLASSES)
        self.layers = [
            Layer(
                (random.standard_normal((fan_in, fan_out)) * np.sqrt(2 / fan_in)).astype(np.float32),
                np.zeros(fan_out, np.float32),
            )
            for fan_in, fan_out in pairwise(sizes)
        ]

    def forward(self, inputs: Array) -> list[Array]:
        """Every layer's output, the inputs first and the probabilities last."""
        outputs = [inputs]
        for layer in self.layers[:-1]:
            outputs.append(np.maximum(outputs[-1] @ layer.weight + layer.bias, 0))
        last = outputs[-1] @ self.layers[-1].weight + self.layers[-1].bias
        grown = np.exp(last - last.max(1, keepdims=True))
        return [*outputs, grown / grown.sum(1, keepdims=True)]

    def backward(self, outputs: list[Array], labels: NDArray[np.intp]) -> list[tuple[Array, Array]]:
        """The gradients of each layer's weight and bias."""
        blame = outputs[-1].copy()
        blame[np.arange(len(labels)), labels] -= 1
        blame /= len(labels)
        found = []
        for layer, inputs in zip(reversed(self.layers), reversed(outputs[:-1]), strict=True):
            found.append((inputs.T @ blame, blame.sum(0)))
            blame = (blame @ layer.weight.T) * (inputs > 0)
        return found[::-1]


def spirals(random: np.random.Generator) -> Iterator[tuple[Array, NDArray[np.intp]]]:
    """Batches of points on three spirals, without end."""
    while True:
        labels = random.integers(0, CLASSES, BATCH)
        radius = random.uniform(0.05, 1, BATCH)
        angle = 4 * radius + labels * (2 * np.pi / CLASSES) + random.normal(0, 0.15, BATCH)
        yield np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1).astype(np.float32), labels


def loss_of(outputs: list[Array], labels: NDArray[np.intp]) -> Array:
    """Cross-entropy."""
    loss = -np.log(np.maximum(outputs[-1][np.arange(len(labels)), labels], 1e-12))
    return np.asarray(loss.mean(dtype=np.float32))


def save(hook: Hook, network: Network, outputs: list[Array], gradients: list[tuple[Array, Array]], loss: Any) -> None:
    """Hands one step's tensors to the hook."""
    hook.save_tensor("loss", loss, "losses")
    for number, (layer, gradient) in enumerate(zip(network.layers, gradients, strict=True), 1):
        hook.save_tensor(f"fc{number}.weight", layer.weight, "weights")
        hook.save_tensor(f"fc{number}.bias", layer.bias, "biases")
        hook.save_tensor(f"gradient/fc{number}.weight", gradient[0], "gradients")
        hook.save_tensor(f"gradient/fc{number}.bias", gradient[1], "gradients")
    for number, output in enumerate(outputs[1:-1], 1):
        hook.save_tensor(f"fc{number}.relu_output_0", output, "relu_output")


def train(run: Path, seconds: float) -> None:
    """Trains for so long, and saves every few steps into `run`."""
    random = np.random.default_rng(3)
    network, batches = Network(random), spirals(random)
    steps = max(20 * SAVE_EVERY, int(seconds * STEPS_A_SECOND))
    with Hook(str(run), save_config=SaveConfig(save_interval=SAVE_EVERY), overwrite=True) as hook:
        began = time.monotonic()
        for step in range(steps):
            hook.set_mode(modes.TRAIN)
            inputs, labels = next(batches)
            if step == int(steps * UNSCALED_BATCH) // SAVE_EVERY * SAVE_EVERY:
                inputs = inputs * 40
            if step == int(steps * DEAD_UNITS) // SAVE_EVERY * SAVE_EVERY:
                network.layers[1].bias -= 25
            outputs = network.forward(inputs)
            gradients = network.backward(outputs, labels)
            if hook.should_save_step():
                save(hook, network, outputs, gradients, loss_of(outputs, labels))
            hook.step()
            for layer, gradient in zip(network.layers, gradients, strict=True):
                layer.learn(gradient, 0.02)
            # At a person's pace, so that there is something to watch.
            time.sleep(max(0.0, began + (step + 1) * seconds / steps - time.monotonic()))


def main(argv: Sequence[str] | None = None) -> int:
    """Parses the command line and trains."""
    asked = argparse.ArgumentParser(prog="python -m smdwidgets.demo.training")
    asked.add_argument("run", type=Path, help="directory to write into; what it holds is deleted")
    asked.add_argument("--seconds", type=float, default=120, help="how long to train (default: %(default)s)")
    options = asked.parse_args(argv)
    try:
        train(options.run, options.seconds)
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
