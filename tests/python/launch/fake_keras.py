"""A framework of a few lines: as much of Keras as the hook needs."""

from __future__ import annotations


class _Callback:
    def __init__(self):
        self.model = None

    def set_model(self, model):
        self.model = model


class callbacks:
    Callback = _Callback


class _Layer:
    def __init__(self):
        self.name, self.built, self.weights, self._trainable_variables = "fake", True, [], []

    def call(self, value):
        return value

    def _flatten_layers(self, include_self=True, recursive=True):
        return [self] if include_self else []


class layers:
    Layer = _Layer


class backend:
    @staticmethod
    def backend():
        return "fake"


class Model(_Layer):
    optimizer = None

    def count_params(self):
        return 1

    def fit(self, steps=3, callbacks=None):
        for each in callbacks or ():
            each.set_model(self)
            each.on_train_begin()
        losses = [1 / (step + 1) for step in range(steps)]
        for step, loss in enumerate(losses):
            for each in callbacks or ():
                each.on_train_batch_begin(step)
                each.on_train_batch_end(step, {"loss": loss})
        for each in callbacks or ():
            each.on_train_end()
        return losses
