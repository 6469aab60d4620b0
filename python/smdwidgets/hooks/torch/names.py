"""Names of modules and parameters without wrappers; tensors in nested values."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping

import torch
from torch import nn

__all__ = ["class_name", "plain_name", "tensors_in", "unwrapped_module", "wrapped_by"]


def unwrapped_module(module: nn.Module) -> nn.Module:
    """Return the model inside wrappers such as DistributedDataParallel."""
    while True:
        if isinstance(module, nn.parallel.DistributedDataParallel | nn.DataParallel):
            module = module.module
        elif (inner := wrapped_by(module)) is not None:
            module = inner
        else:
            return module


#: Components that wrappers add to the names of the inner model: FSDP1, torch.compile and checkpoint_wrapper.
_WRAPPERS = frozenset({"_fsdp_wrapped_module", "_orig_mod", "_checkpoint_wrapped_module"})


def wrapped_by(module: nn.Module) -> nn.Module | None:
    """Return the module inside a wrapper, or None for other modules."""
    children = module.__dict__.get("_modules", {})
    return next((children[name] for name in _WRAPPERS if isinstance(children.get(name), nn.Module)), None)


def plain_name(name: str) -> str:
    """Return the name of a module or parameter without wrapper components.

    >>> plain_name("_fsdp_wrapped_module.body._checkpoint_wrapped_module.weight")
    'body.weight'
    """
    if not any(wrapper in name for wrapper in _WRAPPERS):  # of every parameter at every saved step
        return name
    return ".".join(part for part in name.split(".") if part not in _WRAPPERS)


def class_name(module: nn.Module) -> str:
    """Return the name of the model's class.

    ``fully_shard`` replaces the class by a subclass, which is skipped.
    """
    classes = type(module).__mro__
    made = any(base.__name__ == "FSDPModule" for base in classes[0].__bases__)
    return next(each for each in classes[int(made) :] if each.__name__ != "FSDPModule").__name__


def tensors_in(value: object) -> Iterator[torch.Tensor]:
    """Yield the tensors in nested containers and data classes, in order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif dataclasses.is_dataclass(value) and not isinstance(value, Mapping):
        for field in dataclasses.fields(value):
            yield from tensors_in(getattr(value, field.name, None))
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, Iterable) and isinstance(value, list | tuple):
        for item in value:
            yield from tensors_in(item)
