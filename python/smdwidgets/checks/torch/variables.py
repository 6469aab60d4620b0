"""Variables of the script that calls a model, by their names."""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import Any

import torch
from torch import nn

__all__ = ["modules_of_script", "tensors_by_name", "variables_of_script"]

#: Functions of the script that are looked at, and entries of a dictionary.
_FUNCTIONS, _ENTRIES = 3, 64
#: Names in a function that may have its variables in a dictionary, which reading them would change, and references to
#: such a dictionary if no one else has it.
_READERS, _REFERENCES = frozenset({"locals", "vars", "exec", "eval", "f_locals"}), 3
#: Packages whose functions are between the script and the hook.
_BETWEEN = frozenset({"torch", "smdwidgets", "functools", "contextlib"})


def tensors_by_name(is_meant: Callable[[str], bool]) -> dict[str, torch.Tensor]:
    """Return the tensors with such names that the script's function has.

    It is the nearest calling function that has any. Entries of a dictionary and fields of a tuple or a dataclass count
    as variables.
    """
    for frame in _functions_of_script():
        tensors = {name: one for name, one in _named(_variables(frame)) if is_meant(name)}
        if tensors:
            return tensors
    return {}


def modules_of_script() -> list[nn.Module]:
    """Return the modules that the script's function has as variables."""
    for frame in _functions_of_script():
        modules = [value for _, value in _variables(frame) if issubclass(type(value), nn.Module)]
        if modules:
            return modules
    return []


def variables_of_script() -> Iterator[dict[str, Any]]:
    """Yield the variables of the nearest functions of the script that call.

    Attributes of objects that a function takes from its module, such as `policy.rewards`, count as variables.
    """
    for frame in _functions_of_script():
        own = {key: value for key, value in _variables(frame) if type(key) is str}
        named = [frame.f_globals[name] for name in frame.f_code.co_names[:_ENTRIES] if name in frame.f_globals]
        objects = [one for one in named if issubclass(type(one), nn.Module)]
        fields = [_fields(one) for one in (*objects, own.get("self"))]
        yield {key: value for each in (*fields, own) for key, value in each.items()}


def _functions_of_script() -> Iterator[FrameType]:
    """Yield the nearest functions of the script that call, the nearest first."""
    frame: FrameType | None = sys._getframe(1)
    functions = 0
    while frame is not None and functions < _FUNCTIONS:
        if str(frame.f_globals.get("__name__", "")).partition(".")[0] not in _BETWEEN:
            functions += 1
            yield frame
        frame = frame.f_back


def _variables(frame: FrameType) -> list[tuple[str, Any]]:
    """Return the variables of a function, or of a module or notebook."""
    if not frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        return list(frame.f_locals.items())
    if not _READERS.isdisjoint(frame.f_code.co_names) or sys.gettrace() is not None:
        return []
    values = frame.f_locals
    variables = list(values.items())
    # Before Python 3.13, the function keeps this copy until it returns, and with it what it has deleted.
    if type(values) is dict and sys.getrefcount(values) <= _REFERENCES:
        values.clear()
    return variables


def _named(variables: list[tuple[str, Any]]) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield tensors, and those that a batch with names contains."""
    for name, value in variables:
        kind: Any = type(value)  # `isinstance` would run code of lazy objects
        entries: Iterable[tuple[Any, Any]] = ((name, value),)
        if kind is dict and len(value) <= _ENTRIES:
            entries = list(value.items())
        elif issubclass(kind, tuple) and hasattr(kind, "_fields"):
            entries = zip(kind._fields, value, strict=False)
        elif dataclasses.is_dataclass(kind):
            entries = list(getattr(value, "__dict__", {}).items())
        yield from ((key, one) for key, one in entries if type(key) is str and issubclass(type(one), torch.Tensor))


def _fields(one: Any) -> dict[str, Any]:
    """Return the attributes that an object has itself."""
    try:
        return dict(object.__getattribute__(one, "__dict__"))
    except (AttributeError, TypeError):
        return {}
