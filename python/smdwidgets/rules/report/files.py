"""Write the report as a static HTML page and as a notebook."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from smdwidgets._atomic import replace_file
from smdwidgets._text import markup, visible
from smdwidgets.rules.report.charts import STYLE
from smdwidgets.rules.report.section import Section

__all__ = ["notebook", "page", "write"]

_PAGE_STYLE = (
    STYLE
    + """
:root{color-scheme:light dark}
body{max-width:760px;margin:2rem auto;padding:0 1rem;background:var(--page);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
h1{font-size:1.5rem}h2{font-size:1.1rem;margin-top:2.2rem;border-top:1px solid var(--line);padding-top:1.2rem}
p{color:var(--soft);margin:.4rem 0}nav a{margin-right:1rem;color:var(--c0)}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}td,th{padding:.2rem .8rem;text-align:right;border-bottom:1px solid var(--line)}
td:first-child,th:first-child{text-align:left}
"""
)


def page(title: str, introduction: Sequence[str], sections: Sequence[Section]) -> str:
    """Return the report as one HTML page.

    The content security policy allows only the page's style sheet.
    """
    digest = base64.b64encode(hashlib.sha256(_PAGE_STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    links = "".join(f'<a href="#s{at}">{markup(each.title)}</a>' for at, each in enumerate(sections))
    body = "".join(
        f'<section id="s{at}"><h2>{markup(each.title)}</h2>{each.html}' + each.remarks_html() + "</section>"
        for at, each in enumerate(sections)
    )
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{markup(title)}</title><style>{_PAGE_STYLE}</style></head>"
        f'<body class="smdw-report"><h1>{markup(title)}</h1>'
        + "".join(f"<p>{markup(each)}</p>" for each in introduction)
        + f"<nav>{links}</nav>{body}</body></html>\n"
    )


def notebook(
    run: str, plot_step: int | None, introduction: Sequence[str], sections: Sequence[tuple[str, Section]]
) -> str:
    """Return a notebook that creates the report from the run, with stored outputs."""
    step = "" if plot_step is None else f", plot_step={plot_step}"
    cells: list[dict[str, Any]] = [
        _markdown("# XGBoost training report\n\n" + "\n".join(map(_plain, introduction))),
        _code(
            "from smdwidgets.rules.report import XgboostReport\nfrom smdwidgets.trials import create_trial\n\n"
            f"report = XgboostReport(create_trial({run!r}){step})",
            1,
        ),
    ]
    for at, (name, section) in enumerate(sections, start=2):
        cells.append(_markdown(f"## {section.title}"))
        cells.append(
            _code(f"report.{name}()", at, section._repr_html_(), f"{section.title}: " + " ".join(section.remarks))
        )
    for at, cell in enumerate(cells):
        cell["id"] = f"cell-{at}"
    return json.dumps(
        {
            "cells": cells,
            "metadata": {
                "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
                "language_info": {"name": "python"},
            },
            "nbformat": 4,
            "nbformat_minor": 5,
        },
        indent=1,
    )


def _plain(text: str) -> str:
    """Escape text for Markdown, so that names cannot become links, images or formulas."""
    return re.sub(r"([\\`*_{}\[\]()<>#+!|$~&])", r"\\\1", visible(text))


def _markdown(text: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "metadata": {}, "source": text}


def _code(source: str, number: int, html: str = "", text: str = "") -> dict[str, Any]:
    outputs = []
    if html or text:
        outputs.append(
            {
                "data": {"text/html": html, "text/plain": text},
                "execution_count": number,
                "metadata": {},
                "output_type": "execute_result",
            }
        )
    return {"cell_type": "code", "execution_count": number, "metadata": {}, "outputs": outputs, "source": source}


def write(path: str | os.PathLike[str], text: str) -> Path:
    """Write a file atomically."""
    target = Path(path)
    replace_file(target, text)
    return target
