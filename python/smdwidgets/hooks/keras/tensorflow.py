"""Hooks for TensorFlow: the Keras callback, and ``GradientTape`` for custom loops.

::

    import smdwidgets.tensorflow as smd

    hook = smd.Hook("/tmp/run", include_collections=["gradients", "weights"])
    for x, y in batches:
        with hook.wrap_tape(tf.GradientTape()) as tape:
            loss = loss_of(y, model(x, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))

A step begins when the tape is entered, in Python or within a ``tf.function``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from smdwidgets.exceptions import SMDebugTypeError
from smdwidgets.hooks.core.hook import Hook as BaseHook
from smdwidgets.hooks.core.hook import check_name
from smdwidgets.hooks.keras.hook import Collection, is_symbolic
from smdwidgets.hooks.keras.hook import Hook as KerasHook
from smdwidgets.hooks.keras.taps import GraphTaps

__all__ = ["Collection", "Hook", "Tape"]


class Hook(KerasHook):
    """Save tensors of Keras models and of custom loops with a ``tf.GradientTape``."""

    __doc__ += "\n\n    " + "".join((BaseHook.__doc__ or "").partition("Args:")[1:])

    def _attach(self) -> None:
        super()._attach()
        # Custom loops use TensorFlow tensors, whichever backend Keras uses.
        self._use_taps(GraphTaps())
        self._wanted: Any = None
        self._registered: list[Any] = []
        self._tape_tapped: list[Any] = []

    def register_model(self, model: Any) -> None:  # noqa: D102 - see the base class
        super().register_model(model)
        if not any(model is known for known in self._registered):
            self._registered.append(model)

    def wrap_tape(self, tape: tf.GradientTape) -> Tape:
        """Wrap a gradient tape, to save its losses, variables and gradients."""
        if not hasattr(tape, "gradient") or not hasattr(tape, "__enter__"):
            raise SMDebugTypeError(f"tape must be a tf.GradientTape, got {type(tape).__name__}")
        self._tap_registered()
        return Tape(self, tape)

    def _tap_registered(self) -> None:
        """Wrap the layers of registered models.

        This must happen before the loop calls them or a ``tf.function`` traces the call.
        """
        if not self.is_open:
            return
        for model in self._registered:
            if not any(model is known for known in (*self._tape_tapped, *self._tapped.values())):
                if not self.parts.plan.prepared:
                    self.parts.plan.prepare()
                self._tap_layers(model)
                self._tape_tapped.append(model)

    def _untap(self) -> None:
        super()._untap()
        self._tape_tapped.clear()

    def _listen(self, named: Mapping[str, Any]) -> None:
        if not is_symbolic():
            self._taps.listen(self._on_tensor, named, self._wanted_in_graph())

    def _wanted_in_graph(self) -> Any:
        """Return the tape's boolean tensor for whether the step is saved.

        Returns None if the current graph is not the tape's graph.
        """
        in_graph = getattr(self._wanted, "graph", None) is tf.compat.v1.get_default_graph()
        return self._wanted if in_graph and not tf.executing_eagerly() else None

    def record_tensor_value(self, tensor_name: str, tensor_value: Any) -> None:
        """Save a value as a metric of the current step.

        This also works within a ``tf.function``.
        """
        check_name(tensor_name)
        self.get_collection("metrics").add_tensor_name(tensor_name)
        wanted = self._wanted
        if not isinstance(wanted, bool) and getattr(wanted, "graph", None) is not tf.compat.v1.get_default_graph():
            wanted = None  # the tensor belongs to a function traced earlier, or there is no tape
        self.listen_if({tensor_name: tensor_value}, wanted)

    def begins_with(self, is_saved: Any) -> None:
        """Set whether the step is saved: a boolean, or a tensor of the graph."""
        self._wanted = is_saved

    def begin_from_graph(self) -> bool:
        """Begin a step; return whether it is saved."""
        if not self.is_open:
            return False
        self._counts.clear()
        saving = self._begin_step()
        self._taps.open(saving)
        return saving

    def _on_tensor(self, name: str, value: Any) -> None:
        super()._on_tensor(name, value)
        # Only the optimizer's update follows the gradients, so the step is most likely complete.
        if name.startswith("gradients/"):
            self.parts.recorder.queue.settle()

    def listen_if(self, named: Mapping[str, Any], wanted: Any) -> None:
        """Pass tensors on to the hook if the step is saved."""
        self._taps.listen(self._on_tensor, named, wanted)


class Tape:
    """A wrapper of ``tf.GradientTape`` that saves losses, variables and gradients."""

    def __init__(self, hook: Hook, tape: tf.GradientTape) -> None:
        self._hook = hook
        self._tape = tape
        self._wanted: Any = None

    def __enter__(self) -> Tape:
        if tf.executing_eagerly():
            self._wanted = self._hook.begin_from_graph()
        else:
            self._wanted = tf.numpy_function(self._hook.begin_from_graph, [], tf.bool)
            self._wanted.set_shape(())
        self._hook.begins_with(self._wanted)
        self._tape.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._tape.__exit__(*error)

    def gradient(self, target: Any, sources: Any, *args: Any, **options: Any) -> Any:
        """Return the tape's gradients, and save them.

        The loss and the current values of the variables are saved, too.
        """
        gradients = self._tape.gradient(target, sources, *args, **options)
        named: dict[str, Any] = {"loss": target}
        flat_sources, flat_gradients = tf.nest.flatten(sources), tf.nest.flatten(gradients)
        for variable, gradient in zip(flat_sources, flat_gradients, strict=False):
            weight, of = _names(variable)
            named[weight] = variable
            if gradient is not None:
                named[of] = gradient
        self._hook.listen_if(named, self._wanted)
        return gradients

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tape, name)


def _names(variable: Any) -> tuple[str, str]:
    """Return the names of a variable and its gradient.

    For Keras variables, they are those of the Keras callback.
    """
    path = str(getattr(variable, "path", None) or getattr(variable, "name", None) or "variable").removesuffix(":0")
    owner, _, own = path.rpartition("/")
    layer = owner.rpartition("/")[2]
    return (
        (f"{layer}/weights/{own}", f"gradients/{layer}/{own}Grad")
        if layer
        else (f"weights/{own}", f"gradients/{own}Grad")
    )
