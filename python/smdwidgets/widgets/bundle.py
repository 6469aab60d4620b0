"""The built front end, as text."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from smdwidgets.exceptions import SMDebugRuntimeError

STATIC = Path(__file__).parents[1] / "static"


@cache
def text(name: str) -> str:
    """One file of the front end."""
    try:
        return (STATIC / name).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise SMDebugRuntimeError(
            f"The front end ({name}) is not built: this copy of smdwidgets was made without it. In a clone run `make setup`; "
            "otherwise install the package again."
        ) from None


def module(name: str) -> str | Path:
    """A file as anywidget takes it: text, or while the front end is being worked on (ANYWIDGET_HMR=1) the path that it watches.

    anywidget holds on to every widget whose module is a path.
    """
    return STATIC / name if os.environ.get("ANYWIDGET_HMR") else text(name)
