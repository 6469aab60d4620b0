"""Write a widget as a self-contained HTML page.

The page needs no kernel and no network.
"""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import NamedTuple

from smdwidgets._atomic import replacing
from smdwidgets._text import markup
from smdwidgets.diagnosis import Diagnosis
from smdwidgets.diagnosis.page import STYLE
from smdwidgets.widgets import bundle
from smdwidgets.widgets.page_content import page_content
from smdwidgets.widgets.view import RunView

_TOO_OLD = (
    "This page requires JavaScript that this browser does not support. Open it in Chrome or Edge 111, Firefox 115, "
    "Safari 16.4, or newer."
)


class WrittenPage(NamedTuple):
    """Size of a page in bytes, and the tensors whose pictures it contains."""

    size: int
    opened: list[str]


def write_page(
    widget: RunView,
    path: str,
    tensors: list[str] | None,
    limit: int,
    diagnosis: Diagnosis | None = None,
    heading: str = "",
) -> WrittenPage:
    """Write the page of a widget atomically."""
    page, opened = make_page(widget, tensors, limit, diagnosis, heading)
    text = page.encode("utf-8")
    with replacing(Path(path)) as partial:
        partial.write_bytes(text)
    return WrittenPage(len(text), opened)


def make_page(
    widget: RunView,
    tensors: list[str] | None,
    limit: int,
    diagnosis: Diagnosis | None = None,
    heading: str = "",
) -> tuple[str, list[str]]:
    """Return the page of a widget as HTML, and the tensors with pictures.

    The heading, which is HTML, and the diagnosis of the run come first if they are given.
    """
    script, style = bundle.page_code(widget.KIND, widget.live_table is not None)
    if diagnosis is not None and widget.live_diagnosis is not None:
        # The widget shows the same list.
        widget.rule_controller.evaluate_saved_steps()
        widget.live_diagnosis.adopt(widget.run, diagnosis)
        diagnosis = widget.live_diagnosis.completed(widget.run)
    above = heading + ("" if diagnosis is None else f"{diagnosis._repr_html_()}\n")
    room = limit - len(script.encode()) - len(style.encode()) - len(above.encode()) - 4096
    content = page_content(widget, tensors, room * 3 // 4, diagnosis)
    # A browser that does not run the script shows this text after 3 s; otherwise the script replaces it before that.
    page_style = (
        "body{margin:16px;font-family:system-ui,sans-serif}"
        ".smdw-page>.late{opacity:0;animation:late 0s 3s forwards}@keyframes late{to{opacity:1}}"
    )
    policy = (
        "default-src 'none'; "
        f"script-src 'sha256-{_digest(script)}'; "
        f"style-src 'sha256-{_digest(style)}' 'sha256-{_digest(page_style)}' 'sha256-{_digest(STYLE)}'; "
        "img-src data: blob:; worker-src blob:; base-uri 'none'; form-action 'none'"
    )
    title = markup(
        f"{widget.live_table.root if widget.live_table and widget.table else widget.trial.name}: smdwidgets", 200
    )
    blocks = "\n".join(
        f'<script type="application/octet-stream;base64" class="smdw-packet">{base64.b64encode(packet).decode("ascii")}</script>'
        for packet in content.packets
    )
    text = (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{title}</title>\n'
        f"<style>{style}</style>\n<style>{page_style}</style>\n</head>\n<body>\n{above}"
        f'<div class="smdw-page"><p class="late">{_TOO_OLD}</p></div>\n{blocks}\n<script type="module">{script}</script>\n</body>\n</html>\n'
    )
    return text, content.opened


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
