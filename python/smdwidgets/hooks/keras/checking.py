"""Read models and data of Keras for their checks."""

from __future__ import annotations

import hashlib
import math
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray

from smdwidgets.checks.keras import MECHANISMS, FitData, KerasChecks, ModelFacts
from smdwidgets.checks.networks import Link, Output, Start
from smdwidgets.checks.tables import Table, row_keys
from smdwidgets.hooks.core.checking import check_log, stop_after
from smdwidgets.hooks.core.options import HookOptions
from smdwidgets.hooks.core.parts import Parts

__all__ = ["Checking", "layers_of"]

#: Values whose columns are compared, and whose rows are.
_COLUMNS, _ROWS = 2_000_000, 100_000_000
#: Tensors that are read before an update, and elements of the largest.
_TENSORS, _ELEMENTS = 16, 1_000_000
#: Layers of a model that are followed from its output to its input.
_LINKS = 1000


class Checking:
    """Passes the events of a training on to its checks.

    Args:
        parts: the parts of the hook.
        options: which checks run, and whether the training stops after a number of updates.
    """

    def __init__(self, parts: Parts, options: HookOptions) -> None:
        log = check_log(parts.recorder, options)
        self._checks = None if log is None else KerasChecks(log, stop_after(options))
        self._saw_data = False
        self._optimizer: Callable[[], Any] = _nothing
        self._rate = math.nan
        self._inputs: Callable[[], Any] = _nothing
        self._is_next_pass = False

    def fit_begins(self, arguments: Mapping[str, Any]) -> None:
        """``fit`` is called with these arguments."""
        if self._checks is not None:
            self._saw_data = True
            inputs = arguments.get("x")
            self._is_next_pass = inputs is not None and self._inputs() is inputs and arguments.get("epochs", 1) == 1
            self._inputs = _weak(inputs)
            self._checks.data(lambda: _data_of(arguments))

    def train_begins(self, model: Any) -> None:
        """``fit`` has begun."""
        if self._checks is not None:
            if not self._saw_data:
                self._checks.log.off(MECHANISMS["data"], "only a script that `smdwidgets run` starts shows its data")
            self._checks.model(lambda: _facts_of(model))
            self._checks.starts(lambda: self._start_of(model))

    def _start_of(self, model: Any) -> Start:
        optimizer = model.optimizer
        before, rate = self._optimizer(), float(getattr(optimizer, "learning_rate", math.nan))
        is_new = before is not optimizer and rate == self._rate
        self._optimizer, self._rate = _weak(optimizer), rate
        content = hashlib.blake2b(digest_size=16)
        weights = _weights_of(model) if model.built else {}
        for one in weights.values():
            content.update(np.ascontiguousarray(one).tobytes())
        digest = content.hexdigest() if weights else ""
        return Start(type(optimizer).__name__, is_new, int(optimizer.iterations), digest, self._is_next_pass)

    def gradients(self, variables: Sequence[Any], gradients: Sequence[Any]) -> None:
        """An update is traced or run, with None for what has no gradient."""
        if self._checks is not None:
            self._checks.gradients(lambda: (_missing(variables, gradients), len(variables)))

    @property
    def looks_at_data(self) -> bool:
        """Whether what passes through the model in this batch is to be given to `passes`."""
        return self._checks is not None and self._checks.looks_at_data

    def passes(self, model: Any, name: str, value: Any, batches: int | None) -> None:
        """A tensor passes through a layer in a batch, one of a number in each epoch."""
        if self._checks is None:
            return
        if name == f"{model.name}/inputs":
            self._checks.inputs(lambda: _small(value), batches)
        elif name == f"{model.name}/outputs":
            self._checks.outputs(lambda: _small(value))

    def batch_begins(self, model: Any) -> None:
        """An update begins."""
        if self._checks is not None and self._checks.looks_at_weights():
            self._checks.weights(lambda: _weights_of(model))

    def batch_ends(self, logs: Mapping[str, Any]) -> None:
        """An update has ended."""
        if self._checks is not None:
            needs_loss = self._checks.needs_loss and "loss" in logs
            self._checks.batch_ends(float(logs["loss"]) if needs_loss else None)

    def close(self) -> None:
        """Write what is known at the end."""
        if self._checks is not None:
            self._checks.close()


def _missing(variables: Sequence[Any], gradients: Sequence[Any]) -> list[str]:
    """Return the names of variables without a gradient."""
    return [str(one.path) for one, value in zip(variables, gradients, strict=True) if value is None]


def _small(value: Any) -> NDArray[Any] | None:
    """Return the values of a tensor; None if it has too many."""
    if math.prod(getattr(value, "shape", ())) > _ELEMENTS:
        return None
    return np.asarray(value if isinstance(value, np.ndarray) else keras.ops.convert_to_numpy(value))


