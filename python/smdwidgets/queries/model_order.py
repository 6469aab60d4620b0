"""Model order: the order in which the Run Map lists tensors.

Tensors are grouped by module. JavaScript has the same order in ``js/src/lib/map-rows.ts``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from smdwidgets.queries.words import natural_key

_KINDS: Final = "WGAS"
_SCALARS: Final = ("losses", "scalars", "metrics", "sm_metrics", "searchable_scalars")
#: Tensors of a module above which it is split at the next number in their names.
_LARGE = 64
_SCALAR_MODULE = "scalars"
_LONGEST = 400


def model_order(names: Sequence[str], collections: Mapping[str, Collection[int]]) -> list[int]:
    """Return the indices of names in model order.

    >>> names = ["loss", "gradient/layers.2.w", "layers.10.w", "layers.2.w"]
    >>> [names[at] for at in model_order(names, {"losses": [0], "gradients": [1], "weights": [2, 3]})]
    ['layers.2.w', 'gradient/layers.2.w', 'layers.10.w', 'loss']
    """
    kinds = _kinds(names, collections)
    paths = [_path(_stem(name)) for name in names]

    def module_of(index: int, nth: int) -> str:
        if kinds[index] == "S":
            return _SCALAR_MODULE
        name = _stem(names[index])
        return _head(name, paths[index], _module_end(paths[index], nth)) or name

    groups: dict[str, list[int]] = {}
    for index in range(len(names)):
        groups.setdefault(module_of(index, 1), []).append(index)
    for module, members in list(groups.items()):
        if len(members) > _LARGE and module != _SCALAR_MODULE:
            del groups[module]
            for index in members:
                groups.setdefault(module_of(index, 2), []).append(index)
    common = _common_start(groups)
    modules = sorted(groups, key=lambda module: (module == _SCALAR_MODULE, natural_key(module.removeprefix(common))))
    return [
        index
        for module in modules
        for index in sorted(groups[module], key=lambda at: (_KINDS.index(kinds[at]), natural_key(_stem(names[at]))))
    ]


def _kinds(names: Sequence[str], collections: Mapping[str, Collection[int]]) -> list[str]:
    """Return the kind of each tensor.

    W: weights and biases, G: gradients, S: scalars, A: others.
    """
    kinds = ["G" if re.match("gradients?/", name) else "A" for name in names]
    for collection, kind in (
        *((each, "S") for each in _SCALARS),
        ("weights", "W"),
        ("biases", "W"),
        ("gradients", "G"),
    ):
        for index in collections.get(collection, ()):
            kinds[index] = kind
    return kinds


def _stem(name: str) -> str:
    """Return a name without the word that marks a gradient."""
    return re.sub("^gradients?/", "", name)


def _path(name: str) -> list[str]:
    parts = [name] if len(name) > _LONGEST else [part for part in re.split(r"[/.](?=[^/.])", name) if part]
    return parts or [name]


def _is_number(part: str) -> bool:
    return part.isascii() and part.isdigit()


def _module_end(parts: Sequence[str], nth: int) -> int:
    """Return the end of the module in a path.

    It is after its numbered part ``nth``, or before its last part.
    """
    numbered = [at + 1 for at, part in enumerate(parts[:-1]) if _is_number(part)]
    return numbered[min(nth, len(numbered)) - 1] if numbered else len(parts) - 1


def _head(name: str, parts: Iterable[str], end: int) -> str:
    """Return the first parts of a name, with its own separators."""
    at = 0
    for part in list(parts)[:end]:
        at = name.index(part, at) + len(part)
    return name[:at]


def _common_start(names: Collection[str]) -> str:
    """Return the start that half of the names have.

    It leaves them a word and a number at least.
    """
    start = ""
    while True:
        counts: dict[str, int] = {}
        for name in names:
            rest = name.removeprefix(start)
            parts = _path(rest) if name.startswith(start) else []
            if len(parts) < 3 or _is_number(parts[0]) or _is_number(parts[1]):
                continue
            end = len(start) + len(parts[0])
            following = start + _head(rest, parts, 1) + name[end : end + 1]
            counts[following] = counts.get(following, 0) + 1
        found = next((each for each, count in counts.items() if count * 2 >= len(names)), None)
        if found is None:
            return start
        start = found
