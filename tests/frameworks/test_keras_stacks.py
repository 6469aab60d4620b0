"""A hook leaves trainings of Keras as they are, bit for bit, on each backend."""

from __future__ import annotations

import pytest

from frameworks.stacks import keras_fits
from frameworks.stacks.comparing import check
from frameworks.stacks.running import Runner
from frameworks.stacks.table import names_in

NAMES = names_in(keras_fits.__name__)
#: JAX takes ten seconds to compile each.
ON_JAX = ("keras_perceptron", "keras_convolutions", "keras_recurrent")


@pytest.fixture(scope="module")
def runner_on():
    """Return a function that returns the runner of a backend."""
    runners = {}

    def of(backend):
        if backend not in runners:
            env = {"KERAS_BACKEND": backend, "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}
            runners[backend] = Runner("keras_fits", **env)
        return runners[backend]

    yield of
    for one in runners.values():
        one.close()


@pytest.mark.parametrize(
    ("backend", "name"), [*(("tensorflow", name) for name in NAMES), *(("jax", name) for name in ON_JAX)]
)
def test_training_is_bit_equal_with_the_hook_and_recorded(runner_on, backend, name, tmp_path):
    pytest.importorskip(backend)
    check(name, runner_on(backend), tmp_path)
