"""`smdwidgets run` with Keras: the same results, and what the hook saves."""

from __future__ import annotations

import pytest

from python.launch.launching import Place
from smdwidgets import create_trial, modes

SCRIPT = """
import keras
import numpy as np
keras.utils.set_random_seed(0)
model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(0.01), "mse")
x = np.random.rand(64, 4).astype("float32")
y = x.sum(1, keepdims=True)
history = model.fit(x, y, epochs=2, batch_size=16, verbose=0, validation_split=0.25).history
print({name: [value.hex() for value in values] for name, values in history.items()})
model.fit(x, y, epochs=1, batch_size=32, verbose=0)
print([value.sum().item().hex() for value in model.get_weights()])
other = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
other.compile("adam", "mse")
other.fit(x, y, verbose=0)
"""


@pytest.mark.parametrize("backend", ["tensorflow", "jax"])
def test_fit(tmp_path, backend):
    place = Place(tmp_path)
    place.write("train.py", SCRIPT)
    env = {"KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"}
    plain, done = place.python("train.py", env=env), place.run("train.py", env=env)
    assert plain.code == done.code == 0, done.err
    assert done.out == plain.out
    assert done.said[0].startswith("recording sequential (49 parameters) to runs/train: ")
    assert "runs/train-2" in done.said[-1]
    with create_trial(tmp_path / "runs/train") as trial:
        assert len(trial.steps(mode=modes.TRAIN)) == 2 * 3 + 2  # the second fit continues the run
        assert len(trial.steps(mode=modes.EVAL)) == 2
        assert trial.tensor("loss").steps(mode=modes.TRAIN) == list(range(8))
        saved = trial.tensor_names(mode=modes.TRAIN)
        assert "dense/weights/kernel" in saved
        assert ("gradients/dense/kernelGrad" in saved) is (backend == "tensorflow")


BATCHES = """
import keras
import numpy as np
keras.utils.set_random_seed(0)
x = np.random.rand(64, 4).astype("float32")
models = [keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(1)]) for _ in "ab"]
for one in models:
    one.compile(keras.optimizers.SGD(0.01), "mse", metrics=["mae"])
for step in range(12):
    for number, one in enumerate(models):
        rows = x[4 * step : 4 * step + 16] + number
        answer = one.train_on_batch(rows, rows.sum(1, keepdims=True), return_dict=bool(step % 2))
        print([value.hex() for value in (answer.values() if step % 2 else answer)])
"""


@pytest.mark.parametrize("backend", ["tensorflow", "jax"])
def test_train_on_batch_of_two_models_in_turn(tmp_path, backend):
    place = Place(tmp_path)
    place.write("train.py", BATCHES)
    env = {"KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"}
    plain, done = place.python("train.py", env=env), place.run("train.py", env=env)
    assert plain.code == done.code == 0, done.err
    assert done.out == plain.out
    for name in ("train", "train-2"):
        with create_trial(tmp_path / "runs" / name) as trial:
            assert trial.tensor("loss").steps(mode=modes.TRAIN) == list(range(12))
            assert "dense/weights/kernel" in trial.tensor_names() or "dense_2/weights/kernel" in trial.tensor_names()


def test_a_stop_ends_a_loop_of_batches(tmp_path):
    place = Place(tmp_path)
    place.write("train.py", BATCHES)
    env = {"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = place.run("--checks-only", "--steps", "3", "train.py", env=env)
    assert done.out.count("[") < 12, done.out
