"""The models of a PyTorch training: the outermost modules with its parameters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import nn
from torch.optim import Optimizer

from smdwidgets.checks.torch.copies import living
from smdwidgets.hooks.torch.names import class_name, unwrapped_module

__all__ = ["described", "models_of", "models_with", "parameters_of"]


def models_of(optimizers: Iterable[Optimizer]) -> list[nn.Module]:
    """Return the outermost modules that hold parameters of the optimizers.

    Takes about 0.1 s.
    """
    return models_with(parameter for one in optimizers for parameter in parameters_of(one))


def models_with(parameters: Iterable[torch.Tensor]) -> list[nn.Module]:
    """Return the outermost modules that hold these parameters."""
    wanted = {id(parameter) for parameter in parameters}
    modules = list(living(nn.Module))
    parents: dict[int, list[nn.Module]] = {}
    for module in modules:
        for child in module.__dict__.get("_modules", {}).values():
            parents.setdefault(id(child), []).append(module)
    outermost: dict[int, nn.Module] = {}
    seen: set[int] = set()
    pending = [one for one in modules if not wanted.isdisjoint(map(id, one.__dict__.get("_parameters", {}).values()))]
    while pending:
        module = pending.pop()
        if id(module) not in seen:
            seen.add(id(module))
            above = parents.get(id(module), [])
            pending += above
            if not above:
                outermost[id(module)] = module
    # Several hold the same parameters if a script has wrapped its model, or a part of it, more than once.
    held = {key: wanted & {id(one) for one in module.parameters()} for key, module in outermost.items()}
    found: list[nn.Module] = []
    for key in sorted(outermost, key=lambda one: (-len(held[one]), unwrapped_module(outermost[one]) is outermost[one])):
        if held[key] & wanted:
            found.append(outermost[key])
            wanted -= held[key]
    return found


def parameters_of(optimizer: Optimizer) -> Iterator[torch.Tensor]:
    """Yield the parameters of an optimizer."""
    groups = optimizer.__dict__.get("param_groups", ())
    return (parameter for group in groups for parameter in group["params"])


def described(models: list[nn.Module]) -> str:
    """Return classes and size of models, for people."""
    names = ", ".join(class_name(unwrapped_module(model)) for model in models)
    number = sum({id(one): one.numel() for model in models for one in model.parameters()}.values())
    return f"{names} ({number:,} parameter{'' if number == 1 else 's'})"
