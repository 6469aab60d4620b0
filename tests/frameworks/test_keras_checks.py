"""Checks of Keras trainings, on each backend of the environment.

The examples of docs/checks.md, planted faults and their repair, healthy trainings, equal results.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from frameworks.check_examples import PAGE, both, is_right, outcomes, run_scripts, runner_of
from python.launch.launching import Place
from smdwidgets.finding import CHECKS

TEXT = PAGE.read_text(encoding="utf-8")
WITH_EXAMPLE = [one.id for one in CHECKS if runner_of(TEXT, one.id) == Path(__file__).name]
BACKENDS = [name for name in ("tensorflow", "jax", "torch") if find_spec(name) is not None]
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONWARNINGS": "ignore"}

BEGIN = """
import keras
import numpy as np
from keras import layers
keras.utils.set_random_seed(0)
random = np.random.default_rng(0)
x = random.normal(size=(320, 6)).astype("float32")
y = (x[:, 0] + random.normal(size=320)).astype("float32")
c = np.digitize(y, [-0.5, 0.5])
b = (y > 0).astype(int)
entropy = "sparse_categorical_crossentropy"
Entropy, Binary = keras.losses.SparseCategoricalCrossentropy, keras.losses.BinaryCrossentropy
def net(units=1, activation=None, *middle):
    return keras.Sequential([keras.Input((6,)), layers.Dense(8, "relu"), *middle, layers.Dense(units, activation)])
def fit(model, loss, x, y, optimizer="adam", **options):
    model.compile(optimizer, loss)
    model.fit(x, y, **{"verbose": 0, "epochs": 1, "batch_size": 16, **options})
    return model
def show(model, x=x):
    outputs = model.predict(x[:32], verbose=0)
    print(float(sum(np.sum(one) for one in outputs) if isinstance(outputs, list) else np.sum(outputs)).hex())
