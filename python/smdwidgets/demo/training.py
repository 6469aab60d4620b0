"""Demo training: a NumPy classifier of drawn shapes with two deliberate mistakes.

Both mistakes are common. The program does not fail, and the loss decreases at first:

1. The second layer was not passed to the optimizer, so its weights keep their initial values.
2. The learning rate schedule has a misplaced decimal point after two thirds of the training. The loss jumps, and units
   of the first layer die permanently.

``python -m smdwidgets.demo.training DIRECTORY --seconds 120`` runs the training. It stops early when its standard input
is closed, so that it does not outlive the program that started it.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from smdwidgets.modes import ModeKeys
from smdwidgets.numpy import Hook

Array = NDArray[np.float32]

SHAPES = ("ring", "cross", "bar", "dash", "slope", "dot")
SIDE = 16
#: Training steps; an evaluation step follows every tenth one.
STEPS = 300
EVALUATE_EVERY = 10
BATCH = 64
#: Step of the mistake in the learning rate schedule, and the wrong learning rate.
SLIP_AT, SLIP_TO = 200, 3.0
RATE = 0.15


def draw(labels: NDArray[np.int64], rng: np.random.Generator) -> Array:
    """Draw noisy images of shapes near the center, as rows of SIDE * SIDE numbers."""
    n = len(labels)
    y, x = np.mgrid[0:SIDE, 0:SIDE].astype(np.float32)[:, None] - (SIDE - 1) / 2
    x = x - rng.uniform(-2, 2, (n, 1, 1)).astype(np.float32)
    y = y - rng.uniform(-2, 2, (n, 1, 1)).astype(np.float32)
    size = rng.uniform(3.0, 5.0, (n, 1, 1)).astype(np.float32)

    def line(distance: Array, along: Array) -> Array:
        return np.exp(-(distance**2)) * (np.abs(along) < size)

    radius = np.hypot(x, y)
    drawn = [
        np.exp(-((radius - size) ** 2)),
        np.maximum(line(x, y), line(y, x)),
        line(x, y),
        line(y, x),
        line((x - y) / np.float32(np.sqrt(2)), x),
        np.exp(-(radius**2) / 4),
    ]
    pictures = np.choose(labels[:, None, None], drawn)
    noisy: Array = (pictures + rng.normal(0, 0.25, pictures.shape)).astype(np.float32).reshape(n, -1)
    return noisy


class Classifier:
    """Three dense layers with ReLU between them."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.parameters: dict[str, Array] = {}
        for name, inputs, outputs in (("fc1", SIDE * SIDE, 48), ("fc2", 48, 32), ("fc3", 32, len(SHAPES))):
            scale = np.sqrt(2 / inputs)
            self.parameters[f"{name}.weight"] = rng.normal(0, scale, (inputs, outputs)).astype(np.float32)
            self.parameters[f"{name}.bias"] = np.zeros(outputs, np.float32)
        # First mistake: a layer was frozen for an experiment and never unfrozen.
        self.optimised = [name for name in self.parameters if not name.startswith("fc2")]

    def forward(self, pictures: Array) -> tuple[Array, dict[str, Array]]:
        """Return the class probabilities and the layer outputs."""
        p = self.parameters
        h1 = np.maximum(pictures @ p["fc1.weight"] + p["fc1.bias"], 0)
        h2 = np.maximum(h1 @ p["fc2.weight"] + p["fc2.bias"], 0)
        logits = h2 @ p["fc3.weight"] + p["fc3.bias"]
        logits -= logits.max(axis=1, keepdims=True)
        exp = np.exp(logits)
        return exp / exp.sum(axis=1, keepdims=True), {"fc1.relu_output": h1, "fc2.relu_output": h2}

    def gradients(
        self, pictures: Array, labels: NDArray[np.int64], probabilities: Array, outputs: dict[str, Array]
    ) -> dict[str, Array]:
        """Return the gradient of the mean cross-entropy for every parameter."""
        p, h1, h2 = self.parameters, outputs["fc1.relu_output"], outputs["fc2.relu_output"]
        d3 = probabilities.copy()
        d3[np.arange(len(labels)), labels] -= 1
        d3 /= len(labels)
        d2 = (d3 @ p["fc3.weight"].T) * (h2 > 0)
        d1 = (d2 @ p["fc2.weight"].T) * (h1 > 0)
        found = {"fc3": (h2, d3), "fc2": (h1, d2), "fc1": (pictures, d1)}
        gradients = {}
        for name, (inputs, d) in found.items():
            gradients[f"{name}.weight"] = inputs.T @ d
            gradients[f"{name}.bias"] = d.sum(axis=0)
        return gradients


