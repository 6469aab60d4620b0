"""Context managers for refreshing, and parsers of string arguments."""

from __future__ import annotations

from smdwidgets.trials.refresh import no_refresh, refresh

__all__ = ["no_refresh", "parse_bool", "parse_list_from_str", "refresh"]


def parse_list_from_str(arg: str | list[str] | None, delimiter: str = ",") -> list[str]:
    """Split a string into a list; return other lists as a copy.

    >>> parse_list_from_str("relu,tanh")
    ['relu', 'tanh']
    """
    if arg is None or arg == "":
        return []
    if isinstance(arg, str):
        return arg.split(delimiter)
    return list(arg)


def parse_bool(arg: bool | str | None, default: bool) -> bool:
    """Convert a string to a bool; return ``default`` for None.

    >>> parse_bool("True", False)
    True
    """
    if arg is None:
        return default
    if isinstance(arg, bool):
        return arg
    if arg in ("True", "true"):
        return True
    if arg in ("False", "false"):
        return False
    raise ValueError(f"invalid boolean {arg!r}; choose True or False")
