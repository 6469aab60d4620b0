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


def worked_on() -> bool:
    """Whether the front end is being worked on (ANYWIDGET_HMR=1): anywidget then watches its files."""
    return bool(os.environ.get("ANYWIDGET_HMR"))


def module() -> str | Path:
    """The module as anywidget takes it: the loader, or the path of the front end that it watches.

    anywidget holds on to every widget whose module is a path.
    """
    return STATIC / "widget.js" if worked_on() else text("loader.js")


def style() -> str | Path:
    """The style sheet as anywidget takes it."""
    return STATIC / "widget.css" if worked_on() else text("widget.css")


def loaded() -> str:
    """The front end, which the loader imports once for a page."""
    return "" if worked_on() else text("widget.js")
