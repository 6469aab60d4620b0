"""Small NumPy trainings of a multilayer perceptron, saved with the NumPy hook.

`History` holds everything passed to the hook, so that a test can compute with NumPy where a rule must fire.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from smdwidgets import modes
from smdwidgets.numpy import Hook

Array = NDArray[np.float64]


@dataclass
class History:
    """All saved tensors, by step and name."""

    path: Path
    saved: dict[int, dict[str, Array]] = field(default_factory=dict)

    def first(self, test: Callable[[int, dict[str, Array]], bool]) -> int | None:
        """Return the first step that passes a test."""
        return next((step for step, tensors in sorted(self.saved.items()) if test(step, tensors)), None)


ACTIVATIONS: dict[str, tuple[Callable[[Array], Array], Callable[[Array], Array]]] = {
    "relu": (lambda x: np.maximum(x, 0.0), lambda x: (x > 0).astype(np.float64)),
    "tanh": (np.tanh, lambda x: 1.0 - np.tanh(x) ** 2),
    "sigmoid": (
        lambda x: 1.0 / (1.0 + np.exp(-np.clip(x, -700, 700))),
        lambda x: (y := 1.0 / (1.0 + np.exp(-np.clip(x, -700, 700)))) * (1.0 - y),
    ),
}


@dataclass
class Training:
    """One training and its faults.

    `at` sets attributes at a step, to inject a fault mid-run.
    """

    widths: tuple[int, ...] = (6, 16, 16, 3)
    activation: str = "relu"
    rate: float = 0.1
    steps: int = 30
    scale: float = 1.0  # of the initial weights, relative to He initialisation
    bias: float = 0.0
    frozen: tuple[int, ...] = ()
    label_scale: float = 1.0
    clip: float = np.inf
    kick: float = 0.0  # added once to all hidden biases
    seed: int = 0
    batch: int = 64
    at: dict[int, dict[str, object]] = field(default_factory=dict)

    def run(self, path: Path) -> History:
        """Train and save weights, biases, gradients, activations and loss at every step."""
        random = np.random.default_rng(self.seed)
        sizes = list(zip(self.widths[:-1], self.widths[1:], strict=True))
        weights = [random.normal(size=size) * self.scale * np.sqrt(2.0 / size[0]) for size in sizes]
        biases = [np.full(size[1], self.bias) for size in sizes]
        target = random.normal(size=(self.widths[0], self.widths[-1]))
        inputs = random.normal(size=(self.batch, self.widths[0]))
        history = History(path)
        with Hook(path) as hook, np.errstate(all="ignore"):
            for step in range(self.steps):
                for name, value in self.at.get(step, {}).items():
                    setattr(self, name, value)
                biases = [bias + self.kick for bias in biases[:-1]] + biases[-1:]
                self.kick = 0.0
                saved, gradients = self._step(weights, biases, inputs, np.tanh(inputs @ target) * self.label_scale)
                history.saved[step] = saved
                for name, value in saved.items():
                    hook.save_tensor(name, value, _collection(name))
                hook.step()
                for layer, (slope, shift) in enumerate(gradients):
                    if layer not in self.frozen:
                        weights[layer] = weights[layer] - self.rate * np.clip(slope, -self.clip, self.clip)
                        biases[layer] = biases[layer] - self.rate * np.clip(shift, -self.clip, self.clip)
        return history

    def _step(
        self, weights: list[Array], biases: list[Array], inputs: Array, labels: Array
    ) -> tuple[dict[str, Array], list[tuple[Array, Array]]]:
        act, slope_of = ACTIVATIONS[self.activation]
        values, sums, saved = [inputs], [], {}
        for layer, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
            saved[f"fc{layer}.weight"], saved[f"fc{layer}.bias"] = weight.copy(), bias.copy()
            sums.append(values[-1] @ weight + bias)
            last = layer == len(weights) - 1
            values.append(sums[-1] if last else act(sums[-1]))
            if not last:
                saved[f"{self.activation}{layer}_input_0"] = sums[-1]
                saved[f"{self.activation}{layer}_output_0"] = values[-1]
        error = values[-1] - labels
        saved["loss_output_0"] = np.array((error**2).mean())
        gradients: list[tuple[Array, Array]] = [None] * len(weights)  # type: ignore[list-item]
        back = 2.0 * error / error.size
        for layer in range(len(weights) - 1, -1, -1):
            gradients[layer] = values[layer].T @ back, back.sum(axis=0)
            saved[f"gradient/fc{layer}.weight"], saved[f"gradient/fc{layer}.bias"] = gradients[layer]
            if layer:
                back = (back @ weights[layer].T) * slope_of(sums[layer - 1])
        return saved, gradients


def _collection(name: str) -> str:
    if name.startswith("gradient/"):
        return "gradients"
    if name.endswith("weight"):
        return "weights"
    if name.endswith("bias"):
        return "biases"
    return "losses" if name.startswith("loss") else "default"


def train_and_validate(
    path: Path, *, noise: float, epochs: int = 12, seed: int = 0, rate: float = 0.05
) -> dict[int, tuple[modes, float]]:
    """Train least squares and return mode and loss by step.

    Each epoch has four TRAIN steps and two EVAL steps. With noisy labels and as many features as samples, the training
    loss converges to zero and the validation loss does not.
    """
    random = np.random.default_rng(seed)
    features = random.normal(size=(24, 20))
    truth = random.normal(size=20)
    labels = features @ truth + noise * random.normal(size=24)
    held_out = random.normal(size=(64, 20))
    held_labels = held_out @ truth + noise * random.normal(size=64)
    weight = np.zeros(20)
    losses: dict[int, tuple[modes, float]] = {}
    step = 0
    with Hook(path) as hook:
        for _ in range(epochs):
            for mode, count in ((modes.TRAIN, 4), (modes.EVAL, 2)):
                hook.set_mode(mode)
                for _ in range(count):
                    x, y = (features, labels) if mode is modes.TRAIN else (held_out, held_labels)
                    error = x @ weight - y
                    loss = float((error**2).mean())
                    losses[step] = mode, loss
                    hook.save_tensor("loss_output_0", loss, "losses")
                    hook.step()
                    step += 1
                    if mode is modes.TRAIN:
                        weight = weight - rate * x.T @ error / len(x)
    return losses
