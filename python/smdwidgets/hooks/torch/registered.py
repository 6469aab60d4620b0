"""The models that are registered on a hook, and the names of what they contain."""

from __future__ import annotations

import weakref
from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto

import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils.weak import WeakIdKeyDictionary

from smdwidgets.exceptions import SMDebugValueError
from smdwidgets.hooks.torch.modules import NamedModule, persistent_buffers
from smdwidgets.hooks.torch.names import class_name, plain_name, unwrapped_module

__all__ = ["NormBy", "RegisteredModels", "Updated"]


class NormBy(Enum):
    """How the norm of several gradients is computed."""

    GATHERING = auto()  # on the writer's thread, of a copy
    OPERATORS = auto()  # by operators of PyTorch
    SHARDS = auto()  # some are sharded


@dataclass(slots=True)
class Updated:
    """The parameters of the models that an optimizer updates.

    Attributes:
        ids: ids of all parameters of the optimizer.
        changes: number of changes of the models when they were found.
        names: names of the parameters, in the order of the models.
        places: their places among all parameters of the optimizer.
        norm_by: how the norm of their gradients is computed; None: not decided yet.
    """

    ids: list[int]
    changes: int
    names: list[str]
    places: Sequence[int]
    norm_by: NormBy | None = None
    #: Number of their elements, once it was counted.
    elements: int | None = None


