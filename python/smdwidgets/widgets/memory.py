"""A cell that is run again gets its view back, and the widget that it showed before goes.

Without this every run of a cell would leave a widget behind, and a person's choices would be lost with each.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any

from smdwidgets.widgets.traits import STATE

_lock = threading.Lock()
_shown: dict[tuple[str, ...], Place] = {}


class Place:
    """Where a widget stands: what one cell shows of one kind over the same runs."""

    def __init__(self, key: tuple[str, ...] | None = None, execution: int = 0) -> None:
        self.key = key
        self.execution = execution
        #: What a person chose here.
        self.state: dict[str, Any] = {}
        self._widget: weakref.ref[Any] | None = None

    def now_shown_by(self, widget: Any) -> None:
        """The cell's widget from now on; its choices are kept as they are made."""
        if self.key is None:
            return
        self._widget = weakref.ref(widget)
        widget.observe(self._remember, names=list(STATE))
        with _lock:
            _shown[self.key] = self

    def _remember(self, change: Any) -> None:
        self.state[change["name"]] = change["new"]

    def leave(self) -> None:
        """Take the widget away that stands here."""
        widget = self._widget() if self._widget is not None else None
        if widget is not None:
            widget.close()


def of_this_cell(kind: str, paths: list[str]) -> Place:
    """The place of a new widget, with what was chosen there before. Outside of notebooks it is nowhere."""
    cell = _cell()
    if cell is None:
        return Place()
    execution, cell_id = cell
    number = 0
    with _lock:
        # Two widgets of one kind over the same runs in one cell are told apart by their order.
        while (
            before := _shown.get((cell_id, kind, str(number), *paths))
        ) is not None and before.execution == execution:
            number += 1
    place = Place((cell_id, kind, str(number), *paths), execution)
    if before is not None:
        place.state = dict(before.state)
        before.leave()
    return place


def _cell() -> tuple[int, str] | None:
    """Execution count and id of the running cell."""
    try:
        from IPython import get_ipython
    except ImportError:
        return None
    shell = get_ipython()
    parent: dict[str, Any] = getattr(shell, "get_parent", dict)() if shell is not None else {}
    cell_id = (parent or {}).get("metadata", {}).get("cellId")
    return (int(shell.execution_count), str(cell_id)) if cell_id else None