def _nothing() -> None:
    return None


def _weak(value: Any) -> Callable[[], Any]:
    """Return a weak reference to an object, or to nothing if there is none."""
    try:
        return weakref.ref(value)
    except TypeError:
        return _nothing


# --------------------------------------------------------------------------------------------------------------- model


def layers_of(model: Any) -> Iterator[Any]:
    """Yield the layers of a model, and the layers within them."""
    for layer in getattr(model, "layers", ()):
        yield layer
        yield from layers_of(layer)


def _facts_of(model: Any) -> ModelFacts:
    layers = [*layers_of(model)]
    dropouts = {one.name: float(one.rate) for one in layers if isinstance(one, keras.layers.Dropout)}
    norms = [one for one in layers if isinstance(one, keras.layers.BatchNormalization)]
    trained = {id(one) for one in model.trainable_variables}
    # The moving averages of a normalization and the state of random numbers are never trained.
    weights = [*model.trainable_variables, *_frozen(layers, trained)]
    return ModelFacts(
        _output_of(model),
        [(id(one) in trained, math.prod(one.shape)) for one in weights] if model.built else (),
        dropouts,
        {one.name: float(one.momentum) for one in norms if one.trainable},
        _links_of(model),
        any("Normalization" in type(one).__name__ for one in layers),
    )


def _frozen(layers: list[Any], trained: set[int]) -> list[Any]:
    """Return weights that could be trained, and are not."""
    frozen: dict[int, Any] = {}
    for layer in layers:
        for one in getattr(layer, "_trainable_variables", ()):
            if id(one) not in trained:
                frozen[id(one)] = one
    return [*frozen.values()]


def _output_of(model: Any) -> Output | None:
    """Return the output of a model and its loss.

    None if there are several. If the model is a subclass, only its loss is known.
    """
    outputs: Any = getattr(model, "outputs", None) or ()
    loss = model.loss
    if isinstance(loss, list | tuple) and len(loss) == 1:
        loss = loss[0]
    if len(outputs) > 1 or loss is None or isinstance(loss, dict | list | tuple):
        return None
    layer = _layer_of(outputs[0]) if outputs else None
    while getattr(layer, "layers", None):  # a model within the model
        inner: Any = getattr(layer, "outputs", None) or ()
        if len(inner) > 1:
            return None
        layer = _layer_of(inner[0]) if inner else None
    loss = keras.losses.get(loss)
    name = getattr(loss, "__name__", "") or type(loss).__name__
    options = getattr(loss, "_fn_kwargs", None) or {}
    own = type(layer).__module__.startswith("keras.")
    is_softmax = isinstance(layer, keras.layers.Softmax)
    activation = getattr(getattr(layer, "activation", None), "__name__", "softmax" if is_softmax else "")
    is_of_keras = type(loss).__module__.startswith("keras.") or getattr(loss, "__module__", "").startswith("keras.")
    axis = getattr(layer, "axis", None) if is_softmax else None
    shape = tuple(outputs[0].shape) if outputs else ()
    return Output(
        activation if own else "",
        shape[-1] if len(shape) > 1 else None,
        name.replace("_", "").lower() if is_of_keras else "",
        bool(options.get("from_logits", False)),
        str(getattr(layer, "name", model.name)),
        shape,
        axis if isinstance(axis, int) else None,
        is_of_keras and getattr(loss, "reduction", "") == "sum",
        _counts_right(model),
    )


def _counts_right(model: Any) -> bool:
    """Whether a metric of the model is an accuracy."""
    given = getattr(getattr(model, "_compile_metrics", None), "_user_metrics", None)
    named = [one if isinstance(one, str) else type(one).__name__ for one in keras.tree.flatten(given)]
    return any(one.lower() == "acc" or "accuracy" in one.lower() for one in named)


#: Layers whose outputs are their inputs in another order, some of them, or multiples of them.
_LINEAR = (
    *("InputLayer", "Flatten", "Reshape", "Permute", "RepeatVector", "Rescaling", "Normalization", "Identity"),
    *("Dropout", "SpatialDropout1D", "SpatialDropout2D", "SpatialDropout3D", "AlphaDropout", "GaussianDropout"),
    *("GaussianNoise", "BatchNormalization", "ZeroPadding1D", "ZeroPadding2D", "ZeroPadding3D", "Cropping1D"),
    *("Cropping2D", "UpSampling1D", "UpSampling2D", "AveragePooling1D", "AveragePooling2D", "AveragePooling3D"),
    *("GlobalAveragePooling1D", "GlobalAveragePooling2D", "GlobalAveragePooling3D", "ActivityRegularization"),
)
_WEIGHTED = ("Dense", "Conv1D", "Conv2D", "Conv3D", "Conv2DTranspose", "SeparableConv2D", "DepthwiseConv2D")


