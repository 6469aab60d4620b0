"""Find the role of each tensor of a run, and its place in the forward order."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from smdwidgets.naming.tensors import SCALAR_COLLECTIONS, Kind, TensorName, as_in_gradient, describe, without_gradient
from smdwidgets.trials import Trial

__all__ = ["TensorRole", "tensor_roles"]

#: Inputs and outputs of layers, which are inputs and outputs of the model only at its ends.
_OF_LAYER = re.compile(r"[/._](in|out)puts?([/_:]\d+)*$", re.I)
#: Roles by the kind of a tensor; the others have none.
_ROLES = {
    Kind.WEIGHT: "weight",
    Kind.BIAS: "bias",
    Kind.GRADIENT: "gradient",
    Kind.INPUT: "input",
    Kind.OUTPUT: "activation",
    Kind.ACTIVATION: "activation",
    Kind.LABEL: "label",
}


@dataclass(frozen=True, slots=True)
class TensorRole:
    """What a tensor is; see :class:`~smdwidgets.diagnosis.inputs.TensorColumn`."""

    role: str
    layer: str
    module: str
    order: int


def tensor_roles(trial: Trial) -> dict[str, TensorRole]:
    """Return the roles of all tensors of a run that are not series.

    The order is that in which the run first saved the layers. A gradient has the order of its parameter: frameworks
    compute gradients from the last layer to the first.
    """
    members = {name: set(collection.tensor_names) for name, collection in trial.collections().items()}
    series = set().union(*(members.get(name, set()) for name in SCALAR_COLLECTIONS))
    names = [name for name in _in_saved_order(trial) if name not in series and not name.startswith("scalar/")]
    # What a log holds are series, pictures and summaries; those of checkpoints are tensors.
    names = [name for name in names if not trial.reader.kind_of(name)]
    described = {
        name: describe(name, [collection for collection, tensors in members.items() if name in tensors])
        for name in names
    }
    orders = {name: order for order, name in enumerate(names)}
    modules = trial.modules()
    parameters = {as_in_gradient(name): name for name in names if described[name].kind.is_parameter}
    roles = {}
    for name, tensor in described.items():
        parameter = _parameter_of(name, parameters) if tensor.kind is Kind.GRADIENT else None
        layer = describe(name if parameter is None else parameter).layer
        module = tensor.activation or (_class_of(layer, modules) if tensor.kind.is_parameter else "")
        roles[name] = TensorRole(_ROLES.get(tensor.kind, ""), layer, module, orders[parameter or name])
    _mark_output(roles, described)
    return _with_model_input(roles)


def _class_of(layer: str, modules: Mapping[str, Sequence[str]]) -> str:
    """Return the class of a layer, whose name may begin with that of the model."""
    classes = modules.get(layer) or modules.get(layer.partition("_")[2]) or ("",)
    return classes[0]


def _in_saved_order(trial: Trial) -> list[str]:
    """Return the names of all tensors in the order in which the run first saved them.

    Those of which it only wrote statistics follow, in the order of the file.
    """
    index = trial.reader.index
    positions = []
    saved = trial.tensor_names()
    for number, name in enumerate(saved):
        steps = index.steps_of(name)
        location = index.find(name, steps[0]) if steps else None
        if location is None and steps:
            location = next((stored for _, _, stored in index.stored_reductions(name, steps[0])), None)
        positions.append((steps[0] if steps else 0, getattr(location, "offset", 0), number, name))
    file = trial.reader.statistics_file()
    known_names = set(saved)
    only_statistics = [name for name in file.names() if name not in known_names] if file is not None else []
    return [*(name for *_, name in sorted(positions)), *only_statistics]


def _parameter_of(gradient: str, parameters: Mapping[str, str]) -> str | None:
    """Return the parameter that a gradient belongs to."""
    bare = without_gradient(gradient)
    if bare in parameters:
        return parameters[bare]
    ending = [name for path, name in parameters.items() if path.endswith(bare) or bare.endswith(path)]
    return ending[0] if len(ending) == 1 else None


def _with_model_input(roles: dict[str, TensorRole]) -> dict[str, TensorRole]:
    """Keep the first input in forward order.

    The first inputs of later layers are activations. Other ones, such as masks and states, are neither.
    """
    inputs = sorted((tensor.order, name) for name, tensor in roles.items() if tensor.role == "input")
    for _, name in inputs[1:]:
        if _OF_LAYER.search(name):
            roles[name] = replace(roles[name], role="activation" if name.endswith("_0") else "")
    return roles


def _mark_output(roles: dict[str, TensorRole], described: Mapping[str, TensorName]) -> None:
    """Mark the last output in forward order as the output of the model.

    It is not marked if it belongs to a hidden layer. The output of a module whose name all weights begin with is
    preferred: tensors of which only statistics were written have no place in the forward order.
    """
    outputs = [
        (tensor.order, name)
        for name, tensor in roles.items()
        if described[name].kind is Kind.OUTPUT
        and tensor.module in ("", "Softmax", "Sigmoid")
        and "loss" not in name.lower()
    ]
    weights = [name for name, tensor in roles.items() if tensor.role == "weight"]
    outermost = [one for one in outputs if _holds(one[1], weights)]
    if outputs:
        _, name = max(outermost or outputs)
        roles[name] = replace(roles[name], role="output")


def _holds(output: str, weights: Sequence[str]) -> bool:
    """Whether an output is that of the module that has all weights."""
    module = output.rpartition("_output")[0]
    return bool(module and weights) and all(name.startswith(f"{module}_") for name in weights)
