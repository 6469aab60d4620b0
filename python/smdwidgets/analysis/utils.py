"""Turn refreshing of trials off and on, and parse arguments that may come as strings."""

from __future__ import annotations

from smdwidgets.trials.refresh import no_refresh, refresh

__all__ = ["no_refresh", "parse_bool", "parse_list_from_str", "refresh"]


def parse_list_from_str(arg: str | list[str] | None, delimiter: str = ",") -> list[str]:
    """A list that may come as one string.

    >>> parse_list_from_str("relu,tanh")
    ['relu', 'tanh']
    """
    if arg is None or arg == "":
        return []
    if isinstance(arg, str):
        return arg.split(delimiter)
    return list(arg)


def parse_bool(arg: bool | str | None, default: bool) -> bool:
    """A truth value that may come as a string; ``default`` for None.

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
    raise ValueError(f"True or False is expected, not {arg!r}.")
