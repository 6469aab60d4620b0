"""The convolutional network of the first notebook."""

import numpy as np
import pytest

from smdwidgets.demo.convnet import Convnet
from smdwidgets.demo.training import SHAPES, draw


@pytest.fixture
def batch():
    rng = np.random.default_rng(1)
    labels = rng.integers(0, len(SHAPES), 8)
    return draw(labels, rng).astype(np.float64), labels


@pytest.mark.parametrize("name", ["conv1.weight", "conv1.bias", "conv2.weight", "conv2.bias", "fc.weight", "fc.bias"])
def test_gradients_are_differences_of_the_loss(name, batch):
    model = Convnet(np.random.default_rng(0))
    model.parameters = {each: value.astype(np.float64) for each, value in model.parameters.items()}
    gradient = model.step(*batch)[2][name]
    values = model.parameters[name]
    place = np.unravel_index(np.abs(gradient).argmax(), gradient.shape)
    ends = []
    for change in (1e-6, -2e-6):
        values[place] += change
        ends.append(model.step(*batch)[0])
    assert gradient[place] == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-4)


@pytest.mark.slow
def test_it_learns_the_shapes():
    rng = np.random.default_rng(0)
    model = Convnet(rng)
    losses = []
    for _ in range(60):
        labels = rng.integers(0, len(SHAPES), 64)
        loss, _, gradients = model.step(draw(labels, rng), labels)
        losses.append(loss)
        for name, gradient in gradients.items():
            model.parameters[name] = model.parameters[name] - np.float32(0.1) * gradient
    assert losses[0] > 1.7
    assert np.mean(losses[-10:]) < 1.2
