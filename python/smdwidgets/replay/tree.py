"""Nested values.

Batches and states as trees of containers and leaves, and as JSON.

A leaf is what is no container. Leaves that JSON cannot hold, such as tensors, are kept elsewhere under a key.
"""

from __future__ import annotations

import collections
import copy
import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from smdwidgets._text import shown

__all__ = ["Lost", "decode", "encode", "mapped"]

#: Containers in containers that are followed, and elements of all of them.
_DEEPEST: Final = 24
_MOST_ELEMENTS: Final = 1_000_000
_LARGEST_INT: Final = 2**63
_PLAIN: Final = (bool, int, float, str, type(None))
_CONTAINERS: Final = {
    "tuple": tuple,
    "set": set,
    "deque": collections.deque,
    "counter": collections.Counter,
    "ordered": collections.OrderedDict,
    "dict": dict,
}


@dataclasses.dataclass(frozen=True)
class Lost:
    """A value of a type that a recording cannot hold."""

    type: str


def mapped(value: Any, leaf: Callable[[Any], Any], depth: int = 0) -> Any:
    """Return a copy of nested containers in which each leaf is replaced.

    >>> mapped({"x": [1, 2], "y": (3,)}, lambda one: one * 10)
    {'x': [10, 20], 'y': (30,)}
    """
    if depth > _DEEPEST or isinstance(value, (*_PLAIN, bytes)):
        return leaf(value)
    kind = type(value)
    if isinstance(value, tuple):
        items = [mapped(one, leaf, depth + 1) for one in value]
        return kind(*items) if hasattr(value, "_fields") else tuple(items)
    if kind is list:
        return [mapped(one, leaf, depth + 1) for one in value]
    new: Any = None
    if isinstance(value, dict):
        new = copy.copy(value)
        for key, one in value.items():
            new[key] = mapped(one, leaf, depth + 1)
        return new
    if isinstance(value, collections.UserDict):
        new = copy.copy(value)
        new.data = {key: mapped(one, leaf, depth + 1) for key, one in value.data.items()}
        return new
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        new = copy.copy(value)
        for one in dataclasses.fields(value):
            if hasattr(value, one.name):
                object.__setattr__(new, one.name, mapped(getattr(value, one.name), leaf, depth + 1))
        return new
    return leaf(value)


def encode(value: Any, keep: Callable[[Any], str | None], depth: int = 0) -> Any:
    """Return nested values as JSON.

    Args:
        value: the value.
        keep: returns the key under which a leaf is kept elsewhere; None: it is not.
        depth: the number of containers around it.

    >>> encode((1, {2: float("inf")}), lambda leaf: None)
    {'$tuple': [1, {'$dict': [[2, {'$float': 'inf'}]]}]}
    >>> encode(object(), lambda leaf: None)
    {'$lost': 'builtins.object'}
    """
    if value is None or isinstance(value, bool | str):
        return value
    kind = type(value)
    if isinstance(value, int) and kind in (int, bool):
        return value if -_LARGEST_INT <= value < _LARGEST_INT else {"$int": str(value)}
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"$float": str(float(value))}
    if isinstance(value, int):  # an enumeration
        return int(value)
    if (key := keep(value)) is not None:
        return {"$tensor": key}
    if depth > _DEEPEST:
        return {"$lost": "too many containers in each other"}

    def inside(items: Any) -> list[Any]:
        return [encode(one, keep, depth + 1) for one in items]

    if kind is list:
        return inside(value)
    if isinstance(value, tuple):
        return {"$tuple": inside(value)}
    if isinstance(value, set | frozenset):
        return {"$set": inside(value)}
    if isinstance(value, collections.deque):
        return {"$deque": inside(value)}
    if isinstance(value, Mapping):
        name = next((name for name in ("counter", "ordered") if isinstance(value, _CONTAINERS[name])), "")
        if not name and all(isinstance(key, str) and not key.startswith("$") for key in value):
            return {key: encode(one, keep, depth + 1) for key, one in value.items()}
        return {f"${name or 'dict'}": [inside(pair) for pair in value.items()]}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [one.name for one in dataclasses.fields(value) if hasattr(value, one.name)]
        return {name: encode(getattr(value, name), keep, depth + 1) for name in names}
    item = getattr(value, "item", None)
    if getattr(value, "shape", None) == () and callable(item) and isinstance(plain := item(), _PLAIN):
        return encode(plain, keep, depth)
    return {"$lost": f"{kind.__module__}.{kind.__qualname__}"[:200]}


def decode(content: Any, tensor: Callable[[str], Any]) -> Any:
    """Return the values of JSON that `encode` returned.

    Nothing is imported or called by name.

    Args:
        content: the JSON.
        tensor: returns the leaf that is kept under a key.

    >>> decode(encode({"betas": (0.9, 0.999), 3: None}, lambda leaf: None), str)
    {'betas': (0.9, 0.999), 3: None}

    Raises:
        ValueError: it is no such JSON.
    """
    left = _MOST_ELEMENTS

    def inside(items: Any, depth: int) -> list[Any]:
        if not isinstance(items, list):
            raise ValueError(f"a list is expected, and it is {shown(items)}")
        return [read(one, depth + 1) for one in items]

    def read(one: Any, depth: int) -> Any:
        nonlocal left
        left -= 1
        if left < 0 or depth > _DEEPEST + 2:
            raise ValueError("a nested value has too many elements")
        if isinstance(one, list):
            return inside(one, depth)
        if not isinstance(one, dict):
            return one
        if len(one) != 1 or not (tag := next(iter(one))).startswith("$"):
            return {key: read(each, depth + 1) for key, each in one.items()}
        return tagged(tag[1:], one[tag], depth)

    def tagged(tag: str, value: Any, depth: int) -> Any:
        if tag == "tensor" and isinstance(value, str):
            return tensor(value)
        if tag == "lost":
            return Lost(str(value)[:200])
        if tag == "float" and value in ("nan", "inf", "-inf"):
            return float(value)
        if tag == "int" and isinstance(value, str) and len(value) < 1000:
            return int(value)
        if tag in ("dict", "ordered", "counter"):
            pairs = [inside(pair, depth + 1) for pair in value] if isinstance(value, list) else [[value]]
            if all(len(pair) == 2 for pair in pairs):
                return _CONTAINERS[tag]({_hashable(key): each for key, each in pairs})
        if tag in ("tuple", "set", "deque"):
            items = inside(value, depth)
            return _CONTAINERS[tag](map(_hashable, items) if tag == "set" else items)
        raise ValueError(f"no value is written as {shown({f'${tag}': value})}")

    return read(content, 0)


def _hashable(value: Any) -> Any:
    if isinstance(value, list | dict | set | collections.deque):
        raise ValueError("a container is the key of a dictionary")
    return value
