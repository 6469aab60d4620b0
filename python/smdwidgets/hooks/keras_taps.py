"""Listening to tensors as they arise: at once where code runs eagerly, by an operation in the graph where TensorFlow
traces it first and runs it later."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from smdwidgets.hooks.arrays import Held, Staging, owned

__all__ = ["EagerTaps", "GraphTaps", "leaves"]

Heard = Callable[[str, Any], None]


def leaves(value: Any) -> Iterator[Any]:
    """The tensors in nested tuples, lists and dictionaries, in their order."""
    if isinstance(value, Mapping):
        for item in value.values():
            yield from leaves(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from leaves(item)
    elif hasattr(value, "shape") and hasattr(value, "dtype"):
        yield value


class EagerTaps:
    """For backends whose steps run as they are written (torch)."""

    in_graph = False

    def __init__(self, backend: str) -> None:
        self._open = False
        self._torch = backend == "torch"

    def open(self, saving: bool) -> None:
        """Whether what is heard now is wanted."""
        self._open = saving

    def wait(self) -> None:
        """Until all that this step made has been heard."""

    def listen(self, heard: Heard, named: Mapping[str, Any]) -> None:
        """Tell of these tensors."""
        if self._open:
            for name, value in named.items():
                for tensor in leaves(value):
                    heard(name, tensor)

    def hold(self, name: str, value: Any, staging: Staging) -> Held | None:
        """A copy of the backend's own kind of tensor; None for any other value."""
        if self._torch:
            import torch

            from smdwidgets.hooks.torch_copy import owned_from_torch

            if isinstance(value, torch.Tensor):
                return owned_from_torch(name, value, staging)
        return None


class GraphTaps:
    """For TensorFlow, in ``tf.function`` and outside."""

    in_graph = True

    def __init__(self) -> None:
        import tensorflow as tf

        self._tf = tf
        self._flag: Any = None
        self._open = False

    def open(self, saving: bool) -> None:
        """Whether what is heard now is wanted; the graph reads it at each run."""
        if self._flag is None:
            with self._tf.init_scope():
                self._flag = self._tf.Variable(saving, trainable=False, dtype=self._tf.bool, name="smdwidgets_saving")
        elif saving != self._open:
            self._flag.assign(saving)
        self._open = saving

    def wait(self) -> None:
        """Until all that this step made has been heard; Keras has waited for the step's results already."""

    def listen(self, heard: Heard, named: Mapping[str, Any], wanted: Any = None) -> None:
        """Tell of these tensors, when the graph runs; ``wanted`` is a boolean tensor in place of :meth:`open`'s word."""
        tf = self._tf
        names: list[str] = []
        tensors: list[Any] = []
        for name, value in named.items():
            for tensor in leaves(value):
                dense = tf.convert_to_tensor(tensor)
                if dense.dtype not in (tf.string, tf.resource, tf.variant):
                    names.append(name)
                    tensors.append(dense)
        if tf.executing_eagerly():
            if self._open if wanted is None else bool(wanted):
                for name, tensor in zip(names, tensors, strict=True):
                    heard(name, tensor)
            return
        if wanted is None:
            if self._flag is None:
                self.open(False)
            wanted = self._flag.read_value()

        def tell(*arrays: Any) -> None:
            for name, array in zip(names, arrays, strict=True):
                heard(name, array)

        def run() -> Any:
            return tf.numpy_function(tell, tensors, [])

        tf.cond(wanted, lambda: _then(tf, run), lambda: tf.constant(False))

    def hold(self, name: str, value: Any, staging: Staging) -> Held | None:
        """A copy of an eager tensor; None for any other value."""
        if hasattr(value, "numpy"):
            value = value.numpy()
        elif not isinstance(value, np.generic):
            return None
        return owned(name, np.asarray(value), staging)  # of no dimensions, as TensorFlow has it


def _then(tf: Any, run: Callable[[], Any]) -> Any:
    with tf.control_dependencies([run()]):
        return tf.constant(True)