def _links_of(model: Any) -> list[Link]:
    """Return the layers from the input of a model to its output.

    Empty if the model or a layer has several inputs or outputs.
    """
    links: list[Link] = []
    outputs: Any = getattr(model, "outputs", None) or ()
    tensor = outputs[0] if len(outputs) == 1 else None
    while tensor is not None and len(links) < _LINKS:
        layer, node, _ = getattr(tensor, "_keras_history", (None, 0, 0))
        if layer is None:
            return []
        before = getattr(layer, "_inbound_nodes", ())[node].input_tensors
        if len(before) > 1:
            return []
        links.append(_link(layer, before[0] if before else None, tensor))
        tensor = before[0] if before else None
    return links[::-1]


def _link(layer: Any, before: Any, after: Any) -> Link:
    kind = type(layer).__name__ if type(layer).__module__.startswith("keras.") else ""
    has_weights = kind in _WEIGHTED
    activation = getattr(getattr(layer, "activation", None), "__name__", "")
    is_linear = kind in _LINEAR or ((has_weights or kind == "Activation") and activation == "linear")
    inputs, units = (None if one is None or len(one.shape) < 2 else one.shape[-1] for one in (before, after))
    return Link(str(layer.name), has_weights, is_linear, inputs, units)


def _layer_of(tensor: Any) -> Any:
    """Return the layer that computes a tensor of a model's graph, if known."""
    return getattr(getattr(tensor, "_keras_history", None), "operation", None)


def _weights_of(model: Any) -> dict[str, NDArray[Any]]:
    """Return weights before an update; none if the update need not change them."""
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None or getattr(optimizer, "gradient_accumulation_steps", None):
        return {}
    rate = getattr(optimizer, "learning_rate", None)
    if rate is None or not float(rate) > 0:
        return {}
    small = [one for one in model.trainable_variables if math.prod(one.shape) <= _ELEMENTS][:_TENSORS]
    return {one.path: np.asarray(keras.ops.convert_to_numpy(one.value)) for one in small}


# ---------------------------------------------------------------------------------------------------------------- data


def _data_of(arguments: Mapping[str, Any]) -> FitData | None:
    """Return the arrays of a call of ``fit``; None if it gets no arrays."""
    x, y = _array(arguments.get("x")), _array(arguments.get("y"))
    if x is None or y is None or not x.ndim or not y.ndim or len(x) != len(y):
        return None
    validation = arguments.get("validation_data")
    other = validation if isinstance(validation, tuple | list) and len(validation) >= 2 else (None, None)
    identical = other[0] is not None and other[0] is arguments.get("x") and other[1] is arguments.get("y")
    vx, vy = _array(other[0]), _array(other[1])
    split = arguments.get("validation_split") or 0.0
    if validation is None and 0 < split < 1:
        at = math.floor(len(x) * (1 - split))
        x, vx, y, vy = x[:at], x[at:], y[:at], y[at:]
    table = None
    if vx is not None and vy is not None and len(vx) == len(vy):
        table = _table(vx, vy, "the validation data")
    shuffle, batch = arguments.get("shuffle", True), arguments.get("batch_size") or 32
    return FitData(_table(x, y), y, table, identical, bool(shuffle), int(batch))


def _array(value: Any) -> NDArray[Any] | None:
    """Return the array of a tensor or data frame.

    None for anything else, such as a data set.
    """
    if not (isinstance(value, np.ndarray) or keras.ops.is_tensor(value) or hasattr(value, "iloc")):
        return None
    array = np.asarray(
        value if isinstance(value, np.ndarray) or hasattr(value, "iloc") else keras.ops.convert_to_numpy(value)
    )
    return array if np.issubdtype(array.dtype, np.number) or array.dtype == bool else None


def _table(x: NDArray[Any], y: NDArray[Any], name: str = "") -> Table:
    flat = x.reshape(len(x), -1)
    step = max(1, -(-flat.size // _COLUMNS))
    keys = [row_keys(flat)] if step > 1 and flat.size <= _ROWS and flat.shape[1] else []
    columns = flat[::step] if flat.shape[1] else None
    return Table(columns, _labels(y), None, (), step == 1, False, name, keys)


def _labels(y: NDArray[Any]) -> NDArray[Any] | None:
    """Return one label per row; the class of one-hot rows."""
    if y.ndim == 1:
        return y
    if y.ndim != 2:
        return None
    if y.shape[1] == 1:
        return y[:, 0]
    is_one_hot = y.shape[1] > 1 and np.isin(y, (0, 1)).all() and np.all(y.sum(1) == 1)
    return np.asarray(y.argmax(1)) if is_one_hot else None
