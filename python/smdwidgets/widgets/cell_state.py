"""Restore the view state when a notebook cell is executed again.

The cell's previous widget is closed. Without this, every execution of a cell would leak a widget and reset the view.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any

from smdwidgets.widgets.traits import STATE

_lock = threading.Lock()
_slots: dict[tuple[str, ...], CellSlot] = {}


class CellSlot:
    """A slot for one widget, identified by cell, widget kind and runs."""

    def __init__(self, key: tuple[str, ...] | None = None, execution: int = 0) -> None:
        self.key = key
        self.execution = execution
        #: State changes by the user, carried over when the cell is executed again.
        self.state: dict[str, Any] = {}
        self._widget: weakref.ref[Any] | None = None

    def attach(self, widget: Any) -> None:
        """Make this widget the current one of the slot, and record its state changes."""
        if self.key is None:
            return
        self._widget = weakref.ref(widget)
        widget.observe(self._record, names=list(STATE))
        with _lock:
            _slots[self.key] = self

    def _record(self, change: Any) -> None:
        self.state[change["name"]] = change["new"]

    def close_widget(self) -> None:
        """Close the slot's widget."""
        widget = self._widget() if self._widget is not None else None
        if widget is not None:
            widget.close()


def slot_of_this_cell(kind: str, paths: list[str]) -> CellSlot:
    """Return the slot for a new widget, with the previous state.

    Outside of notebooks, the slot is not registered.
    """
    cell = _cell()
    if cell is None:
        return CellSlot()
    execution, cell_id = cell
    number = 0
    with _lock:
        # Several widgets of the same kind and runs in a cell are distinguished by their order.
        while (
            before := _slots.get((cell_id, kind, str(number), *paths))
        ) is not None and before.execution == execution:
            number += 1
    slot = CellSlot((cell_id, kind, str(number), *paths), execution)
    if before is not None:
        slot.state = dict(before.state)
        before.close_widget()
    return slot


def _cell() -> tuple[int, str] | None:
    """Return the running cell's execution count and id; None outside of notebooks."""
    try:
        from IPython import get_ipython
    except ImportError:
        return None
    shell = get_ipython()
    parent: dict[str, Any] = getattr(shell, "get_parent", dict)() if shell is not None else {}
    cell_id = (parent or {}).get("metadata", {}).get("cellId")
    return (int(shell.execution_count), str(cell_id)) if cell_id else None
