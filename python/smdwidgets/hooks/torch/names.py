"""Names of modules and parameters without wrappers; tensors in nested values."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping

import torch
from torch import nn

__all__ = ["class_name", "keyed_tensors_in", "part_of", "plain_name", "tensors_in", "unwrapped_module", "wrapped_by"]


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


def part_of(module: nn.Module, name: str) -> nn.Module | None:
    """Return the submodule of this name, or None."""
    parts = module.__dict__.get("_modules", ())  # those of a scripted module are no dictionary
    part = parts[name] if name in parts else None  # noqa: SIM401
    return part if isinstance(part, nn.Module) else None


def wrapped_by(module: nn.Module) -> nn.Module | None:
    """Return the module inside a wrapper, or None for other modules."""
    return next((part for name in _WRAPPERS if (part := part_of(module, name)) is not None), None)


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


#: Characters of a dictionary's key that a name contains at most.
_LONGEST_KEY = 100


def keyed_tensors_in(value: object) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors in nested containers and data classes, with their keys.

    A key joins the keys of dictionaries, fields of data classes and positions on the way to a tensor. It is empty if
    there are only positions.

    >>> tokens = torch.zeros(2)
    >>> [key for key, _ in keyed_tensors_in({"tokens": tokens, "boxes": [tokens, tokens]})]
    ['tokens', 'boxes.0', 'boxes.1']
    >>> [key for key, _ in keyed_tensors_in((tokens, tokens))]
    ['', '']
    """
    for path, tensor in _tensors_with_paths(value, ()):
        named = any(isinstance(part, str) for part in path)
        yield ".".join(map(str, path)) if named else "", tensor


def tensors_in(value: object) -> Iterator[torch.Tensor]:
    """Yield the tensors in nested containers and data classes, in order."""
    for _, tensor in _tensors_with_paths(value, ()):
        yield tensor


def _tensors_with_paths(
    value: object, path: tuple[str | int, ...]
) -> Iterator[tuple[tuple[str | int, ...], torch.Tensor]]:
    items: Iterable[tuple[str | int, object]] = ()
    if isinstance(value, torch.Tensor):
        yield path, value
    elif isinstance(value, Mapping):
        items = ((key if isinstance(key, int) else str(key)[:_LONGEST_KEY], item) for key, item in value.items())
    elif dataclasses.is_dataclass(value):
        items = ((field.name, getattr(value, field.name, None)) for field in dataclasses.fields(value))
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        items = zip(value._fields, value, strict=False)
    elif isinstance(value, list | tuple):
        items = enumerate(value)
    for part, item in items:
        yield from _tensors_with_paths(item, (*path, part))
