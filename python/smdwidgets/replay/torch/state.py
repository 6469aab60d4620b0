"""What a training step reads.

Models, optimizers, schedules, generators, and the values of the loop.

Objects are found without being named: optimizers, schedules and GradScalers by one walk over the objects of the
process, the rest in the names of the training loop. They are referred to weakly, so that a recording keeps no model
alive.
"""

from __future__ import annotations

import collections
import copy
import functools
import gc
import inspect
import itertools
import re
import sys
import sysconfig
import time
import weakref
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, Final

import numpy as np
import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from smdwidgets.replay.torch.random_states import all_states, generator_state, set_generator, set_states
from smdwidgets.replay.tree import mapped

__all__ = ["Keep", "State", "World", "array_bytes", "checksum", "is_user_code", "names_of", "nbytes_of", "small"]

#: Elements of a container of the loop that is kept, and containers in each other.
_MOST_ELEMENTS: Final = 4096
_DEEPEST: Final = 3
#: Bytes of tensors of the loop that are kept whatever the size of the model.
_SMALL_TENSORS: Final = 16 << 20
#: Bytes of weights whose checksum is that of every element; else of a sample of so many tensors, some at each step.
_WHOLE_BYTES, _MOST_TENSORS, _TENSORS_A_STEP, _SAMPLE = 256 << 10, 32, 8, 256
#: Names of secrets.
_SECRETS: Final = re.compile(
    r"secret|token|passw|credential|auth|api.?key|(access|private|account).?key", re.IGNORECASE
)
_PLAIN: Final = (bool, int, float, str, type(None))

