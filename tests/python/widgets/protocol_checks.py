"""Check messages and packets of the kernel against protocol.json."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from smdwidgets._text import shown
from smdwidgets.exceptions import SMDebugValueError
from smdwidgets.widgets import protocol
from smdwidgets.widgets.protocol import SCHEMA


def check_reply(message: Mapping[str, Any], heads: list[str], what: str | None = None) -> None:
    """Raise SMDebugValueError unless a message of the kernel is valid.

    Args:
        message: the message without its packets.
        heads: kinds of its packets.
        what: the request that it replies to; None for a pushed message.
    """
    kind = str(message.get("kind"))
    if kind not in SCHEMA["messages"]:
        raise SMDebugValueError(f"unknown message {shown(kind)}; choose from {', '.join(SCHEMA['messages'])}")
    request = SCHEMA["requests"].get(what, {})
    fields = {"kind": "str", **SCHEMA["messages"][kind], **(request.get("answer", {}) if kind == "answer" else {})}
    protocol._raise(
        f"invalid {kind} of {what}" if what else f"invalid {kind}",
        protocol._object_fault(fields, message, "", exact=True),
    )
    allowed = _pushed() if kind == "news" else request.get("packets", [])
    if wrong := [head for head in heads if head not in allowed]:
        raise SMDebugValueError(
            f"{kind} of {what} cannot contain a packet {wrong[0]}; choose from {', '.join(allowed)}"
        )


def check_packet(head: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
    """Raise SMDebugValueError unless a packet is valid.

    The arrays need a dtype and a shape.
    """
    kind = str(head.get("kind"))
    packet = SCHEMA["packets"].get(kind)
    if packet is None:
        raise SMDebugValueError(f"unknown packet {shown(kind)}; choose from {', '.join(SCHEMA['packets'])}")
    where = f"invalid packet {kind}"
    protocol._raise(
        where, protocol._object_fault({"kind": "str", **protocol._fields(packet, "head")}, head, "", exact=True)
    )
    protocol._raise(where, _arrays_fault(packet["arrays"], arrays))


def _pushed() -> list[str]:
    return [kind for kind, packet in SCHEMA["packets"].items() if packet.get("pushed")]


def _arrays_fault(described: Mapping[str, str], arrays: Mapping[str, Any]) -> str | None:
    sizes: dict[str, int] = {}
    patterns = {re.compile(re.escape(name.removesuffix("?")).replace(r"\{i\}", r"\d+")): name for name in described}
    for pattern, name in patterns.items():
        if not name.endswith("?") and "{i}" not in name and not any(map(pattern.fullmatch, arrays)):
            return f"array {name} is missing"
    for name, array in arrays.items():
        kinds = [
            described[key].partition("#")[0].strip() for pattern, key in patterns.items() if pattern.fullmatch(name)
        ]
        if not kinds:
            return f"array {name} is not in the protocol"
        own = {} if "{i}" in "".join(described) else sizes
        if not any(_fits(option.strip(), array, own) for option in kinds[0].split("|")):
            given = f"{array.dtype.str[1:]}{list(array.shape)}"
            return f"array {name} must be {kinds[0]}, got {given}" + (f" with {sizes}" if sizes else "")
    return None


def _fits(kind: str, array: Any, sizes: dict[str, int]) -> bool:
    """Whether an array has the dtype and shape of ``f8[n, 18]``.

    A letter stands for the same size everywhere in a packet.
    """
    dtype, _, dimensions = kind.rstrip("]").partition("[")
    names = [name.strip() for name in dimensions.split(",")]
    if array.dtype.str[1:] != dtype or len(names) != len(array.shape):
        return False
    known = {**sizes}
    for name, size in zip(names, array.shape, strict=True):
        if size != (int(name) if name.isdecimal() else known.setdefault(name, size)):
            return False
    sizes |= known
    return True
