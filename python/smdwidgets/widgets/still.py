"""The still of a widget, which a notebook without the kernel shows.

JupyterLab cannot show a widget whose kernel is gone, and takes no other form of the same output. A widget in a notebook
therefore has two outputs. Style rules in the still hide it beside a live widget, and hide the error beside a still.
"""

from __future__ import annotations

import logging
import threading
import uuid
import weakref
from collections.abc import Mapping
from typing import Any

from IPython.display import publish_display_data

from smdwidgets._text import markup
from smdwidgets.widgets import static_repr
from smdwidgets.widgets.traits import STATE
from smdwidgets.widgets.view import RunView

logger = logging.getLogger("smdwidgets.widgets")

REST = 2.0
"""Seconds without a change of the view after which the still is updated."""
_DISPLAYS = 8
"""Number of latest displays of a widget whose stills are updated."""

_OUTPUT = ".jp-OutputArea-child"
# The still needs a moment in which a live widget appears. Where these classes are unknown, the still stays hidden.
STYLE = (
    f".smdw-still{{display:none}}{_OUTPUT}:not(:has(.smdw))+{_OUTPUT} .smdw-still{{display:block;overflow:hidden;"
    "animation:smdw-still 0s 1s both}@keyframes smdw-still{from{max-height:0}to{max-height:1000px}}"
    f"{_OUTPUT}:has(+{_OUTPUT} .smdw-still):not(:has(.smdw)){{display:none}}"
    ".smdw-still img{display:block;max-width:100%;background:#fff;border-radius:4px}"
    ".smdw-still p{margin:4px 0}"
)


class Still:
    """Shows and updates the stills of one widget. Thread-safe."""

    def __init__(self, widget: RunView) -> None:
        self._widget = weakref.ref(widget)
        self._ids: list[str] = []
        self._timer: threading.Timer | None = None
        self._lock = threading.Lock()
        widget.observe(self._changed, names=list(STATE))

    def display(self) -> None:
        """Add a still as an output of the running cell."""
        display_id = uuid.uuid4().hex
        with self._lock:
            self._ids = [*self._ids, display_id][-_DISPLAYS:]
        publish(self._data(), display_id)

    def close(self) -> None:
        """Stop updating."""
        with self._lock:
            self._ids = []
            if self._timer is not None:
                self._timer.cancel()

    def _data(self) -> dict[str, str]:
        widget = self._widget()
        if widget is None:
            return {}
        data: dict[str, str] = static_repr.bundle(widget)
        picture = data.get("image/png")
        image = f'<img alt="" src="data:image/png;base64,{picture}">' if picture else ""
        text = "".join(f"<p>{markup(line, 1000)}</p>" for line in data["text/plain"].splitlines()[:40])
        return {**data, "text/html": f'<div class="smdw-still"><style>{STYLE}</style>{image}{text}</div>'}

    def _changed(self, change: Any) -> None:
        with self._lock:
            if not self._ids:
                return
            if self._timer is not None:
                self._timer.cancel()
            self._timer = threading.Timer(REST, self._update)
            self._timer.daemon = True
            self._timer.start()

    def _update(self) -> None:
        try:
            data = self._data()
            with self._lock:
                ids = self._ids
            for display_id in ids:
                publish(data, display_id, update=True)
        except Exception:  # a picture of a closed or removed run; the earlier one stays
            logger.debug("cannot update the still of a widget", exc_info=True)


def publish(data: Mapping[str, Any], display_id: str = "", *, update: bool = False) -> None:
    """Add an output to the running cell, or update the outputs with this id."""
    transient = {"display_id": display_id} if display_id else {}
    publish_display_data(data, {}, transient=transient, update=update)  # type: ignore[no-untyped-call]