"""
#: What fires, the fault, and its repair.
PLANTED = {
    "softmax twice": (
        "softmax_before_loss",
        "fit(net(3, 'softmax'), Entropy(from_logits=True), x, c)",
        "fit(net(3), Entropy(from_logits=True), x, c)",
    ),
    "sigmoid twice": (
        "double_sigmoid",
        "fit(net(1, 'sigmoid'), Binary(from_logits=True), x, b)",
        "fit(net(1), Binary(from_logits=True), x, b)",
    ),
    "no softmax": ("logits_as_probabilities", "fit(net(3), entropy, x, c)", "fit(net(3, 'softmax'), entropy, x, c)"),
    "no sigmoid": (
        "logits_as_probabilities",
        "fit(net(1), 'binary_crossentropy', x, b)",
        "fit(net(1, 'sigmoid'), 'binary_crossentropy', x, b)",
    ),
    "one unit": (
        "softmax_one_unit",
        "fit(net(1, 'softmax'), 'binary_crossentropy', x, b)",
        "fit(net(1, 'sigmoid'), 'binary_crossentropy', x, b)",
    ),
    "one class": (
        "one_class_ce",
        "fit(net(1), keras.losses.CategoricalCrossentropy(from_logits=True), x, b[:, None])",
        "fit(net(1), Binary(from_logits=True), x, b)",
    ),
    "frozen": ("mostly_frozen", "m = net(); m.trainable = False; fit(m, 'mse', x, y)", "fit(net(), 'mse', x, y)"),
    "dropout": (
        "strong_dropout",
        "fit(net(1, None, layers.Dropout(0.9)), 'mse', x, y)",
        "fit(net(1, None, layers.Dropout(0.1)), 'mse', x, y)",
    ),
    "momentum": (
        "norm_momentum",
        "fit(net(1, None, layers.BatchNormalization(momentum=0.1)), 'mse', x, y)",
        "fit(net(1, None, layers.BatchNormalization()), 'mse', x, y)",
    ),
    "tanh": ("unreachable_targets", "fit(net(1, 'tanh'), 'mse', x, 5 * y)", "fit(net(1), 'mse', x, 5 * y)"),
    "one output, two targets": (
        "targets_broadcast",
        "fit(net(1), 'mse', x, np.stack([y, -y], 1))",
        "fit(net(2), 'mse', x, np.stack([y, -y], 1))",
    ),
    "three outputs, one target": ("targets_broadcast", "fit(net(3), 'mse', x, y[:, None])", "fit(net(1), 'mse', x, y)"),
    "off by one": ("off_by_one", "fit(net(4, 'softmax'), entropy, x, c + 1)", "fit(net(3, 'softmax'), entropy, x, c)"),
    "validated on itself": (
        "validation_in_training",
        "fit(net(), 'mse', x, y, validation_data=(x.copy(), y.copy()))",
        "fit(net(), 'mse', x[:256], y[:256], validation_data=(x[256:], y[256:]))",
    ),
    "validated on a part": (
        "validation_in_training",
        "fit(net(), 'mse', x, y, validation_data=(x[256:], y[256:]))",
        "fit(net(), 'mse', x, y, validation_split=0.2)",
    ),
    "split of sorted data": (
        "classes_not_trained",
        "o = np.argsort(c); fit(net(3, 'softmax'), entropy, x[o], c[o], validation_split=0.3)",
        "fit(net(3, 'softmax'), entropy, x, c, validation_split=0.3)",
    ),
    "not shuffled": (
        "labels_sorted",
        "o = np.argsort(c); fit(net(3, 'softmax'), entropy, x[o], c[o], shuffle=False)",
        "o = np.argsort(c); fit(net(3, 'softmax'), entropy, x[o], c[o])",
    ),
    "label among the inputs": ("target_in_input", "x[:, 2] = y; fit(net(), 'mse', x, y)", "fit(net(), 'mse', x, y)"),
    "one label": ("labels_equal", "fit(net(), 'mse', x, y * 0)", "fit(net(), 'mse', x, y)"),
    "equal rows": ("equal_rows", "x[:] = x[0]; fit(net(), 'mse', x, y)", "fit(net(), 'mse', x, y)"),
    "validation not scaled": (
        "eval_inputs_differ",
        "fit(net(), 'mse', x[:256], y[:256], validation_data=(90 * x[256:] + 900, y[256:]))",
        "fit(net(), 'mse', x[:256], y[:256], validation_data=(x[256:], y[256:]))",
    ),
    "ReLU for probabilities": (
        "logits_as_probabilities",
        "fit(net(3, 'relu'), entropy, x, c)",
        "fit(net(3, 'softmax'), entropy, x, c)",
    ),
    "softmax over rows": (
        "softmax_over_rows",
        "fit(keras.Sequential([net(3), layers.Softmax(axis=0)]), entropy, x, c)",
        "fit(keras.Sequential([net(3), layers.Softmax()]), entropy, x, c)",
    ),
    "no activation": (
        "no_activation",
        "fit(keras.Sequential([keras.Input((6,)), layers.Dense(8), layers.Dropout(0.1), layers.Dense(3, 'softmax')]), entropy, x, c)",
        "fit(net(3, 'softmax', layers.Dropout(0.1)), entropy, x, c)",
    ),
    "squared error of classes": (
        "mse_on_onehot",
        "m = net(3, 'softmax'); m.compile('adam', 'mse', metrics=['accuracy']); m.fit(x, np.eye(3)[c], verbose=0)",
        "fit(net(3, 'softmax'), 'categorical_crossentropy', x, np.eye(3)[c])",
    ),
    "classes as numbers": (
        "mse_on_classes",
        "m = net(1); m.compile('adam', 'mse', metrics=['acc']); m.fit(x, c, verbose=0)",
        "fit(net(3, 'softmax'), entropy, x, c)",
    ),
    "equal units": (
        "symmetric_units",
        "o = dict(kernel_initializer='ones'); m = keras.Sequential([keras.Input((6,)), layers.Dense(8, 'tanh', **o), layers.Dense(1, **o)])\nfit(m, 'mse', x, y)",
        "fit(net(), 'mse', x, y)",
    ),
    "weights of 0": (
        "symmetric_units",
        "o = dict(kernel_initializer='zeros'); m = keras.Sequential([keras.Input((6,)), layers.Dense(8, 'relu', **o), layers.Dense(1, **o)])\nfit(m, 'mse', x, y)",
        "fit(net(), 'mse', x, y)",
    ),
    "gradient stopped": (
        "no_gradient",
        "i = keras.Input((6,)); h = layers.Dense(8, 'relu')(i); o = layers.Dense(1)(keras.ops.stop_gradient(h)); fit(keras.Model(i, o), 'mse', x, y)",
        "fit(net(), 'mse', x, y)",
    ),
    "compiled at each epoch": (
        "optimizer_recreated",
        "m = net()\nfor _ in range(5): fit(m, 'mse', x, y)",
        "m = fit(net(), 'mse', x, y)\nfor _ in range(4): m.fit(x, y, verbose=0)",
    ),
    "weights set back": (
        "weights_restored",
        "m = net(); m.compile('adam', 'mse'); w = m.get_weights()\nfor _ in range(5): m.set_weights(w); m.fit(x, y, verbose=0)",
        "m = net(); m.compile('adam', 'mse')\nfor _ in range(5): m.fit(x, y, verbose=0)",
    ),
    "dead output": (
        "weights_unchanged",
        "m = keras.Sequential([keras.Input((6,)), layers.Dense(1, 'relu', bias_initializer=keras.initializers.Constant(-100))])\nfit(m, 'mse', x, abs(y))",
        "fit(net(1, 'relu'), 'mse', x, abs(y))",
    ),
}
#: On some other backends than JAX, Keras raises an error.
SILENT = {
    "labels 1 and 2": (
        "unreachable_targets",
        "fit(net(1, 'sigmoid'), 'binary_crossentropy', x, b + 1)",
        "fit(net(1, 'sigmoid'), 'binary_crossentropy', x, b)",
    ),
    "label too large": (
        "labels_out_of_range",
        "fit(net(3, 'softmax'), entropy, x, c + 1)",
        "fit(net(3, 'softmax'), entropy, x, c)",
    ),
}
HEALTHY = {
    "a tiny rate": "show(fit(net(), 'mse', x, y, keras.optimizers.Adam(1e-10)))",
    "regression": "show(fit(net(), 'mse', x, y))",
    "columns": "show(fit(net(2), 'mse', x, np.stack([y, -y], 1)))",
    "classes": "show(fit(net(3, 'softmax'), entropy, x, c, validation_data=(x[:20] + 1, c[:20])))",
    "logits": "show(fit(net(3), Entropy(from_logits=True), x, c, validation_split=0.2))",
    "one hot": "show(fit(net(3, 'softmax'), 'categorical_crossentropy', x, np.eye(3, dtype='float32')[c]))",
    "binary": "show(fit(net(1, 'sigmoid'), 'binary_crossentropy', x, b))",
    "several labels": "show(fit(net(2, 'sigmoid'), 'binary_crossentropy', x, np.stack([b, 1 - b], 1)))",
    "layers": "show(fit(net(1, None, layers.BatchNormalization(), layers.Dropout(0.5)), 'mse', x, y))",
    "a separate softmax": "m = keras.Sequential([keras.Input((6,)), layers.Dense(3), layers.Softmax()]); show(fit(m, entropy, x, c))",
    "a separate activation": "m = keras.Sequential([keras.Input((6,)), layers.Dense(1), layers.Activation('sigmoid')]); show(fit(m, 'binary_crossentropy', x, b))",
    "autoencoder": "show(fit(net(6), 'mse', x, x))",
    "a head": "m = net(1, None, layers.Dense(8, trainable=False)); show(fit(m, 'mse', x, y))",
    "own loss": "show(fit(net(), lambda true, out: keras.ops.mean((true - out) ** 2), x, y))",
    "images": "i = random.random((64, 8, 8, 1)).astype('float32'); m = keras.Sequential([keras.Input((8, 8, 1)), layers.Conv2D(4, 3, activation='relu'), layers.Flatten(), layers.Dense(3, 'softmax')])\nshow(fit(m, entropy, i, c[:64]), i)",
    "tokens": "t = random.integers(0, 20, (320, 5)); m = keras.Sequential([keras.Input((5,)), layers.Embedding(20, 4), layers.Flatten(), layers.Dense(1, 'sigmoid')])\nshow(fit(m, 'binary_crossentropy', t, b), t)",
    "two outputs": "i = keras.Input((6,)); m = keras.Model(i, [layers.Dense(1)(i), layers.Dense(3, 'softmax')(i)])\nshow(fit(m, ['mse', entropy], x, [y, c]))",
    "subclass": """
