"""Replace a function of a framework by one that also records."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any

__all__ = ["replace_everywhere", "with_argument"]


def replace_everywhere(package: str, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Replace a function in every module of a package that has imported it.

    Args:
        package: the package, which has the function as an attribute.
        name: the function's name.
        make: returns the replacement of the original.
    """
    original = getattr(sys.modules[package], name)
    replacement = functools.wraps(original)(make(original))
    for module_name, module in list(sys.modules.items()):
        inside = module_name == package or module_name.startswith(f"{package}.")
        if inside and getattr(module, "__dict__", {}).get(name) is original:
            setattr(module, name, replacement)


def with_argument(
    call: Callable[..., Any], name: str, change: Callable[[Any], Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a call with one of them changed.

    >>> with_argument(lambda x, callbacks=None: None, "callbacks", lambda given: [given, "ours"], (1, "theirs"), {})
    ((1, ['theirs', 'ours']), {})
    """
    bound = inspect.signature(call).bind(*args, **kwargs)
    bound.arguments[name] = change(bound.arguments.get(name))
    return bound.args, bound.kwargs
