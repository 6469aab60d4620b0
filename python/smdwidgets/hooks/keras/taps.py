"""Capture tensors when they are computed, in eager code or in a TensorFlow graph.

Eager tensors are passed on immediately. For a graph, which TensorFlow or JAX traces first and runs later, an operation
is added that passes the tensors on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from smdwidgets.hooks.capture.arrays import Staging, TensorCopy, copy_tensor

__all__ = ["CompiledTaps", "EagerTaps", "GraphTaps", "leaves"]

logger = logging.getLogger("smdwidgets.hooks")

TensorCallback = Callable[[str, Any], None]


def leaves(value: Any) -> Iterator[Any]:
    """Yield the tensors in nested tuples, lists and dictionaries, in order."""
    if isinstance(value, Mapping):
        for item in value.values():
            yield from leaves(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from leaves(item)
    elif hasattr(value, "shape") and hasattr(value, "dtype"):
        yield value


class EagerTaps:
    """Taps for backends that run eagerly (PyTorch)."""

    in_graph = False
    compiles = False

    def __init__(self, backend: str) -> None:
        self._open = False
        self._torch = backend == "torch"

    def open(self, saving: bool) -> None:
        """Set whether tensors are passed on."""
        self._open = saving

    def wait(self) -> None:
        """Wait until all tensors of this step have been passed on."""

    def listen(self, callback: TensorCallback, named: Mapping[str, Any]) -> None:
        """Pass tensors on to a callback, if open."""
        if self._open:
            for name, value in named.items():
                for tensor in leaves(value):
                    callback(name, tensor)

    def copy(self, name: str, value: Any, staging: Staging) -> TensorCopy | None:
        """Return a copy of a backend tensor; None for any other value."""
        if self._torch:
            import torch

            from smdwidgets.hooks.torch.copying import copy_from_torch

            if isinstance(value, torch.Tensor):
                return copy_from_torch(name, value, staging)
        return None


class CompiledTaps:
    """Taps for JAX, which compiles the training step with callbacks to the host."""

    in_graph = True
    compiles = True

    def __init__(self) -> None:
        import jax
        from jax.experimental import io_callback

        self._jax = jax
        self._io_callback = io_callback
        self._open = False
        self._failed = False

    def open(self, saving: bool) -> None:
        """Set whether tensors are passed on; the compiled step reads it at each run."""
        self._open = saving

    def wait(self) -> None:
        """Wait until all tensors of this step have been passed on."""
        self._jax.effects_barrier()

    def listen(self, callback: TensorCallback, named: Mapping[str, Any]) -> None:
        """Pass tensors on to a callback when the compiled step runs."""
        jax = self._jax
        found = [(name, one) for name, value in named.items() for one in leaves(value)]
        if not any(isinstance(one, jax.core.Tracer) for _, one in found):
            if self._open:
                for name, one in found:
                    callback(name, one)
            return

        def pass_on(*arrays: Any) -> None:
            try:
                for (name, _), array in zip(found, arrays, strict=True):
                    callback(name, np.asarray(array))
            except Exception:  # JAX would raise it in the training
                if not self._failed:
                    self._failed = True
                    logger.exception("recording failed, and the training continues")

        tensors = [jax.lax.stop_gradient(one) for _, one in found]
        found = [(name, None) for name, _ in found]  # a tracer must not outlive its trace
        wanted = self._io_callback(lambda: np.asarray(self._open), jax.ShapeDtypeStruct((), np.bool_))
        jax.lax.cond(wanted, lambda: jax.debug.callback(pass_on, *tensors), lambda: None)

    def copy(self, name: str, value: Any, staging: Staging) -> TensorCopy | None:
        """Return None: NumPy converts the arrays of JAX."""
        return None


class GraphTaps:
    """Taps for TensorFlow, inside and outside ``tf.function``."""

    in_graph = True
    compiles = False

    def __init__(self) -> None:
        import tensorflow as tf

        self._tf = tf
        self._flag: Any = None
        self._open = False

    def open(self, saving: bool) -> None:
        """Set whether tensors are passed on; the graph reads the flag at each run."""
        if self._flag is None:
            with self._tf.init_scope():
                self._flag = self._tf.Variable(saving, trainable=False, dtype=self._tf.bool, name="smdwidgets_saving")
        elif saving != self._open:
            self._flag.assign(saving)
        self._open = saving

    def wait(self) -> None:
        """Do nothing: Keras has already waited for the step's results."""

    def listen(self, callback: TensorCallback, named: Mapping[str, Any], wanted: Any = None) -> None:
        """Pass tensors on to a callback when the graph runs.

        ``wanted`` is a boolean tensor that replaces the flag set by :meth:`open`.
        """
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
                    callback(name, tensor)
            return
        if wanted is None:
            if self._flag is None:
                self.open(False)
            wanted = self._flag.read_value()

        def pass_on(*arrays: Any) -> None:
            for name, array in zip(names, arrays, strict=True):
                callback(name, array)

        def run() -> Any:
            return tf.numpy_function(pass_on, tensors, [])

        tf.cond(wanted, lambda: _then(tf, run), lambda: tf.constant(False))

    def copy(self, name: str, value: Any, staging: Staging) -> TensorCopy | None:
        """Return a copy of an eager tensor; None for any other value."""
        if hasattr(value, "numpy"):
            value = value.numpy()
        elif not isinstance(value, np.generic):
            return None
        return copy_tensor(name, np.asarray(value), staging)  # keeps scalars zero-dimensional, as in TensorFlow


def _then(tf: Any, run: Callable[[], Any]) -> Any:
    with tf.control_dependencies([run()]):
        return tf.constant(True)