_LIBRARIES: Final = tuple(
    {str(Path(sysconfig.get_paths()[name])) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    | {str(Path(torch.__file__).parents[1])}
)
_OWN: Final = str(Path(__file__).parents[2])


def is_user_code(filename: str) -> bool:
    """Whether a file is neither of a library nor of this package."""
    return not (filename.startswith((*_LIBRARIES, _OWN, "<frozen", "<string>")) or not filename)


def names_of(frame: FrameType) -> dict[str, Any]:
    """Return the local names of a frame.

    Python keeps a dictionary of them with the frame of a function, which would keep a deleted model alive.
    """
    local = frame.f_locals
    names = dict(local)
    if isinstance(local, dict) and frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        local.clear()
    return names


def small(value: Any, depth: int = 0) -> bool:
    """Whether a value is a number, a text, or a small container of them."""
    if isinstance(value, (*_PLAIN, np.generic)):
        return True
    if depth < _DEEPEST and isinstance(value, list | tuple | dict | set | collections.deque):
        values = [*value.values(), *value.keys()] if isinstance(value, dict) else value
        return len(value) <= _MOST_ELEMENTS and all(small(one, depth + 1) for one in values)
    return False


def nbytes_of(value: torch.Tensor) -> int:
    """Return the bytes of a tensor's elements."""
    return int(value.numel() * value.element_size())


def checksum(tensors: Iterable[torch.Tensor]) -> int | None:
    """Return a checksum of all elements.

    None for tensors on a device or with unusual layouts.
    """
    crc = 0
    for one in tensors:
        content = _bytes_of(one.detach())
        if content is None:
            return None
        crc = zlib.crc32(content, crc)
    return crc


def _is_readable(value: torch.Tensor) -> bool:
    return value.device.type == "cpu" and value.layout is torch.strided and type(value).__name__ != "DTensor"


def _bytes_of(value: torch.Tensor) -> Any:
    if not _is_readable(value):
        return None
    return value.resolve_conj().contiguous().reshape(-1).view(torch.uint8).numpy()


@dataclass(frozen=True)
class _Sampled:
    """A tensor of a digest, and which of its elements belong to it.

    Attributes:
        place: the dictionary of the module that has it: ``"_parameters"`` or ``"_buffers"``.
        module: the module.
        name: its name there.
        tensor: the tensor.
        address: of its elements. It is another one if they were replaced.
        size: number of its elements.
        count: number of the elements that belong to the digest.
        spacing: their spacing; 0: its layout is unusual.
    """

    place: str
    module: weakref.ref[nn.Module]
    name: str
    tensor: weakref.ref[torch.Tensor]
    address: int
    size: int
    count: int
    spacing: int

    def elements(self) -> torch.Tensor | None:
        """Return the elements.

        None: the module has another tensor now, or the tensor other elements.
        """
        module, tensor = self.module(), self.tensor()
        if module is None or tensor is None or module.__dict__[self.place].get(self.name) is not tensor:
            return None
        if tensor.data_ptr() != self.address or tensor.numel() != self.size:
            return None
        if not self.spacing:
            return tensor.detach().reshape(-1)[:: max(1, self.size // max(1, self.count))][: self.count].resolve_conj()
        return tensor.as_strided((self.count,), (self.spacing,))


def _is_plain(tensor: torch.Tensor) -> bool:
    return tensor.is_contiguous() and not tensor.is_complex()


class Keep:
    """A weak reference where the object allows it, else a strong one."""

    __slots__ = ("_get", "strong")

    def __init__(self, value: Any) -> None:
        self.strong: Any = None
        try:
            self._get: Callable[[], Any] = weakref.ref(value)
        except TypeError:
            self._get = lambda: value

    def __call__(self) -> Any:
        """Return the object; None if it does not exist any more."""
        return self._get()

    def hold(self) -> None:
        """Refer to it strongly from now on."""
        self.strong = self._get()


@dataclass
class State:
    """A copy of what a step reads.

    Attributes:
        tensors: by name.
        light: everything else: nested containers of plain values and of small tensors.
        objects: the objects of the loop, whose content ``light`` has.
        nbytes: bytes of all tensors and arrays; the memory is asked for often.
    """

    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    light: dict[str, Any] = field(default_factory=dict)
    objects: dict[str, Keep] = field(default_factory=dict)
    nbytes: int = 0


class World:
    """The live objects of a training.

    Args:
        models: the registered models.
    """

    def __init__(self, models: Iterable[nn.Module] = ()) -> None:
        self._modules: dict[str, weakref.ref[nn.Module]] = {}
        self._optimizers: dict[str, weakref.ref[Optimizer]] = {}
        self._schedules: dict[str, weakref.ref[Any]] = {}
        #: Objects of the loop by name: generators, objects with state, containers with tensors, tensors.
        self.objects: dict[str, Keep] = {}
        #: The tensors of the digest. Listing them takes longer than reading them, so they are listed at each keyframe,
        #: and if one of them is another object.
        self._sampled: list[_Sampled] | None = None
        self._is_whole = False
        self._walked = False
        #: What the walk over the objects of the process took. There is one.
        self.walk_seconds = 0.0
        for model in models:
            self.add_model(model)

    # -------------------------------------------------------------------------------------------------------- finding

    @property
    def modules(self) -> dict[str, nn.Module]:
        """The models that still exist, by name.

        The registered ones are ``m0``, ``m1`` and so on.
        """
        return {name: one for name, ref in self._modules.items() if (one := ref()) is not None}

    @property
    def optimizers(self) -> dict[str, Optimizer]:
        """The optimizers that still exist, by name."""
        return {name: one for name, ref in self._optimizers.items() if (one := ref()) is not None}

    @property
    def registered(self) -> list[nn.Module]:
        """The registered models."""
        return [one for name, one in self.modules.items() if name[0] == "m"]

    @property
    def all_objects(self) -> list[Any]:
        """The models, optimizers and schedules, to keep them alive."""
        refs = [*self._modules.values(), *self._optimizers.values(), *self._schedules.values()]
        return [one for ref in refs if (one := ref()) is not None]

    def add_model(self, model: nn.Module) -> None:
        """Add a registered model."""
        if all(one is not model for one in self.modules.values()):
            count = sum(name[0] == "m" for name in self._modules)
            self._modules[f"m{count}"] = weakref.ref(model)
            self._sampled = None

    def add_optimizer(self, optimizer: Optimizer) -> bool:
        """Add an optimizer of the models; return whether it is new."""
        if any(one is optimizer for one in self.optimizers.values()):
            return False
        ids = {id(one) for model in self.modules.values() for one in model.parameters()}
        if not any(id(one) in ids for group in optimizer.param_groups for one in group["params"]):
            return False
        self._optimizers[f"o{len(self._optimizers)}"] = weakref.ref(optimizer)
        return True

    def optimizer_name(self, optimizer: Any) -> str:
        """Return the name of an optimizer; empty if it is none of the models'."""
        return next((name for name, one in self.optimizers.items() if one is optimizer), "")

    def _owners(self) -> dict[str, list[list[str]]]:
        """Return the names of the parameters of each optimizer, by group."""
        names = {id(one): name for name, one in self.tensors() if "/p/" in name}
        return {
            name: [[names.get(id(one), "") for one in group["params"]] for group in optimizer.param_groups]
            for name, optimizer in self.optimizers.items()
        }

    def order_optimizers(self, owners: Mapping[str, Any]) -> None:
        """Give the optimizers the names that others with the same parameters had."""
        mine = {name: (self._optimizers[name], one) for name, one in self._owners().items()}
        named: dict[str, weakref.ref[Optimizer]] = {}
        for name, groups in owners.items():
            match = next((own for own, (_, one) in mine.items() if one == groups), None)
            if match is not None:
                named[name] = mine.pop(match)[0]
        for ref, _ in mine.values():
            named[f"other{len(named)}"] = ref
        self._optimizers = named

    def add_schedule(self, schedule: Any) -> None:
        """Add a schedule or GradScaler."""
        if all(ref() is not schedule for ref in self._schedules.values()):
            name = type(schedule).__name__
            self._schedules[f"{name}{sum(one.startswith(name) for one in self._schedules)}"] = weakref.ref(schedule)

    def discover(self, frames: Iterable[FrameType], extra: Mapping[str, Any] | None = None) -> None:
        """Find the objects of a training.

        Args:
            frames: the frames of the script, the innermost one first.
            extra: further objects by name.
        """
        self.objects = {}
        self._sampled = None
        for name, value in (extra or {}).items():
            self._look(name, value, 0)
        for frame in frames:
            # The names of a module are those of its functions, too.
            names = dict(frame.f_globals, **names_of(frame)) if is_user_code(frame.f_code.co_filename) else {}
            for name, value in names.items():
                self._look(name, value, 0)
        if not self._walked:
            self._walked = True
            began = time.perf_counter()
            self._walk()
            self.walk_seconds = time.perf_counter() - began

    def _look(self, name: str, value: Any, depth: int) -> None:
        if name.startswith("__") or isinstance(value, (*_PLAIN, type, ModuleType)):
            return
        if isinstance(value, nn.Module):
            self._add_other(name, value)
        elif isinstance(value, Optimizer):
            self.add_optimizer(value)
        elif isinstance(value, LRScheduler):
            pass  # the walk finds it
        elif generator_state(value) is not None or self._holds_tensors(value) or isinstance(value, torch.Tensor):
            self.objects.setdefault(name, Keep(value))
        elif depth < 2 and _has_state(value):
            self.objects.setdefault(name, Keep(value))
            for key, one in list(vars(value).items()):
                if not isinstance(one, torch.Tensor):
                    self._look(f"{name}.{key}", one, depth + 1)

    def _holds_tensors(self, value: Any) -> bool:
        if not isinstance(value, list | tuple | dict | collections.deque) or not 0 < len(value) <= _MOST_ELEMENTS:
            return False
        values = list(value.values() if isinstance(value, dict) else value)
        return any(isinstance(one, torch.Tensor) for one in values) and all(
            isinstance(one, torch.Tensor | np.ndarray) or small(one) for one in values
        )

    def _add_other(self, name: str, module: nn.Module) -> None:
        """Add a model that is not registered, such as averaged weights."""
        mine = self.modules
        if any(module is one for one in mine.values()):
            return
        shared = {id(one) for model in mine.values() for one in itertools.chain(model.parameters(), model.buffers())}
        parts = {id(part) for model in mine.values() for part in model.modules()}
        if id(module) in parts or next(iter(module.parameters()), None) is None:
            return
        if any(id(one) not in shared for one in itertools.chain(module.parameters(), module.buffers())):
            self._modules[f"l:{name}"] = weakref.ref(module)

    def _walk(self) -> None:
        """Find optimizers, schedules and GradScalers among all objects of the process."""
        matching = [
            one for one in gc.get_objects() if issubclass(type(one), Optimizer | LRScheduler | torch.amp.GradScaler)
        ]
        for one in matching:
            if isinstance(one, Optimizer) and "param_groups" in one.__dict__:
                self.add_optimizer(one)
        mine = {id(one) for one in self.optimizers.values()}
        for one in matching:
            if isinstance(one, LRScheduler):
                optimizer = getattr(one, "optimizer", None)
                if id(getattr(optimizer, "optimizer", optimizer)) in mine:
                    self.add_schedule(one)
            elif isinstance(one, torch.amp.GradScaler):
                self.add_schedule(one)

    # -------------------------------------------------------------------------------------------------------- copying

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield the tensors of the state with their names."""
        seen: set[int] = set()
        for name, module in self.modules.items():
            for key, parameter in module.named_parameters():
                if id(parameter) in seen:
                    continue
                seen.add(id(parameter))
                yield f"{name}/p/{key}", parameter
                if parameter.grad is not None:
                    yield f"{name}/g/{key}", parameter.grad
            for key, buffer in module.named_buffers():
                if id(buffer) not in seen:
                    seen.add(id(buffer))
                    yield f"{name}/b/{key}", buffer
        for name, optimizer in self.optimizers.items():
            for place, state in _states(optimizer):
                leaves: list[torch.Tensor] = []
                mapped(state, functools.partial(_append_tensor, leaves))
                for index, one in enumerate(leaves):
                    yield f"{name}/{place}/{index}", one

    @property
    def nbytes(self) -> int:
        """Bytes of a keyframe."""
        return sum(nbytes_of(one) for _, one in self.tensors())

    def take(self, into: State | None = None) -> State:
        """Return a copy of the state; ``into``: a copy whose memory is used again."""
        old = {} if into is None else into.tensors
        state = State()
        with torch.no_grad():
            for name, one in self.tensors():
                copied = old.get(name)
                if (
                    copied is not None
                    and copied.shape == one.shape
                    and copied.dtype == one.dtype
                    and one.device == copied.device
                ):
                    copied.copy_(one)
                else:
                    copied = one.detach().clone()
                state.tensors[name] = copied
                state.nbytes += nbytes_of(copied)
            state.light = self.take_light()
            state.nbytes += array_bytes(state.light["objects"]) + array_bytes(state.light["modules"])
            state.objects = dict(self.objects)
        return state

    def take_light(self) -> dict[str, Any]:
        """Return a copy of everything of the state that is no large tensor."""
        light: dict[str, Any] = {"rng": all_states(), "modules": {}, "optimizers": {}, "schedules": {}, "objects": {}}
        for name, module in self.modules.items():
            light["modules"][name] = [[part.training, _own_values(part)] for part in module.modules()]
        for name, optimizer in self.optimizers.items():
            groups = [
                {key: _copied(one) for key, one in group.items() if key != "params"} for group in optimizer.param_groups
            ]
            states = {place: mapped(state, _without_tensor) for place, state in _states(optimizer)}
            light["optimizers"][name] = [groups, states]
        light["owners"] = self._owners()
        for name, ref in self._schedules.items():
            if (schedule := ref()) is not None:
                light["schedules"][name] = _copied(schedule.state_dict())
        free = max(_SMALL_TENSORS, sum(nbytes_of(one) for one in self.parameters_and_buffers()))
        for name, keep in self.objects.items():
            value = keep()
            if value is None:
                continue
            if _is_secret(name, value):
                continue
            content, free = _content(value, free)
            if content is not None:
                light["objects"][name] = content
        return light

    def parameters_and_buffers(self, registered: bool = True) -> Iterator[torch.Tensor]:
        """Yield parameters and buffers of the registered models, or of all."""
        for name, module in self.modules.items():
            if name[0] == "m" or not registered:
                yield from module.parameters()
                yield from module.buffers()

    def digest(self, step: int) -> int | None:
        """Return a checksum of the weights and buffers after a step.

        It is that of all elements of a small model, else of a sample, whose tensors have their turns.
        """
        with torch.no_grad():
            elements = self._elements(step)
            if elements is None:
                self._sampled = self._list_sampled()
                elements = self._elements(step)
            if elements is None or not all(map(_is_readable, elements)):
                return None
            crc = 0
            for _, group in itertools.groupby(elements, key=lambda one: one.dtype):
                several = list(group)
                crc = zlib.crc32(_bytes_of(several[0] if len(several) == 1 else torch.cat(several)), crc)
        return crc

    def _elements(self, step: int) -> list[torch.Tensor] | None:
        """Return the elements of the digest after a step.

        None: the list of its tensors is out of date.
        """
        sampled = self._sampled
        if sampled is None:
            return None
        turns = 1 if self._is_whole else max(1, -(-len(sampled) // _TENSORS_A_STEP))
        elements = []
        for one in sampled[step % turns :: turns]:
            content = one.elements()
            if content is None:
                return None
            elements.append(content)
        return elements

    def _list_sampled(self) -> list[_Sampled]:
        """Return the tensors of the digest."""
        tensors: list[tuple[nn.Module, str, str, torch.Tensor]] = []
        for model in self.registered:
            seen: set[int] = set()
            for place in ("_parameters", "_buffers"):
                for module in model.modules():
                    for name, one in module.__dict__[place].items():
                        if one is not None and id(one) not in seen:
                            seen.add(id(one))
                            tensors.append((module, place, name, one))
        total = sum(nbytes_of(one) for *_, one in tensors)
        is_whole = self._is_whole = total <= _WHOLE_BYTES and len(tensors) <= _MOST_TENSORS
        every = 1 if is_whole else max(1, -(-len(tensors) // _MOST_TENSORS))
        sampled = []
        for module, place, name, one in tensors[::every]:
            size = one.numel()
            spacing = 1 if is_whole else max(1, size // _SAMPLE)
            count = size if is_whole else min(_SAMPLE, -(-size // spacing))
            if _is_readable(one):
                spacing = spacing if _is_plain(one) else 0
                owner, ref = weakref.ref(module), weakref.ref(one)
                sampled.append(_Sampled(place, owner, name, ref, one.data_ptr(), size, count, spacing))
        return sampled

    # -------------------------------------------------------------------------------------------------------- loading

    def load(
        self, tensors: Mapping[str, torch.Tensor], light: Mapping[str, Any], gradients: Mapping[str, Any] | None = None
    ) -> None:
        """Set the live objects to a state.

        Args:
            tensors: by name.
            light: the rest.
            gradients: the gradients in place of those of ``tensors``.
        """
        with torch.no_grad():
            self._load_modules(tensors, light, gradients)
            self._load_optimizers(tensors, light)
        for name, ref in self._schedules.items():
            schedule = ref()
            if schedule is not None and name in light["schedules"]:
                schedule.load_state_dict(_copied(light["schedules"][name]))
        for name, keep in self.objects.items():
            value = keep()
            if value is not None and name in light["objects"]:
                _set_content(value, light["objects"][name])
        set_states(light["rng"])

    def _load_modules(
        self, tensors: Mapping[str, torch.Tensor], light: Mapping[str, Any], gradients: Mapping[str, Any] | None
    ) -> None:
        for name, module in self.modules.items():
            for key, parameter in module.named_parameters():
                if (one := tensors.get(f"{name}/p/{key}")) is not None:
                    parameter.copy_(one)
                    key = f"{name}/g/{key}"
                    gradient = (tensors if gradients is None else gradients).get(key)
                    _set_gradient(parameter, gradient)
            for key, buffer in module.named_buffers():
                if (one := tensors.get(f"{name}/b/{key}")) is not None:
                    buffer.copy_(one)
            for part, (training, values) in zip(module.modules(), light["modules"].get(name, ()), strict=False):
                part.training = training
                for key, value in values.items():
                    vars(part)[key] = _replaced(vars(part).get(key), value)

    def _load_optimizers(self, tensors: Mapping[str, torch.Tensor], light: Mapping[str, Any]) -> None:
        for name, optimizer in self.optimizers.items():
            if name not in light["optimizers"]:
                continue
            groups, states = light["optimizers"][name]
            places = {}
            for number, (group, values) in enumerate(zip(optimizer.param_groups, groups, strict=False)):
                for key, value in values.items():
                    if isinstance(group.get(key), torch.Tensor) and isinstance(value, torch.Tensor):
                        group[key].copy_(value)
                    else:
                        group[key] = _copied(value)
                places.update({f"{number}.{index}": one for index, one in enumerate(group["params"])})
            for place, parameter in places.items():
                if place not in states:
                    optimizer.state.pop(parameter, None)
                    continue
                numbers = itertools.count()

                def fill(leaf: Any, key: str = f"{name}/{place}", numbers: Iterator[int] = numbers) -> Any:
                    return (
                        tensors[f"{key}/{next(numbers)}"].clone() if isinstance(leaf, str) and leaf == _TENSOR else leaf
                    )

                optimizer.state[parameter] = mapped(states[place], fill)

    def rebound(self, light: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of a state whose objects do not exist any more, by name."""
        values = {}
        for name, content in light["objects"].items():
            keep = self.objects.get(name)
            if "." not in name and (keep is None or keep() is None):
                for kind in ("tensor", "container"):
                    if kind in content:
                        values[name] = _copied(content[kind])
        return values


#: What stands for a tensor in the state of an optimizer.
_TENSOR: Final = "$tensor"


def array_bytes(value: Any) -> int:
    """Return the bytes of tensors and arrays in nested values."""
    total = 0

    def add(leaf: Any) -> None:
        nonlocal total
        if isinstance(leaf, torch.Tensor):
            total += nbytes_of(leaf)
        elif isinstance(leaf, np.ndarray):
            total += leaf.nbytes

    mapped(value, add)
    return total


def _append_tensor(tensors: list[torch.Tensor], leaf: Any) -> None:
    if isinstance(leaf, torch.Tensor):
        tensors.append(leaf)


def _without_tensor(leaf: Any) -> Any:
    return _TENSOR if isinstance(leaf, torch.Tensor) else leaf


def _states(optimizer: Optimizer) -> Iterator[tuple[str, Any]]:
    """Yield the state of each parameter of an optimizer by its place, such as ``0.3``."""
    for number, group in enumerate(optimizer.param_groups):
        for index, parameter in enumerate(group["params"]):
            if parameter in optimizer.state:
                yield f"{number}.{index}", dict(optimizer.state[parameter])


def _copied(value: Any) -> Any:
    """Return a copy of nested values.

    Tensors are cloned, other objects are not copied.
    """

    def leaf(one: Any) -> Any:
        if isinstance(one, torch.Tensor):
            return one.detach().clone()
        return one.copy() if isinstance(one, np.ndarray) else one

    new = mapped(value, leaf)
    # A subclass of a number or text cannot change, and its class may need more arguments for a copy.
    return new if isinstance(new, _PLAIN) else copy.copy(new)


def _own_values(part: nn.Module) -> dict[str, Any]:
    """Return numbers, small containers and tensors in attributes of a module."""
    values = {}
    for key, one in vars(part).items():
        if key.startswith("_") or key == "training":
            continue
        is_tensor = isinstance(one, torch.Tensor) and one.grad_fn is None
        is_container = isinstance(one, list | dict | collections.deque) and small(one)
        if isinstance(one, int | float) or is_tensor or is_container:
            values[key] = _copied(one)
    return values


def _has_state(value: Any) -> bool:
    """Whether an object has values that a step may change."""
    content = getattr(value, "__dict__", None)
    kind = type(value)
    module = kind.__module__.partition(".")[0]
    if not isinstance(content, dict) or (callable(value) and not is_user_code(_file_of(kind))):
        return False
    return module not in ("builtins", "torch", "numpy", "smdwidgets", "logging", "io", "argparse", "pathlib")


def _file_of(kind: type) -> str:
    return getattr(sys.modules.get(kind.__module__), "__file__", None) or (
        "" if kind.__module__ != "__main__" else "main"
    )


def _content(value: Any, free: int) -> tuple[Any, int]:
    """Return a copy of an object's state, and the bytes that are left.

    None: it has none, or it is too large.
    """
    if (state := generator_state(value)) is not None:
        return {"generator": _copied(state)}, free
    if isinstance(value, torch.Tensor):
        if value.grad_fn is not None or nbytes_of(value) > free:
            return None, free
        return {"tensor": value.detach().clone()}, free - nbytes_of(value)
    if isinstance(value, list | tuple | dict | collections.deque):
        size = sum(
            nbytes_of(one) if isinstance(one, torch.Tensor) else getattr(one, "nbytes", 0)
            for one in (value.values() if isinstance(value, dict) else value)
        )
        return (None, free) if size > free else ({"container": _copied(value)}, free - size)
    is_users = is_user_code(_file_of(type(value)))
    values = {}
    for key, one in vars(value).items():
        if isinstance(one, int | float | bool) or (is_users and small(one) and not _is_secret(key, one)):
            values[key] = _copied(one)
        elif is_users and isinstance(one, torch.Tensor) and one.grad_fn is None and nbytes_of(one) <= free:
            free -= nbytes_of(one)
            values[key] = one.detach().clone()
    return {"values": values}, free


def _is_secret(name: str, value: Any) -> bool:
    """Whether a value has a text under a name of secrets, which no step changes.

    A container that has one is left out as a whole: what is put back would lack it.
    """
    if isinstance(value, str | bytes):
        return _SECRETS.search(name) is not None
    if isinstance(value, dict):
        return any(_is_secret(f"{name} {key}", one) for key, one in value.items())
    return isinstance(value, list | tuple | set | collections.deque) and any(_is_secret(name, one) for one in value)


def _set_content(value: Any, content: Mapping[str, Any]) -> None:
    if "generator" in content:
        set_generator(value, content["generator"])
    elif "tensor" in content:
        with torch.no_grad():
            if value.shape == content["tensor"].shape:
                value.detach().copy_(content["tensor"])
    elif "container" in content:
        _replaced(value, content["container"])
    else:
        for key, one in content["values"].items():
            vars(value)[key] = _replaced(vars(value).get(key), one)


def _replaced(old: Any, new: Any) -> Any:
    """Return a copy of a value.

    A container or tensor is filled in place, because others may refer to it.
    """
    both = isinstance(old, torch.Tensor) and isinstance(new, torch.Tensor) and old.shape == new.shape
    if both and old.grad_fn is None and not old.is_inference():
        with torch.no_grad():
            old.copy_(new)
        return old
    if isinstance(old, dict) and isinstance(new, dict):
        kept = {key: _replaced(old.get(key), one) for key, one in new.items()}
        old.clear()
        old.update(kept)
        return old
    if isinstance(old, list) and isinstance(new, list):
        pairs = itertools.zip_longest(old[: len(new)], new)
        old[:] = [_replaced(before, one) for before, one in pairs]
        return old
    if isinstance(old, collections.deque) and isinstance(new, collections.deque):
        kept_items = [_copied(one) for one in new]
        old.clear()
        old.extend(kept_items)
        return old
    return _copied(new)


def _set_gradient(parameter: torch.Tensor, gradient: torch.Tensor | None) -> None:
    if gradient is None:
        parameter.grad = None
    elif parameter.grad is not None and parameter.grad.shape == gradient.shape:
        parameter.grad.copy_(gradient)
    else:
        parameter.grad = gradient.clone()
