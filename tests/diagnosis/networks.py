"""A small NumPy network library: dense layers, optimizers and losses.

It is fast enough to train a network in half a second.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import numpy as np

ACTIVATIONS = {
    "relu": (lambda x: np.maximum(x, 0), lambda y: y > 0),
    "tanh": (np.tanh, lambda y: 1 - y * y),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), lambda y: y * (1 - y)),
    "linear": (lambda x: x, lambda y: np.float32(1)),
}


class Network:
    """Dense layers.

    All parameters are views of one vector, so an optimizer updates them in a few calls.
    """

    def __init__(self, rng, sizes, activation="relu", bias=0.0):
        self.activation, self.slope = ACTIVATIONS[activation]
        shapes = list(itertools.pairwise(sizes))
        self.parameters = np.zeros(sum(inputs * outputs + outputs for inputs, outputs in shapes), np.float32)
        self.gradient = np.zeros_like(self.parameters)
        self.weights, self.biases = self._views(self.parameters, shapes)
        self.weight_gradients, self.bias_gradients = self._views(self.gradient, shapes)
        gain = 2.0 if activation == "relu" else 1.0
        for weight, of_bias in zip(self.weights, self.biases, strict=True):
            weight[:] = rng.normal(0, np.sqrt(gain / weight.shape[0]), weight.shape)
            if of_bias is not self.biases[-1]:
                of_bias[:] = bias
        self.dropped = None

    @staticmethod
    def _views(flat, shapes):
        weights, biases, at = [], [], 0
        for inputs, outputs in shapes:
            weights.append(flat[at : at + inputs * outputs].reshape(inputs, outputs))
            at += inputs * outputs
            biases.append(flat[at : at + outputs])
            at += outputs
        return weights, biases

    def forward(self, x, dropout=0.0, rng=None):
        """Return the input, the output of each hidden layer, and the network's output."""
        outputs, self.dropped = [x], []
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            y = self.activation(outputs[-1] @ weight + bias)
            if dropout:
                kept = (rng.random(y.shape, np.float32) >= dropout) / np.float32(1 - dropout)
                self.dropped.append(kept)
                y = y * kept
            outputs.append(y)
        return [*outputs, outputs[-1] @ self.weights[-1] + self.biases[-1]]

    def backward(self, outputs, slope):
        """Compute the gradients from the loss's slope at the output.

        Return the slope at the input.
        """
        for at in range(len(self.weights) - 1, -1, -1):
            np.matmul(outputs[at].T, slope, out=self.weight_gradients[at])
            self.bias_gradients[at][:] = slope.sum(axis=0)
            slope = slope @ self.weights[at].T
            if at:
                if self.dropped:
                    kept = self.dropped[at - 1]
                    slope = slope * kept * self.slope(outputs[at] / np.maximum(kept, 1))
                else:
                    slope = slope * self.slope(outputs[at])
        return slope


@dataclass
class Optimizer:
    """SGD, SGD with momentum, or Adam on one vector of parameters."""

    kind: str = "momentum"
    first: np.ndarray | None = field(default=None)
    second: np.ndarray | None = field(default=None)
    steps: int = 0

    def step(self, parameters, gradient, rate):
        """Update the parameters in place."""
        self.steps += 1
        rate = np.float32(rate)
        if self.kind == "sgd":
            parameters -= rate * gradient
            return
        if self.first is None:
            self.first, self.second = np.zeros_like(parameters), np.zeros_like(parameters)
        if self.kind == "momentum":
            self.first *= np.float32(0.9)
            self.first += gradient
            parameters -= rate * self.first
            return
        self.first += np.float32(0.1) * (gradient - self.first)
        self.second += np.float32(0.001) * (gradient * gradient - self.second)
        mean = self.first / np.float32(1 - 0.9**self.steps)
        square = self.second / np.float32(1 - 0.999**self.steps)
        parameters -= rate * mean / (np.sqrt(square) + np.float32(1e-8))


def cross_entropy(logits, labels):
    """Return the mean loss and its slope at the logits."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    exp = np.exp(shifted)
    total = exp.sum(axis=1, keepdims=True)
    rows = np.arange(len(labels))
    loss = (np.log(total[:, 0]) - shifted[rows, labels]).mean()
    slope = exp / total
    slope[rows, labels] -= 1
    return float(loss), slope / np.float32(len(labels))


def half_cross_entropy(logits, labels):
    """Return the loss as a script in half precision computes it.

    It takes the logarithm of probabilities that underflow to 0.
    """
    half = logits.astype(np.float16)
    exp = np.exp(half - half.max(axis=1, keepdims=True))
    chances = exp / exp.sum(axis=1, keepdims=True)
    rows = np.arange(len(labels))
    loss = -np.log(chances[rows, labels])
    of_chance = np.zeros_like(chances)
    of_chance[rows, labels] = -1 / chances[rows, labels]
    slope = chances * (of_chance - (of_chance * chances).sum(axis=1, keepdims=True))
    return float(loss.mean()), slope.astype(np.float32) / np.float32(len(labels))


def squared_error(outputs, targets):
    """Return the mean loss and its slope at the outputs."""
    difference = outputs - targets
    return float((difference**2).mean()), np.float32(2 / difference.size) * difference
