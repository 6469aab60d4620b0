"""Trainings with Keras. The environment chooses the backend."""

from __future__ import annotations

import os

import numpy as np

from frameworks.stacks.table import Trained, stack

#: Its import starts no thread on any backend, so that processes may be forked afterwards.
KERAS = {"needs": ("keras",), "hooks": ("smdwidgets.hooks.keras.hook",)}
EPOCHS, ROWS, BATCH = 2, 32, 8


def data(*shape):
    """Return random inputs and their sums."""
    x = np.random.default_rng(0).normal(size=(ROWS, *shape)).astype("float32")
    return x, x.reshape(ROWS, -1).sum(1, keepdims=True)


def fit(record, model, x, y, optimizer="adam", loss="mse", **options):
    """Compile and fit; note each batch's loss and the weights."""
    import keras

    class Losses(keras.callbacks.Callback):
        """Keras reports the mean of the batches of an epoch so far."""

        def __init__(self):
            super().__init__()
            self.seen = []

        def on_train_batch_end(self, batch, logs=None):
            self.seen.append(logs["loss"])

    keras.utils.set_random_seed(0)
    model.compile(optimizer, loss, **options)
    traced = os.environ["KERAS_BACKEND"] != "jax"
    layers = [one for one in model._flatten_layers(include_self=False) if one.weights and one.trainable]
    start = {f"{one.name}/weights/{w.name}": to_numpy(w) for one in layers for w in one._trainable_variables}
    gradients = [name.replace("/weights/", "/") for name in start] if traced else []
    record.note(start, [f"gradients/{name}Grad" for name in gradients])
    noted = Losses()
    callbacks = [noted, *record.callbacks("keras")]
    model.fit(x, y, epochs=EPOCHS, batch_size=BATCH, verbose=0, callbacks=callbacks)
    weights = {f"{number}/{one.path}": to_numpy(one) for number, one in enumerate(model.weights)}
    optimized = {f"optimizer/{n}/{one.path}": to_numpy(one) for n, one in enumerate(model.optimizer.variables)}
    return Trained({"loss": noted.seen}, weights=weights | optimized)


def to_numpy(variable):
    """Copy a variable of any backend."""
    import keras

    return np.array(keras.ops.convert_to_numpy(variable))


@stack(**KERAS)
def keras_perceptron(record):
    import keras

    keras.utils.set_random_seed(0)
    layers = keras.layers
    model = keras.Sequential([layers.Input((4,)), layers.Dense(8, "relu", name="hidden"), layers.Dense(1, name="last")])
    return fit(record, model, *data(4), metrics=["mae"])


@stack(**KERAS)
def keras_convolutions(record):
    """Batch normalization, dropout, a schedule and clipping."""
    import keras

    keras.utils.set_random_seed(0)
    layers = keras.layers
    model = keras.Sequential(
        [
            layers.Input((8, 8, 1)),
            layers.Conv2D(4, 3, activation="relu", name="conv"),
            layers.BatchNormalization(name="norm"),
            layers.Dropout(0.2),
            layers.Flatten(),
            layers.Dense(1, name="last"),
        ]
    )
    rate = keras.optimizers.schedules.ExponentialDecay(0.05, 2, 0.5)
    return fit(record, model, *data(8, 8, 1), keras.optimizers.SGD(rate, momentum=0.9, global_clipnorm=1.0))


@stack(**KERAS)
def keras_recurrent(record):
    import keras

    keras.utils.set_random_seed(0)
    layers = keras.layers
    model = keras.Sequential([layers.Input((6, 3)), layers.LSTM(5, name="lstm"), layers.Dense(1, name="last")])
    return fit(record, model, *data(6, 3), "rmsprop")


@stack(**KERAS)
def keras_attention(record):
    """A functional model with two branches."""
    import keras

    keras.utils.set_random_seed(0)
    layers = keras.layers
    given = layers.Input((6, 8))
    mixed = layers.MultiHeadAttention(2, 4, name="attention")(given, given)
    mixed = layers.LayerNormalization(name="norm")(layers.Add()([given, mixed]))
    made = layers.Dense(1, name="last")(layers.GlobalAveragePooling1D()(mixed))
    return fit(
        record, keras.Model(given, made), *data(6, 8), keras.optimizers.AdamW(0.01, ema_momentum=0.9, use_ema=True)
    )


@stack(**KERAS)
def keras_own_training_step(record):
    """A model that computes its loss itself."""
    import keras

    keras.utils.set_random_seed(0)

    class Penalized(keras.Sequential):
        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
            loss = super().compute_loss(x, y, y_pred, sample_weight, training)
            return loss + 0.01 * keras.ops.sum(keras.ops.square(self.layers[0].kernel))

    layers = keras.layers
    model = Penalized([layers.Input((4,)), layers.Dense(8, "tanh", name="hidden"), layers.Dense(1, name="last")])
    return fit(record, model, *data(4), keras.optimizers.Lion(0.01))


@stack(**KERAS)
def keras_mixed_precision(record):
    import keras

    keras.utils.set_random_seed(0)
    layers = keras.layers
    policy = keras.DTypePolicy("mixed_bfloat16")
    hidden = layers.Dense(8, "relu", name="hidden", dtype=policy)
    model = keras.Sequential([layers.Input((4,)), hidden, layers.Dense(1, name="last")])
    return fit(record, model, *data(4), "adafactor")