def loss_of(probabilities: Array, labels: NDArray[np.int64]) -> float:
    """Return the mean cross-entropy."""
    return float(-np.log(np.maximum(probabilities[np.arange(len(labels)), labels], 1e-9)).mean())


def learning_rate(step: int) -> float:
    """Return the decaying learning rate, with the second mistake.

    For six steps, it is 3.0 instead of 0.03.
    """
    if SLIP_AT <= step < SLIP_AT + 6:
        return SLIP_TO
    return float(RATE * 0.5 ** (step / STEPS))


def train(
    directory: str | os.PathLike[str], seconds: float = 0.0, stop: threading.Event | None = None, seed: int = 0
) -> None:
    """Train once and save every step.

    The training is spread over `seconds`, so that the run can be followed live.
    """
    stop = stop or threading.Event()
    rng = np.random.default_rng(seed)
    model = Classifier(rng)
    test_labels = rng.integers(0, len(SHAPES), 256)
    test_pictures = draw(test_labels, rng)
    # A fixed example: every step whole, without what a plan or the flight recorder would add.
    with Hook(directory, overwrite=True, plan=False) as hook:
        began = time.monotonic()
        for step in range(STEPS):
            hook.set_mode(ModeKeys.TRAIN)
            _train_step(model, hook, rng, step)
            if step % EVALUATE_EVERY == EVALUATE_EVERY - 1:
                hook.set_mode(ModeKeys.EVAL)
                _evaluate(model, hook, test_pictures, test_labels)
            if stop.wait(max(0.0, began + seconds * (step + 1) / STEPS - time.monotonic())):
                return


def _train_step(model: Classifier, hook: Hook, rng: np.random.Generator, step: int) -> None:
    labels = rng.integers(0, len(SHAPES), BATCH)
    pictures = draw(labels, rng)
    probabilities, outputs = model.forward(pictures)
    gradients = model.gradients(pictures, labels, probabilities, outputs)
    rate = learning_rate(step)

    for name, value in model.parameters.items():
        hook.save_tensor(name, value, "weights" if name.endswith("weight") else "biases")
        hook.save_tensor(f"gradient/{name}", gradients[name], "gradients")
    for name, value in outputs.items():
        hook.save_tensor(name, value, "outputs")
    hook.save_tensor("loss", np.float32(loss_of(probabilities, labels)), "losses")
    hook.save_tensor("learning_rate", np.float32(rate), "metrics")
    hook.step()

    for name in model.optimised:
        model.parameters[name] = model.parameters[name] - np.float32(rate) * gradients[name]


def _evaluate(model: Classifier, hook: Hook, pictures: Array, labels: NDArray[np.int64]) -> None:
    probabilities, _ = model.forward(pictures)
    hook.save_tensor("loss", np.float32(loss_of(probabilities, labels)), "losses")
    hook.save_tensor("accuracy", np.float32((probabilities.argmax(axis=1) == labels).mean()), "metrics")
    hook.step()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the training process that `smdwidgets demo` starts."""
    parser = argparse.ArgumentParser(prog="python -m smdwidgets.demo.training")
    parser.add_argument("directory")
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    stop = threading.Event()

    def until_closed() -> None:
        # Do not read sys.stdin: a waiting thread would hold its lock, and the interpreter would abort at exit.
        while os.read(sys.stdin.fileno(), 4096):
            pass
        stop.set()

    threading.Thread(target=until_closed, daemon=True).start()
    try:
        train(args.directory, args.seconds, stop, args.seed)
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