class Own(keras.Model):
    def __init__(self): super().__init__(); self.layer = layers.Dense(1)
    def call(self, given): return self.layer(given)
show(fit(Own(), 'mse', x, y))
""",
    "own data": """
class Own(keras.utils.PyDataset):
    def __len__(self): return 4
    def __getitem__(self, n): return x[n * 80:n * 80 + 80], y[n * 80:n * 80 + 80]
m = net(); m.compile('adam', 'mse'); m.fit(Own(), verbose=0); show(m)
""",
    "warms up": "r = keras.optimizers.schedules.PolynomialDecay(0.0, 10, 0.01); show(fit(net(), 'mse', x, y, keras.optimizers.Adam(r)))",
    "weighted": "show(fit(net(), 'mse', x, y, sample_weight=np.linspace(0, 1, 320)))",
    "twice": "m = fit(net(), 'mse', x, y); m.fit(x, y, verbose=0); show(m)",
    "stops early": "show(fit(net(), 'mse', x, y, validation_split=0.2, epochs=3, callbacks=[keras.callbacks.EarlyStopping(patience=1)]))",
    "ordered series": "o = np.argsort(y); show(fit(net(), 'mse', x[o], y[o], shuffle=False))",
}


@pytest.fixture(scope="module", params=BACKENDS)
def backend(request):
    return {"KERAS_BACKEND": request.param, **QUIET}


@pytest.fixture(scope="module")
def page(backend, tmp_path_factory):
    return outcomes(Place(tmp_path_factory.mktemp("examples")), "keras", WITH_EXAMPLE, **backend)


def cases(backend):
    return {**PLANTED, **(SILENT if backend["KERAS_BACKEND"] == "jax" else {})}


@pytest.fixture(scope="module")
def fired(backend, tmp_path_factory):
    """Return what fired in all scripts."""
    scripts = {f"{name}/{n}": case[1 + n] for name, case in cases(backend).items() for n in (0, 1)}
    return run_scripts(tmp_path_factory.mktemp("scripts"), BEGIN, {**scripts, **HEALTHY}, **backend)


@pytest.mark.parametrize("check", WITH_EXAMPLE)
def test_the_example_of_a_check_fires_and_its_fix_does_not(page, check):
    is_right(check, page)


@pytest.mark.parametrize("name", {**PLANTED, **SILENT})
def test_a_planted_fault_is_named_and_its_repair_is_silent(backend, fired, name):
    if name not in cases(backend):
        pytest.skip("Keras raises an error")
    (broken, _), (fixed, _) = fired[f"{name}/0"], fired[f"{name}/1"]
    assert cases(backend)[name][0] in broken
    assert {*fixed.values()} <= {"note"}, fixed


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_training_is_silent(fired, name):
    found, off = fired[name]
    assert {*found.values()} <= {"note"}, found
    assert not any("Error" in reason for reason in off.values()), off


#: Trainings that two processes repeat, one of them with checks.
AT_ONCE = 6


@pytest.mark.parametrize("begin", range(0, len(HEALTHY), AT_ONCE))
def test_trainings_with_checks_have_the_same_bits(backend, begin, tmp_path):
    some = dict([*HEALTHY.items()][begin : begin + AT_ONCE])
    plain, checked = both(Place(tmp_path), BEGIN, some, OMP_NUM_THREADS="1", **backend)
    assert plain.code == checked.code == 0, checked.err
    assert checked.out == plain.out
    assert len(plain.out.splitlines()) == len(some)
