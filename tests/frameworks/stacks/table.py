"""The training stacks: small trainings that run with and without a hook."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

#: Names of modules that wrap a model or a part of it, which names in a run omit.
WRAPPERS = {"module", "_orig_mod", "_fsdp_wrapped_module"}


@dataclass
class Trained:
    """What a training leaves.

    `losses` has one number per update, or a list of them for each series of the run; without `series`, a list is that
    of `loss_output_0`. `weights` are the final ones if the models do not have them whole.
    """

    losses: Sequence[float] | Mapping[str, Sequence[float]]
    models: Sequence[Any] = ()
    weights: Mapping[str, Any] | None = None

    @property
    def series(self) -> dict[str, list[float]]:
        """The losses by the name of their series in the run."""
        given = self.losses if isinstance(self.losses, Mapping) else {"loss_output_0": self.losses}
        return {name: [float(one) for one in losses] for name, losses in given.items()}


@dataclass
class Outcome:
    """What one process of a training has computed, and what it expects of the run."""

    losses: dict[str, bytes]
    weights: dict[str, tuple[str, bytes]]
    random: str
    start: dict[str, np.ndarray]
    gradients: list[str]


class Recorder:
    """The lines with which a script is recorded. Without a folder, they do nothing.

    Both ways, it notes the weights with which the training starts.
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.start: dict[str, np.ndarray] = {}
        self.gradients: list[str] = []
        self._hooks: list[Any] = []

    def __call__(self, *parts: Any, start: Mapping[str, np.ndarray] | None = None, **options: Any) -> Any:
        """Record models and their optimizers; return the hook."""
        from torch import nn

        for one in parts:
            if isinstance(one, nn.Module):
                self._note(one, start)
        if self.folder is None:
            return None
        import smdwidgets.pytorch as smd

        hook = smd.record(parts[0], self.folder, **options)
        for one in parts[1:]:
            (hook.register_module if isinstance(one, nn.Module) else hook.register_optimizer)(one)
        self._hooks.append(hook)
        return hook

    def callbacks(self, trainer: str, model: Any = None) -> list[Any]:
        """Return the callbacks that record a trainer: one or none."""
        if model is not None:
            self._note(model, None)
        if self.folder is None:
            return []
        module = importlib.import_module(f"smdwidgets.{trainer}")
        hook = (module.Hook if trainer == "keras" else module.Callback)(self.folder)
        self._hooks.append(hook)
        return [hook]

    def note(self, start: Mapping[str, np.ndarray], gradients: Sequence[str]) -> None:
        """Note the weights at the start and the names of gradients."""
        self.start.update(start)
        self.gradients += gradients

    def close(self) -> None:
        """Close the hooks."""
        for one in self._hooks:
            if (hook := getattr(one, "hook", one)) is not None:  # Lightning's callback has closed it
                hook.close()

    def _note(self, model: Any, start: Mapping[str, np.ndarray] | None) -> None:
        parameters = {name_of(model, name): one for name, one in model.named_parameters()}
        values = {name: np.empty(0) if is_lazy(one) else to_numpy(one) for name, one in parameters.items()}
        given = values if start is None else start
        trained = [f"gradient/{name}" for name, one in parameters.items() if one.requires_grad]
        self.note(given, trained if start is None else [f"gradient/{name}" for name in start])


def name_of(model: Any, parameter: str) -> str:
    """Return the name of a parameter in a run."""
    while type(model).__name__ in ("DistributedDataParallel", "DataParallel", "OptimizedModule"):
        model = getattr(model, "module", None) or model._orig_mod
    root = type(model).__name__.removeprefix("FSDP")
    return f"{root}_" + ".".join(part for part in parameter.split(".") if part not in WRAPPERS)


def is_lazy(parameter: Any) -> bool:
    """Return whether a parameter has no memory before the first pass."""
    return type(parameter).__name__.startswith("Uninitialized")


def to_numpy(tensor: Any) -> np.ndarray:
    """Copy a tensor; bytes stand for elements of types that NumPy does not have."""
    if isinstance(tensor, np.ndarray):
        return tensor.copy()
    import torch

    tensor = (tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor).detach().cpu()
    if tensor.is_sparse:
        tensor = tensor.to_dense()
    if tensor.dtype in (torch.bfloat16, torch.float8_e4m3fn):
        return tensor.contiguous().view(torch.uint8).numpy().copy()
    return tensor.numpy().copy()


@dataclass(frozen=True)
class Stack:
    """A training and what is expected of its run.

    `workers`: the number of processes. `needs`: modules to import before the processes are forked, and
    `hooks` those of the hook. `gradients`: whether
    the run has the gradients of all parameters. `losses`: whether it has the losses. `first`: the step at which all
    weights are recorded. `updates`: the number of training steps, by default that of losses. `notes`: words of the
    notes that the run has.
    """

    train: Callable[[Recorder], Trained]
    workers: int = 1
    needs: tuple[str, ...] = ("torch._dynamo",)
    hooks: tuple[str, ...] = ("smdwidgets.hooks.torch.hook",)
    gradients: bool = True
    losses: bool = True
    first: int = 0
    updates: int | None = None
    notes: tuple[str, ...] = field(default=())


#: All stacks of the imported modules by name.
STACKS: dict[str, Stack] = {}


def stack(train: Callable[[Recorder], Trained] | None = None, **options: Any) -> Any:
    """Add a training to the table."""
    if train is None:
        return lambda given: stack(given, **options)
    assert train.__name__ not in STACKS, train.__name__
    STACKS[train.__name__] = Stack(train, **options)
    return train


def names_in(*modules: str) -> list[str]:
    """Return the names of the stacks of these imported modules."""
    return [
        name for name, one in STACKS.items() if one.train.__module__ in modules and one.train.__module__ in sys.modules
    ]
