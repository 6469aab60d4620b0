"""Parse configuration values.

SageMaker writes numbers, booleans and lists as JSON strings, so both forms are accepted.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from smdwidgets._text import did_you_mean, shown
from smdwidgets.exceptions import SMDebugTypeError, SMDebugValueError


def integer(value: object, name: str, least: int | None = None) -> int:
    """Return an integer, also from a string.

    >>> integer("10", "save_interval")
    10
    """
    try:
        if isinstance(value, bool):
            raise TypeError
        # `index` accepts NumPy integers and rejects floats.
        number = int(value) if isinstance(value, str) else operator.index(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise SMDebugValueError(f"{name} must be an integer, got {shown(value)}") from None
    if least is not None and number < least:
        raise SMDebugValueError(f"{name} must be >= {least}, got {number}")
    return number


def integers(value: object, name: str) -> list[int]:
    """Return a list of integers, also from a string: ``[0, 10]``, ``"0,10"``."""
    if isinstance(value, str):
        value = [part for part in value.split(",") if part.strip()]
    if isinstance(value, bytes) or not isinstance(value, Iterable):
        raise SMDebugValueError(f"{name} must be a list of integers, got {shown(value)}")
    return [integer(step.strip() if isinstance(step, str) else step, f"each item of {name}") for step in value]


_TRUTH = {"true": True, "false": False}


def truth(value: object, name: str) -> bool:
    """Return a bool, also from a string.

    >>> truth("True", "save_shape")
    True
    """
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in _TRUTH:
        return _TRUTH[value.strip().lower()]
    raise SMDebugValueError(f"{name} must be true or false, got {shown(value)}")


def texts(value: object, name: str) -> list[str]:
    """Return a list of strings, also from a comma-separated string."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    if isinstance(value, Mapping | bytes) or not isinstance(value, Iterable):
        raise SMDebugTypeError(f"{name} must be a list of strings, got {type(value).__name__}")
    out = list(value)
    for one in out:
        if not isinstance(one, str):
            raise SMDebugTypeError(f"each item of {name} must be a string, got {shown(one)}")
    return out


def choices(values: Sequence[str], allowed: Sequence[str], name: str) -> None:
    """Raise for values that are not allowed, and suggest similar ones."""
    for value in values:
        if value not in allowed:
            hint = did_you_mean(value, allowed)
            raise SMDebugValueError(f"invalid {name} {shown(value)}; choose from {', '.join(allowed)}.{hint}")


def mapping(value: object, name: str) -> Mapping[Any, Any]:
    """Return a JSON object; raise for other types."""
    if not isinstance(value, Mapping):
        raise SMDebugValueError(f"{name} must be a dictionary, got {shown(value)}")
    return value


def only(params: Mapping[str, object], allowed: Sequence[str], name: str) -> None:
    """Raise for unknown keys, so that a typo does not silently select a default."""
    for key in params:
        if key not in allowed:
            hint = did_you_mean(str(key), allowed)
            raise SMDebugValueError(f"unknown key {shown(key)} in {name}; choose from {', '.join(allowed)}.{hint}")
