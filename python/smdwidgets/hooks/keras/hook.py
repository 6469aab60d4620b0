"""A hook for Keras 3 with the TensorFlow, PyTorch or JAX backend.

The hook is a callback for ``fit``, ``evaluate`` and ``predict``.

::

    import smdwidgets.keras as smd

    hook = smd.Hook("/tmp/run", include_collections=["weights", "gradients"])
    model.fit(x, y, callbacks=[hook])

A step is a batch. Tensor names: ``loss`` and the metrics as Keras reports them (means over the epoch so far),
``batch_loss`` (of the batch only), ``dense/weights/kernel``, ``gradients/dense/kernelGrad``, ``dense/inputs``,
``dense/outputs``.

To capture gradients and layer outputs, the hook wraps the optimizer's ``apply`` and the layers' ``call`` while it is
open. On TensorFlow, this adds a conditional to the compiled graph, which costs little at steps that are not saved. A
model compiled with ``jit_compile=True`` does not support this: its weights, losses and metrics are saved, but not its
gradients and outputs.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import keras

from smdwidgets.config import Collection as BaseCollection
from smdwidgets.config import CollectionKeys
from smdwidgets.exceptions import SMDebugTypeError
from smdwidgets.hooks.capture.arrays import TensorCopy
from smdwidgets.hooks.capture.lazy_norm import norm_of
from smdwidgets.hooks.core.hook import Hook as BaseHook
from smdwidgets.hooks.core.hook import guarded
from smdwidgets.hooks.core.tensors import TensorCapture
from smdwidgets.hooks.keras.checking import Checking
from smdwidgets.modes import ModeKeys
from smdwidgets.stop import StopRequest

__all__ = ["Collection", "Hook", "is_symbolic"]

logger = logging.getLogger("smdwidgets.hooks")

#: How many numbered inputs and outputs of a layer are matched against the patterns to decide whether to wrap the layer.
_PROBED = 16


class Collection(BaseCollection):
    """A collection to which layers can be added, to save their inputs and outputs."""

    def add_keras_layer(self, layer: Any, inputs: bool = False, outputs: bool = True) -> None:
        """Add the inputs or outputs of a layer."""
        if not isinstance(layer, keras.layers.Layer):
            raise SMDebugTypeError(f"layer must be a Keras layer, got {type(layer).__name__}")
        for kind, wanted in (("inputs", inputs), ("outputs", outputs)):
            if wanted:
                self.include(f"^{layer.name}/{kind}")


class KerasCapture(TensorCapture):
    """Copies tensors of the backend of Keras."""

    #: The taps of the backend, which know its tensors.
    taps: Any = None

    def copy(self, name: str, value: Any) -> TensorCopy:
        """Return a copy of a tensor in host memory."""
        if isinstance(value, TensorCopy):
            return value
        copy = self.taps.copy(name, value, self._queue.staging)
        return super().copy(name, value) if copy is None else copy


class Hook(BaseHook, keras.callbacks.Callback):  # type: ignore[misc, unused-ignore]  # the base is Any if keras is not installed
    """Save tensors of Keras models."""

    __doc__ += "\n\n    " + "".join((BaseHook.__doc__ or "").partition("Args:")[1:])

    built_in: ClassVar[Mapping[str, Sequence[str]]] = {
        CollectionKeys.ALL: (),
        CollectionKeys.DEFAULT: (),
        CollectionKeys.WEIGHTS: ("^(?!gradient)(?!.*bias).*weights/",),
        CollectionKeys.BIASES: ("^(?!gradient).*weights/.*bias",),
        CollectionKeys.GRADIENTS: ("^gradients/",),
        CollectionKeys.LOSSES: ("^(batch_)?loss$", "_loss$"),
        CollectionKeys.METRICS: (),
        CollectionKeys.INPUTS: (),
        CollectionKeys.OUTPUTS: (),
        CollectionKeys.LAYERS: (r"/(in|out)puts(_\d+)?$",),
        CollectionKeys.SM_METRICS: (),
        CollectionKeys.OPTIMIZER_VARIABLES: ("^optimizer/",),
        CollectionKeys.UPDATES: ("^optimizer/[^/]+/(learning_rate|gradient_norm)$",),
    }
    always_saved: ClassVar[tuple[str, ...]] = (
        CollectionKeys.LOSSES,
        CollectionKeys.METRICS,
        CollectionKeys.SM_METRICS,
        CollectionKeys.UPDATES,
    )
    kinds: ClassVar[Mapping[str, str]] = {
        CollectionKeys.WEIGHTS: "weights",
        CollectionKeys.BIASES: "weights",
        CollectionKeys.GRADIENTS: "gradients",
        CollectionKeys.LAYERS: "activations",
    }
    collection_class: ClassVar[type[BaseCollection]] = Collection

    capture_class: ClassVar[type[TensorCapture]] = KerasCapture

    def _attach(self) -> None:
        keras.callbacks.Callback.__init__(self)
        #: The model. Within a step of JAX, `self.model` would attach variables to it that the step has consumed.
        self._network: Any = None
        self._tapped: dict[str, Any] = {}
        self._undo: list[Callable[[], None]] = []
        self._counts: dict[str, int] = {}
        #: Copies of the gradients of the batch in progress, of which the norm is computed. None: one was not copied.
        self._gradients: list[TensorCopy | None] = []
        self._in_training_batch = False
        self._before: ModeKeys = ModeKeys.GLOBAL
        self._use_taps(_taps())
        self._checking = Checking(self.parts, self.options)
        self.parts.stopping.end_loop = self._stop_model

    def _use_taps(self, taps: Any) -> None:
        tensors = self.parts.tensors
        assert isinstance(tensors, KerasCapture)
        self._taps = tensors.taps = taps

    # ------------------------------------------------------------------------------------------- smdebug compatibility

    def register_model(self, model: Any) -> None:
        """Register a model for loops with :meth:`wrap_tape`.

        The inputs and outputs of its layers are saved.

        `fit`, `evaluate` and `predict` need no registration.
        """
        if not isinstance(model, keras.layers.Layer):
            raise SMDebugTypeError(f"model must be a Keras model, got {type(model).__name__}")
        self.set_model(model)

    def wrap_optimizer(self, optimizer: Any) -> Any:
        """Return the optimizer unchanged.

        Gradients and optimizer variables are saved without a wrapper.

        >>> hook.wrap_optimizer(optimizer) is optimizer            # doctest: +SKIP
        True
        """
        if not callable(getattr(optimizer, "apply_gradients", None)):
            raise SMDebugTypeError(f"optimizer must be a Keras optimizer, got {type(optimizer).__name__}")
        return optimizer

    # -------------------------------------------------------------------------------------------------- Keras callbacks

    def set_model(self, model: Any) -> None:
        """Called by Keras before a training."""
        super().set_model(model)
        self._network = self.model

    def on_train_begin(self, logs: object = None) -> None:
        """Called by Keras when ``fit`` begins."""
        self._enter(ModeKeys.TRAIN, "train")
        if self.is_open and self.model is not None:
            self._checking.train_begins(self.model)

    def begin_own_loop(self) -> None:
        """Begin a training by calls of ``train_on_batch``.

        A stop raises `TrainingStopped` there. `smdwidgets run` calls this method.
        """
        self.on_train_begin()
        self.parts.stopping.end_loop = None

    @guarded
    def fit_begins(self, arguments: Mapping[str, Any]) -> None:
        """Check the data of a call of ``fit`` before it begins.

        `smdwidgets run` calls this method.

        Args:
            arguments: the arguments of the call by name.
        """
        if self.is_open:
            self._checking.fit_begins(arguments)

    def on_test_begin(self, logs: object = None) -> None:
        """Called by Keras when ``evaluate`` begins, including within ``fit``."""
        self._enter(ModeKeys.EVAL, "test")

    def on_predict_begin(self, logs: object = None) -> None:
        """Called by Keras when ``predict`` begins."""
        self._enter(ModeKeys.PREDICT, "predict")

    def on_train_batch_begin(self, batch: int, logs: object = None) -> None:
        """Called by Keras before each batch."""
        self._begin_batch()

    on_test_batch_begin = on_train_batch_begin
    on_predict_batch_begin = on_train_batch_begin

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Called by Keras after each batch, with the means of the loss and metrics so far."""
        self._taps.wait()
        self._end_batch(logs or {})

    on_test_batch_end = on_train_batch_end

    def on_predict_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Called by Keras after each batch, with the model's outputs."""
        self._taps.wait()
        self._end_batch({})

    def on_test_end(self, logs: object = None) -> None:
        """Called by Keras when ``evaluate`` ends."""
        self._leave()

    on_train_end = on_test_end
    on_predict_end = on_test_end

    # -------------------------------------------------------------------------------------------------------- steps

    @guarded
    def _enter(self, mode: ModeKeys, function: str) -> None:
        if not self.is_open:
            return
        self._before = self.mode
        self.set_mode(mode)
        self._tap(function)

    @guarded
    def _leave(self) -> None:
        if self.is_open:
            self.set_mode(self._before)
            self._before = ModeKeys.GLOBAL

    def _stop_model(self, request: StopRequest) -> bool:
        if self._network is None:
            return False
        logger.warning("stopping the training after this batch: %s", request)
        self._network.stop_training = True
        return True

    @guarded
    def _begin_batch(self) -> None:
        if not self.is_open:
            return
        self._counts.clear()
        self._forget_gradients()
        self._in_training_batch = self.mode is ModeKeys.TRAIN
        if self._in_training_batch and self.model is not None:
            self._checking.batch_begins(self.model)
        self._taps.open(self._begin_step())
        if self.parts.plan.saving:
            for layer in _layers(self.model):
                for variable in layer.weights if not _sublayers(layer) else layer._trainable_variables:
                    name = f"{self._name_of(layer)}/weights/{variable.name}"
                    if self.parts.plan.spec(name) is not None:
                        self._capture(name, variable.value)
            self._save_learning_rate()

    def _save_learning_rate(self) -> None:
        """Save the learning rate of this step."""
        optimizer = self._optimizer
        if optimizer is not None and self.parts.plan.spec(f"optimizer/{optimizer.name}/learning_rate") is not None:
            rate = getattr(optimizer, "learning_rate", None)
            if rate is not None:
                self._capture(f"optimizer/{optimizer.name}/learning_rate", float(rate))

    def _save_gradient_norm(self) -> None:
        """Save the norm of the gradients of this step, if all of them were copied."""
        optimizer, gradients = self._optimizer, self._gradients
        self._gradients = []
        norm = norm_of(gradients)
        if norm is not None and optimizer is not None:
            self._capture(f"optimizer/{optimizer.name}/gradient_norm", norm)

    def _forget_gradients(self) -> None:
        """Forget gradients of a step that did not end."""
        self._gradients = []

    @property
    def _optimizer(self) -> Any:
        """The optimizer of a training step, or None."""
        return getattr(self.model, "optimizer", None) if self.mode is ModeKeys.TRAIN else None

    @guarded
    def _end_batch(self, logs: Mapping[str, Any]) -> None:
        if not self.is_open:
            return
        if self.parts.plan.saving:
            metrics = self.get_collection(CollectionKeys.METRICS)
            for name, value in logs.items():
                if not self.parts.plan.matches(self.get_collection(CollectionKeys.LOSSES), name):
                    metrics.add_tensor_name(name)
                self._capture(name, float(value))
            self._save_gradient_norm()
            if (optimizer := self._optimizer) is not None:
                for variable in optimizer.variables:
                    name = f"optimizer/{variable.path}"
                    is_rate = name == f"optimizer/{optimizer.name}/learning_rate"  # which was saved before the update
                    if not is_rate and self.parts.plan.spec(name) is not None:
                        self._capture(name, variable.value)
        self._taps.open(False)
        self._forget_gradients()
        trained, self._in_training_batch = self._in_training_batch, False
        self._end_step()
        if trained:
            self._checking.batch_ends(logs)

    # --------------------------------------------------------------------------------------------------------- taps

    def _tap(self, function: str) -> None:
        """Wrap the methods that produce the saved tensors.

        This must happen before Keras traces its step function.
        """
        model = self.model
        if not self.parts.plan.prepared:
            self.parts.plan.prepare()
        if self._tapped.get(function) is model:
            return
        if (reason := self._why_untapped(model)) is not None:
            self.guard.warn_once(
                "untapped", "gradients, batch_loss, and inputs and outputs of layers are not saved: %s", reason
            )
            self._tapped[function] = model
            return
        if model not in self._tapped.values():
            self._untap()
            self._tap_model(model)
        self._tapped[function] = model
        if self._taps.in_graph:
            # A function that was traced earlier does not contain the listeners.
            getattr(model, f"make_{function}_function")(force=True)

    def _why_untapped(self, model: Any) -> str | None:
        """Return why no tensor can be captured in a model's step function, or None."""
        if self._taps.compiles:
            if keras.distribution.distribution() is not None:
                return (
                    "the tensors are distributed over devices on the JAX backend; weights, losses and metrics are saved"
                )
            if not self._chooses_tapped():
                return (
                    "Keras compiles the training step on the JAX backend; weights, losses and metrics are saved; include "
                    "the collections gradients or layers, or pass save_all=True, to compile it with callbacks that save the rest"
                )
            return None
        if getattr(model, "jit_compile", False) and self._taps.in_graph and not getattr(model, "run_eagerly", False):
            return "the model is compiled with jit_compile=True; compile it with jit_compile=False"
        return None

    def _chooses_tapped(self) -> bool:
        """Whether the script has chosen tensors that only the training step has.

        The compiled step is left as it is otherwise, because callbacks cost time.
        """
        outside = {
            CollectionKeys.WEIGHTS,
            CollectionKeys.BIASES,
            CollectionKeys.OPTIMIZER_VARIABLES,
            *self.always_saved,
        }
        return any(name not in outside and self.parts.plan.is_chosen(name) for name in self.parts.plan.included)

    def _why_missing(self, name: str) -> str:
        inside_step = name in (CollectionKeys.GRADIENTS, CollectionKeys.INPUTS, CollectionKeys.OUTPUTS)
        reason = self._why_untapped(self._network) if inside_step and self._network is not None else None
        # The advice after the semicolon was logged when the training began.
        return super()._why_missing(name) if reason is None else reason.partition(";")[0]

    def _tap_model(self, model: Any) -> None:
        outermost = (f"{model.name}/inputs", f"{model.name}/outputs")
        for collection, name in zip((CollectionKeys.INPUTS, CollectionKeys.OUTPUTS), outermost, strict=True):
            self.get_collection(collection).add_tensor_name(name)
        self._tap_layers(model)
        if (optimizer := getattr(model, "optimizer", None)) is not None:
            inner = getattr(optimizer, "inner_optimizer", optimizer)
            self._wrap(inner, "apply", functools.partial(self._tapped_apply, inner))
        if hasattr(model, "compute_loss"):
            self._wrap(model, "compute_loss", self._tapped_loss)

    def _tap_layers(self, model: Any) -> None:
        """Wrap the layers whose inputs or outputs may belong to a saved collection."""
        for layer in _layers(model):
            name = self._name_of(layer)
            probes = [
                f"{name}/{kind}" + (f"_{i}" if i else "") for kind in ("outputs", "inputs") for i in range(_PROBED)
            ]
            if self.parts.plan.wants_any(probes):
                self._wrap(layer, "call", functools.partial(self._tapped_call, name))

    def _wrap(self, owner: Any, method: str, around: Callable[..., Any]) -> None:
        """Replace an object's method by a call of ``around(original, *args)``."""
        original = getattr(owner, method)

        @functools.wraps(original)
        def wrapped(*args: Any, **options: Any) -> Any:
            return around(original, *args, **options)

        owner.__dict__[method] = wrapped  # bypasses Keras's attribute tracking
        self._undo.append(lambda: owner.__dict__.pop(method, None))

    def _tapped_call(self, name: str, call: Callable[..., Any], *args: Any, **options: Any) -> Any:
        outputs = call(*args, **options)
        inputs = args[:1] if args else tuple(options.values())[:1]
        self._listen({f"{name}/inputs": inputs, f"{name}/outputs": outputs})
        return outputs

    def _tapped_apply(
        self, optimizer: Any, apply: Callable[..., Any], grads: Any, trainable_variables: Any = None
    ) -> Any:
        grads = list(grads)
        if trainable_variables is not None:
            trainable_variables = list(trainable_variables)
        # On JAX the optimizer is called with gradients of the variables that it was built with.
        variables = trainable_variables or getattr(optimizer, "_trainable_variables", ())
        if len(variables) == len(grads):
            if self.is_open and self._in_training_batch:
                self._checking.gradients(variables, grads)
            named = {self._gradient_name(v): g for v, g in zip(variables, grads, strict=True) if g is not None}
            self._listen(named)
        return apply(grads, trainable_variables)

    def _tapped_loss(self, compute_loss: Callable[..., Any], *args: Any, **options: Any) -> Any:
        loss = compute_loss(*args, **options)
        self._listen({"batch_loss": loss})
        return loss

    def _listen(self, named: Mapping[str, Any]) -> None:
        if not is_symbolic():
            self._taps.listen(self._on_tensor, named)

    def _on_tensor(self, name: str, value: Any) -> None:
        """Capture a tensor; number it if the step already has one of this name."""
        if self.is_open and self.parts.plan.saving:
            index = self._counts.get(name, 0)
            self._counts[name] = index + 1
            is_gradient = name.startswith("gradients/") and self._in_training_batch
            if self._in_training_batch and self._network is not None and self._checking.looks_at_data:
                self._checking.passes(self._network, name, value, (self.params or {}).get("steps"))
            copy = self._capture(f"{name}_{index}" if index else name, value, wants_norm=is_gradient)
            if is_gradient:
                self._gradients.append(copy)

    def _gradient_name(self, variable: Any) -> str:
        owner, _, own = str(variable.path).rpartition("/")
        return f"gradients/{owner.rpartition('/')[2]}/{own}Grad" if owner else f"gradients/{own}Grad"

    def _name_of(self, layer: Any) -> str:
        return str(layer.name)

    def _untap(self) -> None:
        for undo in reversed(self._undo):
            undo()
        self._undo.clear()

    def _detach(self) -> None:
        self._checking.close()
        tapped, self._tapped = self._tapped, {}
        self._untap()
        if self._taps.in_graph:
            for function, model in tapped.items():
                setattr(model, f"{function}_function", None)  # retrace it without the listeners


def _layers(model: Any) -> list[Any]:
    """Return the model and all its layers."""
    return [] if model is None else list(model._flatten_layers())


def _sublayers(layer: Any) -> list[Any]:
    return list(layer._flatten_layers(include_self=False, recursive=False))


def is_symbolic() -> bool:
    """Whether Keras is running symbolically to infer shapes."""
    try:
        from keras.src.backend.common.symbolic_scope import in_symbolic_scope
    except ImportError:
        return False
    return bool(in_symbolic_scope())


def _taps() -> Any:
    """Return the taps for the current Keras backend."""
    backend = keras.backend.backend()
    if backend == "tensorflow":
        from smdwidgets.hooks.keras.taps import GraphTaps

        return GraphTaps()
    if backend == "jax":
        from smdwidgets.hooks.keras.taps import CompiledTaps

        return CompiledTaps()
    from smdwidgets.hooks.keras.taps import EagerTaps

    return EagerTaps(backend)