class RegisteredModels:
    """The registered models.

    An open hook lives until the process ends. Weak references let models be freed before that.
    """

    def __init__(self) -> None:
        #: The name of each module in names of tensors.
        self.names: WeakIdKeyDictionary = WeakIdKeyDictionary()
        self._models: list[tuple[str, weakref.ref[nn.Module]]] = []
        #: The models with their wrappers.
        self._outer: list[weakref.ref[nn.Module]] = []
        #: Ids of the modules that the models had when :meth:`name_new` was called last.
        self._seen: tuple[int, ...] = ()
        #: The parameters by name, their ids, and the ids of all modules and parameters when they were listed. Listing
        #: takes long, and comparing ids does not.
        self._parameters: list[tuple[str, weakref.ref[nn.Parameter]]] = []
        self._ids: frozenset[int] = frozenset()
        self._listed: list[int] | None = None
        #: How often parameters were added, removed or replaced.
        self.changes = 0
        #: What each optimizer updates, by its id.
        self._updated: dict[int, Updated] = {}
        #: Whether the models may have changed since the list was compared.
        self._may_have_changed = True

    def __len__(self) -> int:
        """How many models were registered, also if they do not exist any more."""
        return len(self._models)

    def add(self, module: nn.Module) -> nn.Module:
        """Add a model, and return the one inside its wrappers."""
        inner = unwrapped_module(module)
        if inner in self.names:
            raise SMDebugValueError(
                f"this {type(inner).__name__}, or a module that contains it, is already registered; register a module once"
            )
        name = root = class_name(inner)
        # Tensors of two models of one class have different names.
        taken = {known for known, model in self._models if model() is not None}
        for number in range(1, len(taken) + 1):
            if root not in taken:
                break
            root = f"{name}_{number}"
        for name, part in inner.named_modules():
            self.names[part] = plain_name(name) or root
        self._models.append((root, weakref.ref(inner)))
        self._outer.append(weakref.ref(module))
        self._may_have_changed = True
        self._list_parameters()
        return inner

    def forget(self) -> None:
        """Drop the names of modules, and the wrappers."""
        self._outer.clear()
        self.names = WeakIdKeyDictionary()

    def name_new(self) -> bool:
        """Name modules that were added to a model; return whether there are any."""
        roots = list(self.roots())
        seen = tuple(id(part) for _, root in roots for part in root.modules())
        if seen == self._seen:
            return False
        self._seen = seen
        are_new = False
        for root, module in roots:
            for name, part in module.named_modules():
                if part not in self.names:
                    self.names[part] = plain_name(name) or root
                    are_new = True
        return are_new

    def roots(self) -> Iterator[tuple[str, nn.Module]]:
        """Yield the models that still exist, with their names."""
        yield from ((name, module) for name, model in self._models if (module := model()) is not None)

    def called(self) -> dict[int, nn.Module | None]:
        """Return each model with its wrappers, by the id of the model inside."""
        return {id(root()): outer() for (_, root), outer in zip(self._models, self._outer, strict=True)}

    def with_wrappers(self) -> Iterator[nn.Module]:
        """Yield the models with their wrappers, and the models inside."""
        yield from (model for outer in self._outer if (model := outer()) is not None)
        yield from (model for _, model in self.roots())

    def all_modules(self) -> Iterator[nn.Module]:
        """Yield the modules of the models and of their wrappers."""
        for model in self.with_wrappers():
            yield from model.modules()

    def named_modules(self) -> Iterator[NamedModule]:
        """Yield the modules of the models.

        Each has its name in tensor names and the prefix of its parameters' names.
        """
        for root, model in self.roots():
            for path, module in model.named_modules():
                name = plain_name(path)
                yield name or root, f"{root}_{name}." if name else f"{root}_", module

    def parameters(self, needed: Collection[int] = ()) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield every parameter once, with its first name.

        ``needed``: ids of parameters that the models may have gained within the step.
        """
        if self._may_have_changed or not self._ids.issuperset(needed):
            self._list_parameters()
        yield from ((name, parameter) for name, one in self._parameters if (parameter := one()) is not None)

    def updated_by(self, optimizer: Optimizer) -> tuple[Updated, list[torch.Tensor]]:
        """Return the parameters of the models that an optimizer updates, and their record."""
        groups = optimizer.param_groups
        held = groups[0]["params"] if len(groups) == 1 else [one for group in groups for one in group["params"]]
        ids = list(map(id, held))
        record = self._updated.get(id(optimizer))
        if record is None or record.changes != self.changes or record.ids != ids:
            place = {each: index for index, each in enumerate(ids)}
            named = [(name, place[id(one)]) for name, one in self.parameters(ids) if id(one) in place]
            record = Updated(ids, self.changes, [name for name, _ in named], [index for _, index in named])
            if record.places == [*range(len(ids))]:
                record.places = range(len(ids))
            self._updated[id(optimizer)] = record
        are_all = type(record.places) is range and type(held) is list
        return record, held if are_all else [held[index] for index in record.places]

    def forget_optimizer(self, key: Hashable) -> None:
        """An optimizer with this id was deleted."""
        if isinstance(key, int):
            self._updated.pop(key, None)

    def step_begins(self) -> None:
        """Look for changes of the models."""
        self._may_have_changed = False
        self._list_parameters()

    def _list_parameters(self) -> None:
        """List the parameters if any was added, removed or replaced."""
        if (now := self._ids_of_all()) == self._listed:
            return
        before = dict(self._parameters)
        listed: dict[int, tuple[str, weakref.ref[nn.Parameter]]] = {}
        for root, module in self.roots():
            for path, parameter in module.named_parameters():
                name = f"{root}_{plain_name(path)}"
                # While `functional_call` runs, other tensors are in the places of parameters.
                replaced = None if isinstance(parameter, nn.Parameter) or name not in before else before[name]()
                one = parameter if replaced is None else replaced
                if id(one) not in listed:
                    listed[id(one)] = name, weakref.ref(one)
        self._listed, self._parameters, self._ids = now, list(listed.values()), frozenset(listed)
        self.changes += 1

    def _ids_of_all(self) -> list[int]:
        """Return the ids of all modules and parameters, in a fixed order."""
        pending = [root for _, root in self.roots()]
        listed: list[int] = []
        seen: set[int] = set()
        while pending:
            module = pending.pop()
            if id(module) not in seen:
                seen.add(id(module))
                content = module.__dict__
                listed.append(id(module))
                listed += map(id, content["_parameters"].values())
                pending += [part for part in content["_modules"].values() if part is not None]
        return listed

    def buffers(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield the buffers that checkpoints contain, with their names."""
        for root, model in self.roots():
            for name, buffer in persistent_buffers(model):
                yield f"{root}_{plain_name(name)}", buffer
