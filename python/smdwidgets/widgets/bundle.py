"""Load the files of the built front end.

The code is divided into parts. A page loads each part once, when it first needs it: see docs/front-end.md.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypedDict

from smdwidgets.exceptions import SMDebugRuntimeError

STATIC = Path(__file__).parents[1] / "static"
#: Connects the parts of a page; it comes before all others.
_CONNECTOR = "parts.js"


class Parts(TypedDict):
    """Content of ``parts.json``."""

    version: str
    #: by part, those that it needs when it is loaded
    needs: dict[str, list[str]]
    #: by part, those that it may load later
    later: dict[str, list[str]]
    #: by part, its style sheets, whose names sort in the order of the cascade
    styles: dict[str, list[str]]
    #: texts by file name
    files: dict[str, str]


class PageCode(NamedTuple):
    """What an exported page contains."""

    script: str
    style: str


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


@cache
def parts() -> Parts:
    """Return all parts."""
    content: Parts = json.loads(text("parts.json"))
    return content


def size() -> int:
    """Return the bytes of all code and style sheets."""
    return sum(len(file.encode()) for file in [text("loader.js"), *parts()["files"].values()])


def hot_reload_enabled() -> bool:
    """Whether anywidget reloads changed front end files (ANYWIDGET_HMR=1)."""
    return bool(os.environ.get("ANYWIDGET_HMR"))


def module() -> str | Path:
    """Return the module for anywidget.

    This is the loader's text, or with hot reload the path of the whole front end, which ``npm run watch`` writes.

    A path is not used otherwise, because anywidget keeps every widget whose module is a path alive.
    """
    return STATIC / "widget.js" if hot_reload_enabled() else text("loader.js")


def first_parts(kind: str, many: bool) -> list[str]:
    """Return the parts of a widget's first picture, each after those it needs."""
    return _with_needs(["widget", _layout(kind, many)])


def files_of(names: Iterable[str]) -> dict[str, str]:
    """Return the texts of parts by file name."""
    content = parts()
    chosen = [file for name in names for file in (f"{name}.js", *content["styles"].get(name, []))]
    return {file: content["files"][file] for file in chosen}


class CarriedParts:
    """Parts in the states of this process' widgets.

    The first widget carries what its first picture needs, so that it appears even if its cell continues with a
    training. Later ones add what they need beyond that. A page that lacks a part nevertheless, because it was reloaded,
    asks for it.
    """

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._lock = threading.Lock()

    def take(self, kind: str, many: bool) -> dict[str, str]:
        """Return the texts for the state of a new widget."""
        if hot_reload_enabled():
            return {}
        with self._lock:
            new = [name for name in first_parts(kind, many) if name not in self._names]
            is_first = not self._names
            self._names.update(new)
        return (_connector() if is_first else {}) | files_of(new)


carried = CarriedParts()


def answer(kind: str, many: bool, names: object = (), has: object = ()) -> dict[str, object]:
    """Return the message that sends parts to a page.

    Without names, these are the ones for the first picture.
    """
    wanted = [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
    present = {name for name in has if isinstance(name, str)} if isinstance(has, list) else set()
    if unknown := [name for name in wanted if name not in parts()["needs"]]:
        return {"kind": "parts", "error": f"{unknown[0][:100]!r} is not a part of this version of smdwidgets"}
    if not wanted:
        return {"kind": "parts", "files": _connector() | files_of(first_parts(kind, many))}
    return {"kind": "parts", "files": files_of(name for name in _with_needs(wanted) if name not in present)}


def everything(kind: str, many: bool) -> dict[str, object]:
    """Return the message with all parts that a widget can reach.

    It is for a page whose requests will not be answered.
    """
    return {"kind": "parts", "files": _connector() | files_of(_with_needs(_reachable(["widget", _layout(kind, many)])))}


def page_code(kind: str, many: bool) -> PageCode:
    """Return the code of an exported page: the parts that its widget can reach."""
    content = parts()
    names = _with_needs(_reachable(["exported-page", _layout(kind, many)]))
    define = f'globalThis[Symbol.for("smdwidgets.parts")].get("{content["version"]}")'
    script = "".join(
        [
            content["files"][_CONNECTOR],
            f"const define={define}.define;\n",
            *(content["files"][f"{name}.js"] for name in names),
            f'{define}.load("exported-page").then(page=>page.open());',
        ]
    )
    sheets = sorted(sheet for name in names for sheet in content["styles"].get(name, []))
    style = "".join(content["files"][sheet] for sheet in sheets)
    return PageCode(script, style)


def _layout(kind: str, many: bool) -> str:
    return f"widgets/kinds/{'many' if many else kind}"


def _connector() -> dict[str, str]:
    return {_CONNECTOR: parts()["files"][_CONNECTOR]}


def _with_needs(names: Iterable[str]) -> list[str]:
    """Return parts with those that they need, which come first."""
    ordered: dict[str, None] = {}

    def add(name: str) -> None:
        if name not in ordered:
            for need in parts()["needs"][name]:
                add(need)
            ordered[name] = None

    for name in names:
        add(name)
    return list(ordered)


def _reachable(names: list[str]) -> list[str]:
    """Return parts with those that they may load later, but other kinds of widgets."""
    content = parts()
    reached = dict.fromkeys(_with_needs(names))
    waiting = list(reached)
    while waiting:
        for later in content["later"][waiting.pop()]:
            if later in reached or later.startswith("widgets/kinds/"):
                continue
            new = [name for name in _with_needs([later]) if name not in reached]
            reached.update(dict.fromkeys(new))
            waiting += new
    return list(reached)
