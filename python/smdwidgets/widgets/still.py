"""The still of a widget, which a notebook without the kernel shows.

JupyterLab cannot show a widget whose kernel is gone, and takes no other form of the same output. A widget in a notebook
therefore has two outputs. The still of an explorer is the sentence about the run, its map and its timeline. Style rules
in the still hide it beside a live widget, and hide the error beside a still.
"""

from __future__ import annotations

import base64
import logging
import threading
import uuid
import weakref
from collections.abc import Mapping
from typing import Any

from IPython.display import publish_display_data

from smdwidgets._text import markup
from smdwidgets.widgets.traits import STATE
from smdwidgets.widgets.view import RunView

logger = logging.getLogger("smdwidgets.widgets")

REST = 2.0
"""Seconds without a change of the view after which the still is updated."""
LONGEST = 60.0
"""Most seconds between updates of a run that is being read or recorded."""
MOST = 120_000
"""Largest picture in bytes."""
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
        self._pause = REST
        self._published: dict[str, str] = {}
        self._lock = threading.Lock()
        widget.observe(self._changed, names=list(STATE))

    def display(self) -> None:
        """Add a still as an output of the running cell."""
        display_id = uuid.uuid4().hex
        with self._lock:
            self._ids = [*self._ids, display_id][-_DISPLAYS:]
        self._published = self._data()
        publish(self._published, display_id)
        if not self._is_final():
            self._schedule(REST)

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
        from smdwidgets.widgets import static_repr

        data: dict[str, str] = static_repr.bundle(widget)
        sentence, run = static_repr.run_svg(widget)
        kind, picture = "png", data.get("image/png")
        if run and len(run) <= MOST:
            kind, picture = "svg+xml", base64.b64encode(run.encode("utf-8")).decode("ascii")
        image = f'<img alt="" src="data:image/{kind};base64,{picture}">' if picture else ""
        lines = [*([sentence.replace("`", "")] if sentence else []), *data["text/plain"].splitlines()[:40]]
        text = [f"<p>{markup(line, 1000)}</p>" for line in lines]
        first = "".join(text[:1]) if sentence else ""
        rest = "".join(text[1:] if sentence else text)
        return {**data, "text/html": f'<div class="smdw-still"><style>{STYLE}</style>{first}{image}{rest}</div>'}

    def _is_final(self) -> bool:
        """Whether the run has ended and was read, so that only the view changes."""
        widget = self._widget()
        if widget is None or widget.live_survey is None:
            return True
        return widget.live_survey.is_current and all(trial.loaded_all_steps for _, trial in widget.trials.opened())

    def _changed(self, change: Any) -> None:
        self._schedule(REST)

    def _schedule(self, pause: float) -> None:
        with self._lock:
            if not self._ids:
                return
            if self._timer is not None:
                self._timer.cancel()
            self._pause = pause
            self._timer = threading.Timer(pause, self._update)
            self._timer.daemon = True
            self._timer.start()

    def _update(self) -> None:
        try:
            is_final = self._is_final()  # before drawing, so that the last picture has everything
            data = self._data()
            with self._lock:
                ids = self._ids if data != self._published else []
                self._published = data
            for display_id in ids:
                publish(data, display_id, update=True)
            if data and not is_final:
                self._schedule(min(2 * self._pause, LONGEST))
        except Exception:  # a picture of a closed or removed run; the earlier one stays
            logger.debug("cannot update the still of a widget", exc_info=True)


def publish(data: Mapping[str, Any], display_id: str = "", *, update: bool = False) -> None:
    """Add an output to the running cell, or update the outputs with this id."""
    transient = {"display_id": display_id} if display_id else {}
    publish_display_data(data, {}, transient=transient, update=update)  # type: ignore[no-untyped-call]
