"""Read settings from a YAML file: values in nested mappings.

With PyYAML, the events of its parser are read. They create no object, follow no reference and need memory in proportion
to the text. (Its C loader crashes on deeply nested text, and references and merges let a loader create 9**9 values from
500 bytes.) Without PyYAML, only lines whose meaning is certain are read. Either way, an entry that is not read is left
out, never guessed.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

_WORDS: Final = {"true": True, "false": False, "null": None, "~": None, "": None}
_CONSTANTS: Final = {".inf": math.inf, "+.inf": math.inf, "-.inf": -math.inf, ".nan": math.nan}
#: Numbers without leading zeros, which versions of YAML read in different ways.
_INTEGER: Final = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_FLOAT: Final = re.compile(r"[-+]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?")


class Settings(NamedTuple):
    """The values of a file by name, and why others are left out, or ""."""

    values: dict[str, Any]
    note: str = ""


def read_settings(text: str) -> Settings:
    """Return the values of nested mappings.

    They are numbers, strings, truth values, None, and lists of them.

    >>> read_settings("lr: 1e-3\\nname: 'it''s'\\nmodel:\\n  width: 4  # units\\n").values
    {'lr': 0.001, 'name': "it's", 'model/width': 4}
    """
    try:
        import yaml
    except ImportError:
        return _read_lines(text)
    try:
        events = yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        content = (event for event in events if not type(event).__name__.startswith(("Stream", "Document")))
        root: Any = next(iter(lambda: _node(content), _END), {})
        entries = [*_flat(root)] if isinstance(root, dict) else []
        if next(content, None) is not None:
            return Settings({}, "several YAML documents")
    except (yaml.YAMLError, RecursionError, ValueError, StopIteration) as error:
        return Settings({}, f"not valid YAML: {' '.join(str(error).split())[:200]}")
    left_out = sum(value is ... for _, value in entries)
    note = f"{left_out:,} entries with tags, references or nested lists are left out" if left_out else ""
    return Settings({name: value for name, value in entries if value is not ...}, note)


def plain_value(text: str) -> Any:
    """Return the value that a text without quotes spells.

    It is a number, a truth value, None, or else the text.

    >>> plain_value("1e-3"), plain_value("7"), plain_value("True"), plain_value("adam"), plain_value("010")
    (0.001, 7, True, 'adam', '010')
    """
    lower = text.lower()
    if lower in _WORDS:
        return _WORDS[lower]
    if lower in _CONSTANTS:
        return _CONSTANTS[lower]
    if _INTEGER.fullmatch(text) and len(text) < 100:
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else text


# --------------------------------------------------------------------------------------------------------- with PyYAML

#: The end of a mapping or list.
_END: Final = object()


def _node(events: Iterator[Any]) -> Any:
    """Return the next node: a value, a dictionary or a list. Ellipsis is left out."""
    event = next(events)
    kind = type(event).__name__
    if kind.endswith("EndEvent"):
        return _END
    if kind == "AliasEvent":
        return ...
    if kind == "ScalarEvent":
        if event.tag not in (None, "!", "tag:yaml.org,2002:str"):
            return ...
        return plain_value(event.value) if event.implicit[0] else event.value
    items = [*iter(lambda: _node(events), _END)]
    if event.tag is not None:
        return ...
    if kind == "MappingStartEvent":
        return {str(key): value for key, value in zip(items[::2], items[1::2], strict=True)}
    return ... if any(isinstance(item, list | dict) or item is ... for item in items) else items


def _flat(node: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of nested mappings, with names joined by slashes."""
    if isinstance(node, dict):
        for name, value in node.items():
            yield from _flat(value, f"{prefix}/{name}" if prefix else name)
    else:
        yield prefix, node


# ------------------------------------------------------------------------------------------------------ without PyYAML

_ENTRY: Final = re.compile(r"""(?P<indent> *)(?P<name>[A-Za-z_][\w./-]*|"[^"\\]+"|'[^']+')\s*:(?:\s+(?P<value>.*))?""")
_QUOTED: Final = re.compile(r"""(?:"(?P<double>[^"\\]*)"|'(?P<single>(?:[^']|'')*)')\s*(?:#.*)?""")
_COMMENT: Final = re.compile(r"(?:^|\s+)#.*$")


def _read_lines(text: str) -> Settings:
    """Read entries of one line, up to the first line that is no entry."""
    values: dict[str, Any] = {}
    mappings: list[tuple[int, str]] = []
    lines = [line.rstrip() for line in text.splitlines() if line.strip() and not re.match(r"\s*#|---$", line)]
    left_out, skipped = 0, -1
    for line, follows in zip(lines, [*lines[1:], ""], strict=False):
        indent = _indent(line)
        if skipped >= 0 and (indent > skipped or (indent == skipped and line.lstrip().startswith("-"))):
            continue
        skipped = -1
        entry = _ENTRY.fullmatch(line)
        if entry is None:
            return Settings(values, "only the first lines are read; install PyYAML to read all settings")
        while mappings and mappings[-1][0] >= indent:
            mappings.pop()
        name = entry["name"].strip("'\"")
        source = _COMMENT.sub("", entry["value"] or "")
        is_mapping = not source and _indent(follows) > indent and _ENTRY.fullmatch(follows) is not None
        if is_mapping:
            mappings.append((indent, name))
            continue
        value = ... if _continues(follows, indent) else _line_value(entry["value"] or "", source)
        if value is ...:
            left_out, skipped = left_out + 1, indent
        else:
            values["/".join([*(outer for _, outer in mappings), name])] = value
    note = f"{left_out:,} entries are left out; install PyYAML to read all settings" if left_out else ""
    return Settings(values, note)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _continues(follows: str, indent: int) -> bool:
    """Return whether an entry goes on in the next line."""
    return bool(follows) and (_indent(follows) > indent or (_indent(follows) == indent and follows.lstrip()[0] == "-"))


def _line_value(text: str, source: str) -> Any:
    """Return the value of one line, with and without its comment.

    It is Ellipsis if its meaning is not certain.
    """
    if quoted := _QUOTED.fullmatch(text):
        return quoted["double"] if quoted["double"] is not None else quoted["single"].replace("''", "'")
    if source.startswith("["):
        try:
            items = json.loads(source)
        except (ValueError, RecursionError):
            return ...
        return ... if any(isinstance(item, list | dict) for item in items) else items
    if source.startswith((*"{}]!&*|>%@`\"',?", "- ")) or source.endswith(":") or ": " in source:
        return ...
    return plain_value(source)
