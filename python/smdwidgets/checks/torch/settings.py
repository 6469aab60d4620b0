"""The settings of a training: of optimizers, layers, data loader and precision.

They are recorded once, so that runs can be compared by what was set, not only by what followed from it.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.optim import Optimizer

from smdwidgets.checks.torch.context import Context
from smdwidgets.checks.torch.graph import LossCall
from smdwidgets.checks.torch.values import is_plain

__all__ = ["SettingsChecks"]

#: Numbers of updates at which settings are looked at: optimizers and layers may be used for the first time later.
_LOOKED = frozenset({0, 1, 7, 63})
#: Options of optimizers that choose an implementation, or repeat another one.
_NO_SETTINGS = frozenset({"params", "param_names", "foreach", "fused", "capturable", "differentiable", "initial_lr"})
#: Attributes of layers of PyTorch that shapes do not tell.
_OF_LAYERS = ("p", "dropout", "momentum", "eps", "num_heads", "negative_slope", "padding_mode")
#: Values of a layer's attribute that are listed, and layers that are looked at.
_MOST_VALUES, _MOST_LAYERS = 8, 20_000


class SettingsChecks:
    """Records the settings of a training.

    Args:
        context: what the mechanisms share.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._loader: dict[str, Any] = {}
        self._autocast: str | None = None
        self._losses: dict[str, None] = {}
        self._classes: set[int] = set()
        self._ignored: int | None = None
        self._written: dict[str, Any] = {}
        #: Numbers of updates after which a model got other weights.
        self._restored: list[int] = []
        #: The optimizers that have updated parameters: their classes, with a number from the second of a class on.
        self._labels: weakref.WeakKeyDictionary[Optimizer, str] = weakref.WeakKeyDictionary()

    def batch(self, iterator: Any) -> None:
        """A data loader has given a batch.

        The first one with gradients enabled is that of the training.
        """
        if self._loader or not self._context.gradients:
            return
        sampler = getattr(iterator, "_index_sampler", None)
        order = getattr(sampler, "sampler", sampler)
        self._loader = {"data.order": type(order).__name__, "data.batch_size": getattr(sampler, "batch_size", None)}
        with suppress(TypeError):  # a stream has no length
            self._loader["data.rows"] = len(order)  # type: ignore[arg-type]

    def enters(self, model: nn.Module, gradients: bool) -> None:
        """A model is called."""
        if self._autocast is None and gradients and self._context.updates < max(_LOOKED):
            device = next((one.device.type for one in model.parameters()), "cpu")
            if torch.is_autocast_enabled(device):
                self._autocast = str(torch.get_autocast_dtype(device)).removeprefix("torch.")

    def look(self, call: LossCall) -> None:
        """A backward pass begins with a loss function."""
        if self._context.updates not in _LOOKED:
            return
        self._losses.setdefault(call.kind)
        if call.ignored is not None:
            self._ignored = call.ignored
        prediction = call.input
        if call.kind in ("cross_entropy", "nll_loss") and prediction.ndim == 2 and is_plain(prediction):

            def judge(row: Any) -> None:
                # Logits of -inf exclude a class, such as a row itself among those of its batch.
                self._classes.add(int(np.isfinite(row).sum()))

            self._context.values.read(judge, prediction[0])

    def after_update(self, optimizer: Optimizer) -> None:
        """An optimizer has updated its parameters."""
        if optimizer not in self._labels:
            name = type(optimizer).__name__
            number = sum(label.partition("_")[0] == name for label in self._labels.values())
            self._labels[optimizer] = f"{name}_{number}" if number else name
        if self._context.updates not in _LOOKED:
            return
        settings = {**self._loader, **_of_layers(self._context.models())}
        settings |= {"autocast": self._autocast} if self._autocast else {}
        settings |= {"loss": ", ".join(self._losses)} if self._losses else {}
        settings |= {"loss.ignored": self._ignored} if self._ignored is not None else {}
        settings |= {"loss.classes": max(self._classes)} if len(self._classes) == 1 else {}
        for each, label in self._labels.items():
            settings |= _of_optimizer(each, label)
        settings = {name: value for name, value in settings.items() if value is not None}
        if settings != self._written:
            self._written = settings
            self._context.log.settings(settings)

    def loads(self, module: nn.Module, state: Any) -> None:
        """Weights are about to be loaded into a module."""
        if not self._context.updates or not isinstance(state, Mapping):
            return
        own = {name: one for name, one in module.named_parameters() if is_plain(one)}
        pairs = [(one, state[name]) for name, one in own.items() if isinstance(state.get(name), torch.Tensor)]
        if any(one is module for one in self._context.models()) and len(pairs) == len(own):
            alike = all(one.shape == other.shape for one, other in pairs)
            # The last weights may be loaded as well.
            if alike and any(not torch.equal(one, other) for one, other in pairs if one.device == other.device):
                self._restored.append(self._context.updates)

    def close(self, stage_end: int | None) -> None:
        """The training has ended.

        Weights that were restored since its last update are those of another step, such as the best one.

        Args:
            stage_end: the step of the last update, if another training has gone on with the same passes since.
        """
        settings: dict[str, str | bool | int | float] = {}
        if self._restored == [self._context.updates]:
            settings["weights.restored"] = True
        if stage_end is not None:
            settings["stage.end"] = stage_end
        if settings and self._written:
            self._context.log.settings({**self._written, **settings})


