"""Read mappings of plain values from a YAML file, without a YAML library."""

from __future__ import annotations

import json
import re
from typing import Any

_ENTRY = re.compile(
    r"""(?P<indent> *)(?P<name>"[^"]*"|'[^']*'|[^\s#:'"\-\[\]{},&*!|>%@`][^:#]*?)\s*:(?:\s+(?P<value>.*?))?\s*"""
)
_WORDS = {"true": True, "false": False, "null": None, "~": None, "": None}


def flat_yaml(text: str) -> dict[str, Any]:
    """Return the values of nested mappings, with names joined by slashes.

    Lists in several lines, references and typed values are left out.

    >>> flat_yaml("lr: 1e-3\\nname: 'a b'\\nmodel:\\n  width: 4  # units\\nlayers:\\n  - 64\\n")
    {'lr': 0.001, 'name': 'a b', 'model/width': 4}
    """
    found: dict[str, Any] = {}
    #: Indentation and name of the mappings around a line.
    around: list[tuple[int, str]] = []
    lines = text.splitlines()
    for at, line in enumerate(lines):
        match = _ENTRY.fullmatch(line)
        if match is None:
            continue
        indent, name = len(match["indent"]), match["name"].strip("'\"")
        while around and around[-1][0] >= indent:
            around.pop()
        full = "/".join([*(outer for _, outer in around), name])
        follows = lines[at + 1] if at + 1 < len(lines) else ""
        deeper = len(follows) - len(follows.lstrip()) > indent or follows.lstrip().startswith("- ")
        if not match["value"] and follows.strip() and deeper:
            around.append((indent, name))
            continue
        value = _value(match["value"] or "")
        if value is not Ellipsis:
            found[full] = value
    return found


def _value(text: str) -> Any:
    if text[:1] in ("'", '"'):
        end = text.find(text[0], 1)
        return text[1:end] if end > 0 else Ellipsis
    if text[:1] in ("[", "{"):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text
    if text[:1] in ("!", "&", "*", "|", ">"):
        return Ellipsis
    return plain_value(text.partition(" #")[0].rstrip())


def plain_value(text: str) -> Any:
    """Return the number, truth value or None that a text spells, else the text.

    >>> plain_value("1e-3"), plain_value("7"), plain_value("true"), plain_value("adam")
    (0.001, 7, True, 'adam')
    """
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
