"""Load the files of the built front end."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from smdwidgets.exceptions import SMDebugRuntimeError

STATIC = Path(__file__).parents[1] / "static"


@cache
def text(name: str) -> str:
    """Return the text of one front end file."""
    try:
        return (STATIC / name).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise SMDebugRuntimeError(
            f"front end file {name} is missing from this copy of smdwidgets; run `make setup` in a clone, or reinstall the "
            "package"
        ) from None


def hot_reload_enabled() -> bool:
    """Whether anywidget reloads changed front end files (ANYWIDGET_HMR=1)."""
    return bool(os.environ.get("ANYWIDGET_HMR"))


def module() -> str | Path:
    """Return the module for anywidget.

    This is the loader's text, or with hot reload the path of the front end.

    A path is not used otherwise, because anywidget keeps every widget whose module is a path alive.
    """
    return STATIC / "widget.js" if hot_reload_enabled() else text("loader.js")


def style() -> str | Path:
    """Return the style sheet for anywidget: its text, or with hot reload its path."""
    return STATIC / "widget.css" if hot_reload_enabled() else text("widget.css")


def module_text() -> str:
    """Return the front end's text, which the loader imports once per page."""
    return "" if hot_reload_enabled() else text("widget.js")
