"""The view of a widget as a short string, which opens the same view.

The string is ``smdw2.`` and base64url of JSON. The JSON has the traits that differ from their defaults. It names runs
and tensors, so that it fits other paths and another order of runs. js/src/session/state-string.ts does the same in a
page.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from smdwidgets._text import visible
from smdwidgets.widgets.protocol import SCHEMA, trait_fault

PREFIX = "smdw2."
MOST = 2048
"""Characters of a string at most."""

#: Following the newest step is what step -1 means.
_LEFT_OUT = {"follow"}
NAMES = tuple(name for name in SCHEMA["traits"] if not name.startswith("_") and name not in _LEFT_OUT)
_TEXT = re.compile(r"[A-Za-z0-9_-]*")
_LARGEST = 2**53
_NAMED = 4
"""Missing things that a sentence lists."""


class _Absent(Exception):
    """A run or tensor that does not exist here."""


def run_labels(names: Sequence[str]) -> list[str]:
    """Return the runs' names, numbered where several are equal.

    >>> run_labels(["a", "b", "a"])
    ['a', 'b', 'a (2)']
    """
    labels: list[str] = []
    for at, name in enumerate(names):
        number = names[:at].count(name) + 1
        labels.append(name if number == 1 else f"{name} ({number})")
    return labels


def encode(state: Mapping[str, Any], runs: Sequence[str]) -> str:
    """Return the state string of traits of a widget.

    Args:
        state: values of traits; those with default values are left out.
        runs: names of the runs, in order.

    The largest values are left out if the string would be too long.
    """
    labels = run_labels(runs)
    texts = {}
    for name in sorted(NAMES):
        if name in state and (value := _plain(state[name])) != _plain(SCHEMA["traits"][name]["default"]):
            if name == "run":
                value = _label(value, labels)
            else:
                value = _each_object(value, lambda found: _with_labels(found, labels))
            texts[name] = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    while True:
        data = ("{" + ",".join(f'"{name}":{text}' for name, text in texts.items()) + "}").encode("utf-8", "replace")
        made = PREFIX + base64.urlsafe_b64encode(data).decode("ascii").rstrip("=")
        if len(made) <= MOST:
            return made
        del texts[max(texts, key=lambda name: (len(texts[name].encode("utf-8", "replace")), name))]


def decode(
    text: str, runs: Sequence[str], has_tensor: Callable[[str], bool], has_step: Callable[[int, int], bool]
) -> tuple[dict[str, Any] | None, str]:
    """Return the traits of a state string, and a sentence about what is missing.

    Args:
        text: the string, from any source.
        runs: names of the runs, in order.
        has_tensor: whether any run has a tensor of this name.
        has_step: whether the run with an index has a step.

    The traits are None if the string cannot be read at all. The sentence is empty if nothing is missing.
    """
    read, fault = _read(text)
    if read is None:
        return None, f"The state string {fault}, and was not used."
    labels = run_labels(runs)
    state: dict[str, Any] = {}
    missing: list[str] = []
    for name in sorted(read):
        if name not in NAMES:
            missing.append(f"setting {_quoted(name)}")
            continue
        try:
            value = _resolved(name, read[name], labels, has_tensor, missing)
        except _Absent as error:
            missing.append(str(error))
            continue
        if trait_fault(name, value) is not None or not _is_sane(value):
            missing.append(f"setting {_quoted(name)}")
        else:
            state[name] = value
    step = state.get("step", -1)
    if step >= 0 and not has_step(state.get("run", 0), step):
        missing.append(f"step {step}")
    return state, _sentence(missing)


def _read(text: str) -> tuple[dict[str, Any] | None, str]:
    """Return the JSON object of a string, or None and what is wrong with it."""
    if len(text) > MOST + 100:
        return None, f"is longer than {MOST:,} characters"
    text = text.strip()
    version = re.match(r"smdw(\d{1,9})\.", text, re.ASCII)
    if version is None:
        return None, f"does not begin with '{PREFIX}'"
    if version[0] != PREFIX:
        return None, f"has version {version[1]} instead of {PREFIX[4:-1]}"
    coded = text[len(PREFIX) :]
    damaged = "is cut off or damaged"
    if not _TEXT.fullmatch(coded):
        return None, damaged
    try:
        data = base64.urlsafe_b64decode(coded + "=" * (-len(coded) % 4))
        read = json.loads(data.decode("utf-8"), parse_float=_number, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None, damaged
    return (read, "") if isinstance(read, dict) else (None, damaged)


def _number(text: str) -> float | int:
    """Parse a number as a browser does, where 5.0 is an integer."""
    number = float(text)
    return int(number) if number.is_integer() and abs(number) <= _LARGEST else number


def _refuse(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def _resolved(name: str, value: Any, labels: list[str], has_tensor: Callable[[str], bool], missing: list[str]) -> Any:
    """Return a value with indices of runs, without items that do not exist."""
    if name == "run":
        return _index(value, labels, none=False)
    if name in {"tensor", "lane"}:
        return _existing(value, has_tensor)

    def resolve(found: dict[str, Any]) -> dict[str, Any]:
        changed = dict(found)
        if "run" in found:
            changed["run"] = _index(found["run"], labels)
        if "tensor" in found:
            changed["tensor"] = _existing(found["tensor"], has_tensor)
        return changed

    if not isinstance(value, list):
        return _each_object(value, resolve)
    kept = []
    for each in value:
        try:
            kept.append(_each_object(each, resolve))
        except _Absent as error:
            missing.append(str(error))
    return kept


def _index(label: Any, labels: list[str], none: bool = True) -> int:
    if none and label == -1:
        return -1  # all runs
    if label not in labels:
        raise _Absent(f"run {_quoted(label)}")
    return labels.index(label)


def _existing(name: Any, has_tensor: Callable[[str], bool]) -> Any:
    if isinstance(name, str) and name and not has_tensor(name):
        raise _Absent(f"tensor {_quoted(name)}")
    return name


def _label(index: Any, labels: list[str]) -> Any:
    return labels[index] if 0 <= index < len(labels) else -1


def _with_labels(found: dict[str, Any], labels: list[str]) -> dict[str, Any]:
    return {**found, "run": _label(found["run"], labels)} if "run" in found else found


def _each_object(value: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    """Change an object, or the objects in a list."""
    if isinstance(value, dict):
        return change(value)
    return [change(each) if isinstance(each, dict) else each for each in value] if isinstance(value, list) else value


def _plain(value: Any) -> Any:
    """Return a value as JSON of a browser has it: integral numbers without a point."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _is_sane(value: Any) -> bool:
    """Whether a valid value can be sent to a browser."""
    if isinstance(value, dict):
        return all(map(_is_sane, value.values()))
    if isinstance(value, list):
        return all(map(_is_sane, value))
    if isinstance(value, str):
        return not any("\ud800" <= character <= "\udfff" for character in value)
    return not isinstance(value, (int, float)) or abs(value) <= _LARGEST


def _quoted(name: Any) -> str:
    return f"'{visible(name if isinstance(name, str) else json.dumps(name)[:100], 60)}'"


def _sentence(missing: list[str]) -> str:
    """Say in one sentence what is missing."""
    unique = list(dict.fromkeys(missing))
    if not unique:
        return ""
    listed = unique[:_NAMED]
    if len(unique) > _NAMED:
        listed.append(f"{len(unique) - _NAMED} more")
    last = f" and {listed[-1]}" if len(listed) > 1 else ""
    return f"The view is restored without {', '.join(listed[:-1] if last else listed)}{last}."
