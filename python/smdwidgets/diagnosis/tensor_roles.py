"""Infer the role and the layer of a tensor from its collection and its name."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from smdwidgets.trials import Trial

__all__ = ["TensorRole", "tensor_roles"]

_GRADIENT = re.compile(r"^gradients?([/_.]|$)", re.I)
#: State of an optimizer, whose names contain those of parameters.
_OPTIMIZER = re.compile(r"^optimizer/")
#: The end of a parameter's name that is not its layer's name.
_PARAMETER = re.compile(r"[/._]?(weights?|kernel|biase?s?|gamma|beta)(:\d+)?$", re.I)
_BIAS = re.compile(r"(^|[/._])(bias(es)?|beta)([/._:\d]|_(ih|hh)_l\d+|$)", re.I)
_WEIGHT = re.compile(r"(^|[/._])(weights?|kernel|gamma|embeddings?|recurrent_kernel)([/._:\d]|_(ih|hh)_l\d+|$)", re.I)
_LABEL = re.compile(r"(^|[/._])(labels?|targets?|y_true)([/._:\d]|$)|loss\w*_input_1$", re.I)
_INPUT = re.compile(r"(^|[/._])inputs?([/_:]\d+)*$|(^|[/._])(images?|x)$", re.I)
_OUTPUT = re.compile(r"(^|[/._])(outputs?|logits|predictions?|y_pred)([/_:]\d+)*$", re.I)
_ACTIVATION = re.compile(r"(relu|tanh|sigmoid|gelu|silu|softmax|activations?|hidden|state)", re.I)
_IN_OR_OUTPUT = re.compile(r"[/._](in|out)puts?([/_:]\d+)*$", re.I)
_MODULES = {"relu": "ReLU", "tanh": "Tanh", "sigmoid": "Sigmoid", "softmax": "Softmax", "gelu": "GELU", "silu": "SiLU"}
#: Collections of numbers that are series and not tensors.
_SERIES = ("losses", "metrics", "scalars", "sm_metrics", "searchable_scalars")
_ROLE_OF_COLLECTION = {
    "gradients": "gradient",
    "weights": "weight",
    "biases": "bias",
    "inputs": "input",
    "optimizer_variables": "",
}


@dataclass(frozen=True)
class TensorRole:
    """What a tensor is; see :class:`~smdwidgets.diagnosis.inputs.TensorColumn`."""

    role: str
    layer: str
    module: str
    order: int


def tensor_roles(trial: Trial) -> dict[str, TensorRole]:
    """Return the roles of all tensors of a run that are not series.

    The order is that in which the run first saved the layers. A gradient has the order of its parameter: frameworks compute
    gradients from the last layer to the first.
    """
    collections = trial.collections()
    members = {name: set(one.tensor_names) for name, one in collections.items()}
    series = set().union(*(members.get(name, set()) for name in _SERIES))
    names = [name for name in _in_saved_order(trial) if name not in series and not name.startswith("scalar/")]
    # What a log holds are series, pictures and summaries; those of checkpoints are tensors.
    names = [name for name in names if not trial._run.kind_of(name)]
    roles = {name: _role(name, members) for name in names}
    parameters = [name for name in names if roles[name] in ("weight", "bias")]
    of_gradient = {
        name: parameter
        for name in names
        if roles[name] == "gradient" and (parameter := _parameter_of(name, parameters)) is not None
    }
    found = {}
    for at, name in enumerate(names):
        parameter = of_gradient.get(name, name)
        order = names.index(parameter) if parameter != name else at
        found[name] = TensorRole(roles[name], _layer(parameter), _module(name), order)
    return _with_model_output(_with_model_input(found))


def _in_saved_order(trial: Trial) -> list[str]:
    """Return the names of all tensors in the order in which the run first saved them.

    Those of which it only wrote statistics follow, in the order of the file.
    """
    index = trial._run.index
    places = []
    saved = trial.tensor_names()
    for at, name in enumerate(saved):
        steps = index.steps_of(name)
        place = index.find(name, steps[0]) if steps else None
        if place is None and steps:
            place = next((one for _, _, one in index.stored_reductions(name, steps[0])), None)
        places.append((steps[0] if steps else 0, getattr(place, "offset", 0), at, name))
    file = trial._run.statistics_file()
    known = set(saved)
    only_statistics = [name for name in file.names() if name not in known] if file is not None else []
    return [*(name for *_, name in sorted(places)), *only_statistics]


def _role(name: str, members: Mapping[str, set[str]]) -> str:
    for collection, role in _ROLE_OF_COLLECTION.items():
        if name in members.get(collection, ()):
            return role
    for pattern, role in (
        (_OPTIMIZER, ""),
        (_GRADIENT, "gradient"),
        (_LABEL, "label"),
        (_BIAS, "bias"),
        (_WEIGHT, "weight"),
        (_INPUT, "input"),
        (_OUTPUT, "activation"),
        (_ACTIVATION, "activation"),
    ):
        if pattern.search(name):
            return role
    listed = name in members.get("outputs", ()) or name in members.get("activations", ())
    return "activation" if listed or name in members.get("layers", ()) else ""


def _parameter_of(gradient: str, parameters: Sequence[str]) -> str | None:
    """Return the parameter that a gradient belongs to."""
    bare = re.sub(r"_?grad$", "", _GRADIENT.sub("", gradient), flags=re.I)
    if bare in parameters:
        return bare
    ending = [name for name in parameters if name.endswith(bare) or bare.endswith(name)]
    return ending[0] if len(ending) == 1 else None


def _layer(name: str) -> str:
    return _PARAMETER.sub("", name) or name


def _module(name: str) -> str:
    lower = name.lower()
    return next((module for word, module in _MODULES.items() if word in lower), "")


def _with_model_input(found: dict[str, TensorRole]) -> dict[str, TensorRole]:
    """Keep the first input in forward order.

    The inputs of later layers are activations.
    """
    inputs = sorted((one.order, name) for name, one in found.items() if one.role == "input")
    plain = {name for _, name in inputs if not _IN_OR_OUTPUT.search(name)}
    for at, (_, name) in enumerate(inputs):
        if at and name not in plain:
            one = found[name]
            found[name] = TensorRole("activation", one.layer, one.module, one.order)
    return found


def _with_model_output(found: dict[str, TensorRole]) -> dict[str, TensorRole]:
    """Mark the last activation in forward order as the output of the model.

    It is not marked if it belongs to a hidden layer.
    """
    activations = sorted((one.order, name) for name, one in found.items() if one.role == "activation")
    outputs = [
        name
        for _, name in activations
        if found[name].module in ("", "Softmax", "Sigmoid") and "loss" not in name.lower() and _OUTPUT.search(name)
    ]
    if outputs:
        one = found[outputs[-1]]
        found[outputs[-1]] = TensorRole("output", one.layer, one.module, one.order)
    return found
