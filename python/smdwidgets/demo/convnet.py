"""A small convolutional network in NumPy, for the notebooks.

It has two convolutions and a dense layer, and classifies the pictures of `smdwidgets.demo.training.draw`.
"""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from smdwidgets.demo.training import SHAPES, SIDE, Array

KERNEL = 3


def convolve(pictures: Array, weight: Array) -> Array:
    """Return the convolution of pictures with a weight, without padding.

    Their shapes are (n, c, h, w) and (filters, c, 3, 3).
    """
    windows = sliding_window_view(pictures, (KERNEL, KERNEL), axis=(2, 3))
    result: Array = np.tensordot(windows, weight, ((1, 4, 5), (1, 2, 3))).transpose(0, 3, 1, 2)
    return result


def weight_gradient(pictures: Array, d: Array) -> Array:
    """Return the gradient of a convolution's weight from that of its result."""
    windows = sliding_window_view(pictures, (KERNEL, KERNEL), axis=(2, 3))
    result: Array = np.tensordot(d, windows, ((0, 2, 3), (0, 2, 3)))
    return result


def picture_gradient(weight: Array, d: Array) -> Array:
    """Return the gradient of what a convolution read from that of its result."""
    edge = KERNEL - 1
    padded = np.pad(d, ((0, 0), (0, 0), (edge, edge), (edge, edge)))
    return convolve(padded, weight[:, :, ::-1, ::-1].transpose(1, 0, 2, 3))


class Convnet:
    """Convolution, ReLU, mean of 2 x 2 pixels, convolution, ReLU, dense layer.

    Attributes:
        parameters: weights and biases by name; a training changes them.

    Example:
        >>> import numpy as np
        >>> from smdwidgets.demo.training import draw
        >>> rng = np.random.default_rng(0)
        >>> labels = rng.integers(0, 6, 32)
        >>> loss, outputs, gradients = Convnet(rng).step(draw(labels, rng), labels)
        >>> outputs["conv2.relu_output"].shape
        (32, 16, 5, 5)
    """

    def __init__(self, rng: np.random.Generator) -> None:
        side = ((SIDE - KERNEL + 1) // 2) - KERNEL + 1
        shapes = {"conv1": (8, 1, KERNEL, KERNEL), "conv2": (16, 8, KERNEL, KERNEL), "fc": (len(SHAPES), 16 * side**2)}
        self.parameters: dict[str, Array] = {}
        for name, shape in shapes.items():
            spread = np.sqrt(2 / np.prod(shape[1:]))
            self.parameters[f"{name}.weight"] = rng.normal(0, spread, shape).astype(np.float32)
            self.parameters[f"{name}.bias"] = np.zeros(shape[0], np.float32)

    def step(self, pictures: Array, labels: NDArray[np.int64]) -> tuple[float, dict[str, Array], dict[str, Array]]:
        """Return loss, outputs of layers, and gradients of a batch.

        The loss is the mean cross-entropy; each parameter has a gradient of the same name.
        """
        p = self.parameters
        pixels = pictures.reshape(-1, 1, SIDE, SIDE)
        h1 = np.maximum(convolve(pixels, p["conv1.weight"]) + p["conv1.bias"][:, None, None], 0)
        n, channels, height, width = h1.shape
        pooled = h1.reshape(n, channels, height // 2, 2, width // 2, 2).mean(axis=(3, 5))
        h2 = np.maximum(convolve(pooled, p["conv2.weight"]) + p["conv2.bias"][:, None, None], 0)
        flat = h2.reshape(n, -1)
        logits = flat @ p["fc.weight"].T + p["fc.bias"]
        logits = logits - logits.max(axis=1, keepdims=True)
        log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        loss = float(-log_p[np.arange(n), labels].mean())

        d3 = np.exp(log_p)
        d3[np.arange(n), labels] -= 1
        d3 /= n
        d2 = (d3 @ p["fc.weight"]).reshape(h2.shape) * (h2 > 0)
        d_pooled = picture_gradient(p["conv2.weight"], d2)
        d1 = d_pooled.repeat(2, axis=2).repeat(2, axis=3) / 4 * (h1 > 0)
        gradients = {
            "conv1.weight": weight_gradient(pixels, d1),
            "conv1.bias": d1.sum(axis=(0, 2, 3)),
            "conv2.weight": weight_gradient(pooled, d2),
            "conv2.bias": d2.sum(axis=(0, 2, 3)),
            "fc.weight": d3.T @ flat,
            "fc.bias": d3.sum(axis=0),
        }
        return loss, {"conv1.relu_output": h1, "conv2.relu_output": h2}, gradients
