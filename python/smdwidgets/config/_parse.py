"""Values out of JSON: SageMaker writes numbers, truth values and lists as strings, people write them as they are."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from smdwidgets._text import did_you_mean, shown
from smdwidgets.exceptions import SMDebugTypeError, SMDebugValueError


def integer(value: object, name: str, least: int | None = None) -> int:
    """A whole number, or the text of one.

    >>> integer("10", "save_interval")
    10
    """
    try:
        if isinstance(value, bool):
            raise TypeError
        # `index` also takes numpy's integers, and no float.
        number = int(value) if isinstance(value, str) else operator.index(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise SMDebugValueError(f"{name} must be a whole number, not {shown(value)}.") from None
    if least is not None and number < least:
        raise SMDebugValueError(f"{name} must be {least} or more, not {number}.")
    return number


def integers(value: object, name: str) -> list[int]:
    """A list of whole numbers, or the text of one: ``[0, 10]``, ``"0,10"``."""
    if isinstance(value, str):
        value = [part for part in value.split(",") if part.strip()]
    if isinstance(value, bytes) or not isinstance(value, Iterable):
        raise SMDebugValueError(f"{name} must be a list of whole numbers, not {shown(value)}.")
    return [integer(step.strip() if isinstance(step, str) else step, f"each of {name}") for step in value]


_TRUTH = {"true": True, "false": False}


def truth(value: object, name: str) -> bool:
    """A truth value, or the text of one.

    >>> truth("True", "save_shape")
    True
    """
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in _TRUTH:
        return _TRUTH[value.strip().lower()]
    raise SMDebugValueError(f"{name} must be true or false, not {shown(value)}.")


def texts(value: object, name: str) -> list[str]:
    """A list of strings, or strings separated by commas."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    if isinstance(value, Mapping | bytes) or not isinstance(value, Iterable):
        raise SMDebugTypeError(f"{name} must be a list of strings, not {type(value).__name__}.")
    out = list(value)
    for one in out:
        if not isinstance(one, str):
            raise SMDebugTypeError(f"{name} must be a list of strings; {shown(one)} is none.")
    return out


def choices(values: Sequence[str], allowed: Sequence[str], name: str) -> None:
    """Refuse what is not allowed, naming what was probably meant."""
    for value in values:
        if value not in allowed:
            hint = did_you_mean(value, allowed)
            raise SMDebugValueError(f"{name} knows no {shown(value)}: it takes {', '.join(allowed)}.{hint}")


def mapping(value: object, name: str) -> Mapping[Any, Any]:
    """A JSON object."""
    if not isinstance(value, Mapping):
        raise SMDebugValueError(f"{name} must be a dictionary, not {shown(value)}.")
    return value


def only(params: Mapping[str, object], allowed: Sequence[str], name: str) -> None:
    """Refuse unknown keys: a typo in a configuration must not pass as a default."""
    for key in params:
        if key not in allowed:
            hint = did_you_mean(str(key), allowed)
            raise SMDebugValueError(f"{name} knows no {shown(key)}: it takes {', '.join(allowed)}.{hint}")
