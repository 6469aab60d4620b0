"""Call code of the script once more, so that the training does not notice."""

from __future__ import annotations

import dis
import inspect
import random
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np
import torch

from smdwidgets._suspend import hooks_suspended

__all__ = ["apart", "is_self_contained"]

#: What a class has that is called, and values that a call cannot change.
_METHODS = (FunctionType, staticmethod, classmethod, property)
_PLAIN = (bool, int, float, complex, str, bytes, tuple, type(None), ModuleType, type, BuiltinFunctionType)
_SETS = frozenset({"STORE_GLOBAL", "DELETE_GLOBAL"})


@contextmanager
def apart(devices: Sequence[int] = ()) -> Iterator[None]:
    """Leave random generators as they are, record nothing, and ignore what is raised.

    Args:
        devices: numbers of the GPUs that may draw numbers.

    >>> before = random.getstate()
    >>> with apart():
    ...     _ = random.random(), np.random.rand(), torch.rand(1)
    ...     raise ValueError
    >>> random.getstate() == before
    True
    """
    states = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices), hooks_suspended(), suppress(Exception):
            yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])


def is_self_contained(kind: type) -> bool:
    """Whether the methods of a class use only themselves of the script.

    They may name modules, classes, functions of libraries, other such functions and plain constants, and set no
    variable outside. A call that reaches a model or a list would change it.

    >>> class Counts:
    ...     def step(self):
    ...         STEPS.append(1)
    >>> STEPS = []
    >>> Counts.step.__globals__["STEPS"] = STEPS
    >>> is_self_contained(Counts), is_self_contained(random.Random)
    (False, True)
    """
    seen: set[int] = set()
    own = [one for base in kind.__mro__ if not _is_of_library(base) for one in vars(base).values()]
    return all(_is_harmless(one, seen) for one in own if isinstance(one, _METHODS))


def _is_of_library(one: Any) -> bool:
    name = str(getattr(one, "__module__", None) or "").partition(".")[0]
    spec = sys.modules.get(name)
    file = str(getattr(spec, "__file__", None) or "")
    return name in sys.stdlib_module_names or "site-packages" in file or "dist-packages" in file


def _is_harmless(one: Any, seen: set[int]) -> bool:
    """Whether a value that code names may be used by a call that is one too many."""
    if isinstance(one, property):
        return all(_is_harmless(each, seen) for each in (one.fget, one.fset, one.fdel) if each is not None)
    one = getattr(one, "__func__", one)
    if not isinstance(one, FunctionType):
        return isinstance(one, _PLAIN)
    function = inspect.unwrap(one)
    if id(function) in seen or _is_of_library(function) or not isinstance(function, FunctionType):
        return True
    seen.add(id(function))
    codes, named = [function.__code__], dict[str, Any]()
    for code in codes:
        if any(each.opname in _SETS for each in dis.get_instructions(code)):
            return False
        named |= {name: function.__globals__[name] for name in code.co_names if name in function.__globals__}
        codes += [each for each in code.co_consts if isinstance(each, CodeType)]
    try:
        named |= dict(inspect.getclosurevars(function).nonlocals)
    except ValueError:  # a cell is empty
        return False
    named.pop("__class__", None)
    return all(_is_harmless(each, seen) for each in named.values())