def _of_optimizer(optimizer: Optimizer, label: str) -> dict[str, Any]:
    """Return the options of an optimizer.

    Those that its groups do not share have the number of the group.
    """
    groups = [
        {
            name: shown
            for name, value in group.items()
            if name not in _NO_SETTINGS and (shown := _plain(value)) is not None
        }
        | ({"lr": _plain(group["initial_lr"])} if "initial_lr" in group else {})
        for group in optimizer.param_groups
    ]
    options: dict[str, Any] = {}
    for name in dict.fromkeys(name for group in groups for name in group):
        values = [group.get(name) for group in groups]
        if all(value == values[0] for value in values):
            options[f"{label}.{name}"] = values[0]
        else:
            options |= {f"{label}.{number}.{name}": value for number, value in enumerate(values[:_MOST_VALUES])}
    return options


def _of_layers(models: Iterable[nn.Module]) -> dict[str, Any]:
    """Return attributes of PyTorch's layers by class, and the types of all parameters."""
    by_layer: dict[str, dict[Any, None]] = {}
    types: dict[str, None] = {}
    elements = 0
    for layer in _layers(models):
        for parameter in layer.parameters(recurse=False):
            types[str(parameter.dtype).removeprefix("torch.")] = None
            elements += parameter.numel()
        if type(layer).__module__.startswith("torch.nn."):
            for name in _OF_LAYERS:
                value = _plain(layer.__dict__.get(name))
                if value is not None:
                    by_layer.setdefault(f"{type(layer).__name__}.{name}", {})[value] = None
    settings = {name: _joined(sorted(values, key=repr)) for name, values in by_layer.items()}
    return {"parameters": elements, "parameters.type": _joined(sorted(types)), **settings} if types else settings


def _layers(models: Iterable[nn.Module]) -> Iterator[nn.Module]:
    seen = 0
    for model in models:
        for layer in model.modules():
            seen += 1
            if seen > _MOST_LAYERS:
                return
            yield layer


def _joined(values: list[Any]) -> Any:
    return values[0] if len(values) == 1 else ", ".join(map(str, values[:_MOST_VALUES]))


def _plain(value: Any) -> Any:
    """Return a number, text or flag; a tuple as text; None for anything else."""
    if isinstance(value, torch.Tensor) and value.numel() == 1 and value.device.type == "cpu":
        value = value.item()
    if isinstance(value, tuple | list) and all(isinstance(one, int | float) for one in value):
        return ", ".join(f"{one:g}" for one in value)
    return value if isinstance(value, bool | int | float | str) else None
