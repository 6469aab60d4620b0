"""Check requests of a page, and traits, against protocol.json.

The file lists the requests, messages, packets and traits with their types. The front end's types are generated from it;
see docs/widget-protocol.md.

A type is written as in ``int``, ``str[]``, ``[int, int]``, ``{str: int}``, ``'a' | 'b' | null``, or is a name of the
file's ``types``. A name that ends with ``?`` is optional, and text after ``#`` is a comment.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from smdwidgets._text import shown
from smdwidgets.exceptions import SMDebugValueError

SCHEMA: dict[str, Any] = json.loads(Path(__file__).with_name("protocol.json").read_text(encoding="utf-8"))
PROTOCOL: int = SCHEMA["version"]

_TOKEN = re.compile(r"\s*(\[\]|'[^']*'|\w+|[^\s\w])")
_PLAIN: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (float, int),
    "str": (str,),
    "bool": (bool,),
    "bytes": (bytes, memoryview),
    "null": (type(None),),
}

Type = tuple[Any, ...]
"""A parsed type: its kind, then what it consists of."""


class ProtocolMismatch(SMDebugValueError):
    """The page and the kernel have different versions of smdwidgets."""


def check_version(page: object) -> None:
    """Raise :class:`ProtocolMismatch` if the page has another protocol version."""
    if page != PROTOCOL:
        older = isinstance(page, int) and page > PROTOCOL
        todo = "restart the kernel" if older else "reload the page"
        raise ProtocolMismatch(f"protocol mismatch: kernel {PROTOCOL}, page {shown(page)}; {todo}")


def check_request(message: Mapping[str, Any], *, exact: bool = False) -> None:
    """Raise SMDebugValueError unless the arguments of a request or command are valid.

    Unknown arguments are errors only if ``exact``.

    >>> check_request({"what": "classes"})
    >>> check_request({"what": "query", "run": "0", "worker": "", "mode": "", "text": "bias"})
    Traceback (most recent call last):
        ...
    smdwidgets.exceptions.SMDebugValueError: invalid request query: run must be int, got '0'
    """
    what = message.get("what")
    request = SCHEMA["requests"].get(what) if isinstance(what, str) else None
    if request is None:
        raise SMDebugValueError(f"unknown request {shown(what)}; choose from {', '.join(SCHEMA['requests'])}")
    arguments = {name: value for name, value in message.items() if name not in {"kind", "id", "what"}}
    if "forms" not in request:
        _raise(f"invalid request {what}", _object_fault(_fields(request, "arguments"), arguments, "", exact))
        return
    forms = [form for form in request["forms"] if _fault(parse(form["do"]), arguments.get("do"), "do", exact) is None]
    if not forms:
        choices = " | ".join(form["do"] for form in request["forms"])
        raise SMDebugValueError(f"invalid command {what}: do must be {choices}, got {shown(arguments.get('do'))}")
    _raise(f"invalid command {what} {arguments['do']}", _object_fault(forms[0], arguments, "", exact))


def is_command(what: object) -> bool:
    """Whether this is the name of a command, which changes something in the kernel.

    >>> is_command("rule"), is_command("frames")
    (True, False)
    """
    return isinstance(what, str) and bool(SCHEMA["requests"].get(what, {}).get("command"))


def trait_fault(name: str, value: Any) -> str | None:
    """Return why a value is not valid for a trait, or None.

    >>> trait_fault("pool", "sum")
    "pool must be 'mean' | 'min' | 'max' | 'maxabs', got 'sum'"
    """
    return _fault(parse(SCHEMA["traits"][name]["type"]), value, name, exact=True)


def _raise(where: str, fault: str | None) -> None:
    if fault is not None:
        raise SMDebugValueError(f"{where}: {fault}")


def _fields(described: Mapping[str, Any], key: str = "fields") -> dict[str, str]:
    """Return the fields of an object, with those of the objects that it extends."""
    inherited: dict[str, str] = {}
    for base in described.get("extends", ()):
        inherited |= _fields(SCHEMA["types"][base])
    return {**inherited, **described[key]}


# ------------------------------------------------------------------------------------------------------------- types


@cache
def parse(text: str) -> Type:
    """Parse a type.

    >>> parse("str[] | null # a comment")
    ('union', (('list', ('name', 'str')), ('name', 'null')), 'str[] | null')
    """
    text = text.partition("#")[0].strip()
    tokens = _TOKEN.findall(text)
    found = _union(tokens, text)
    if tokens:
        raise ValueError(f"invalid type {text!r}: unexpected {tokens[0]!r}")
    return found


def _union(tokens: list[str], text: str) -> Type:
    options = [_postfix(tokens, text)]
    while tokens and tokens[0] == "|":
        tokens.pop(0)
        options.append(_postfix(tokens, text))
    return options[0] if len(options) == 1 else ("union", tuple(options), text)


def _postfix(tokens: list[str], text: str) -> Type:
    token = tokens.pop(0)
    if token == "(":
        found = _union(tokens, text)
        _expect(tokens, ")", text)
    elif token == "[":
        items = [_union(tokens, text)]
        while tokens and tokens[0] == ",":
            tokens.pop(0)
            items.append(_union(tokens, text))
        _expect(tokens, "]", text)
        found = ("tuple", tuple(items))
    elif token == "{":
        for expected in ("str", ":"):
            _expect(tokens, expected, text)
        found = ("map", _union(tokens, text))
        _expect(tokens, "}", text)
    else:
        found = ("literal", token[1:-1]) if token.startswith("'") else ("name", token)
    while tokens and tokens[0] == "[]":
        tokens.pop(0)
        found = ("list", found)
    return found


def _expect(tokens: list[str], token: str, text: str) -> None:
    if not tokens or tokens.pop(0) != token:
        raise ValueError(f"invalid type {text!r}: expected {token!r}")


def _fault(kind: Type, value: Any, where: str, exact: bool) -> str | None:
    """Return how a value differs from a type, or None."""
    match kind:
        case ("literal", text):
            return None if value == text else _wrong(where, f"'{text}'", value)
        case ("union", options, text):
            faults = [_fault(option, value, where, exact) for option in options]
            # An object fits at most one option; its fault says more than the list of options.
            inner = [
                fault for fault in faults if fault and isinstance(value, dict) and not fault.startswith(f"{where} must")
            ]
            return None if None in faults else inner[0] if inner else _wrong(where, text, value)
        case ("list", item):
            if not isinstance(value, (list, tuple)):
                return _wrong(where, "a list", value)
            return _first(_fault(item, each, f"{where}[{i}]", exact) for i, each in enumerate(value))
        case ("tuple", items):
            if not isinstance(value, (list, tuple)) or len(value) != len(items):
                return _wrong(where, f"a list of {len(items)}", value)
            return _first(
                _fault(item, each, f"{where}[{i}]", exact)
                for i, (item, each) in enumerate(zip(items, value, strict=True))
            )
        case ("map", item):
            if not isinstance(value, dict):
                return _wrong(where, "an object", value)
            return _first(_fault(item, each, f"{where}.{name}", exact) for name, each in value.items())
        case (_, name):
            return _name_fault(name, value, where, exact)
    raise AssertionError(kind)


def _name_fault(name: str, value: Any, where: str, exact: bool) -> str | None:
    if name in _PLAIN:
        good = isinstance(value, _PLAIN[name]) and (name == "bool" or not isinstance(value, bool))
        return None if good else _wrong(where, name, value)
    if name == "Traits":  # any of the traits
        if not isinstance(value, dict):
            return _wrong(where, "an object", value)
        return _first(
            trait_fault(key, each) if key in SCHEMA["traits"] else f"unknown trait {key}" for key, each in value.items()
        )
    described = SCHEMA["types"][name]
    if "type" in described:
        return _fault(parse(described["type"]), value, where, exact)
    if not isinstance(value, dict):
        return _wrong(where, "an object", value)
    return _object_fault(_fields(described), value, f"{where}.", exact)


def _object_fault(fields: Mapping[str, str], value: Mapping[str, Any], where: str, exact: bool) -> str | None:
    for name, kind in fields.items():
        plain = name.removesuffix("?")
        if plain not in value:
            if plain == name:
                return f"{where}{name} is missing"
            continue
        fault = _fault(parse(kind), value[plain], f"{where}{plain}", exact)
        if fault is not None:
            return fault
    unknown = [name for name in value if name not in fields and f"{name}?" not in fields]
    return f"{where}{unknown[0]} is not in the protocol" if exact and unknown else None


def _first(faults: Iterator[str | None]) -> str | None:
    return next((fault for fault in faults if fault is not None), None)


def _wrong(where: str, expected: str, value: Any) -> str:
    return f"{where} must be {expected}, got {shown(value)}"
