"""HTML form of a diagnosis, with small plots that follow a light or dark theme."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from smdwidgets._text import markup, visible
from smdwidgets.finding import Curve, Evidence, Finding, about
from smdwidgets.finding.document import explanation

_WIDTH, _HEIGHT, _MARGIN = 240, 72, 4
#: Entries of a list.
_ITEMS = 100
#: Plots per finding.
_PLOTS = 3

#: Text has the colour of the page around it, so that it is readable on light and dark pages alike.
STYLE = """
.smd-diagnosis{--smd-line:var(--jp-brand-color1,#1e88e5);--smd-problem:var(--jp-error-color1,#d32f2f);
--smd-warning:var(--jp-warn-color1,#ef6c00);font-size:13px;max-width:60em}
.smd-diagnosis section{border-left:3px solid var(--smd-warning);margin:.8em 0;padding:0 0 0 .8em}
.smd-diagnosis section.problem{border-color:var(--smd-problem)}
.smd-diagnosis p{margin:.2em 0}
.smd-diagnosis small{opacity:.75}
.smd-diagnosis figure{display:inline-block;margin:.4em 1em .2em 0}
.smd-diagnosis svg{display:block;overflow:visible}
.smd-diagnosis polyline{fill:none;stroke:var(--smd-line);stroke-width:1.3;stroke-linejoin:round}
.smd-diagnosis rect{fill:var(--smd-warning);opacity:.18}
.smd-diagnosis section.problem rect{fill:var(--smd-problem)}
"""


def page(
    summary: str,
    findings: Sequence[tuple[Finding, str]],
    withdrawn: Sequence[Finding],
    notes: Sequence[Finding],
    series: Sequence[str],
    not_judged: str,
) -> str:
    """Return the parts of a diagnosis as HTML.

    Each finding comes with a sentence about what it explains.
    """
    parts = [f"<style>{STYLE}</style>", f"<p><b>{markup(summary)}</b></p>"]
    parts += [_section(one, consequences) for one, consequences in findings]
    parts += [f"<p>Withdrawn: {_code(one.title)}</p>" for one in withdrawn]
    parts += [_list("Notes", [_code(one.text) for one in notes])] if notes else []
    parts += [_list("Judged", [markup(one) for one in series])] if series else []
    parts += [f"<p><small>{markup(not_judged)}</small></p>"] if not_judged else []
    return f'<div class="smd-diagnosis">{"".join(parts)}</div>'


def _list(title: str, items: Sequence[str]) -> str:
    listed = "".join(f"<li>{one}</li>" for one in items[:_ITEMS])
    listed += f"<li>… and {len(items) - _ITEMS:,} more</li>" if len(items) > _ITEMS else ""
    return f"<details><summary>{title}: {len(items)}</summary><ul>{listed}</ul></details>"


def _section(finding: Finding, consequences: str) -> str:
    plots = "".join(_figure(one) for one in finding.evidence[:_PLOTS])
    fact, rest = finding.text[: len(finding.title)], f"{finding.text[len(finding.title) :]} {consequences}".rstrip()
    # The page works offline, so it has the explanation instead of a link to it.
    meaning = "".join(f"<p>{_code(part)}</p>" for part in explanation(finding.row))
    return (
        f'<section class="{finding.level}" data-id="{markup(finding.id, 300)}"{_step(finding)}><p><b>{_code(fact)}</b>{_code(rest)}</p>'
        f"<p>Try: {_code(finding.try_)}</p>{plots}<details><summary><small>{markup(about(finding))}</small></summary>"
        f"{meaning}</details></section>"
    )


def _step(finding: Finding) -> str:
    """Return the step at which the widget below opens a tensor of the finding."""
    return "" if finding.first is None else f' data-step="{finding.first}"'


def _code(text: str) -> str:
    """Escape a text and show names between backquotes as code.

    >>> _code("`a<b`")
    '<code>a&lt;b</code>'
    """
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return markup(text)
    return "".join(f"<code>{markup(part)}</code>" if at % 2 else markup(part) for at, part in enumerate(parts))


def _figure(evidence: Evidence) -> str:
    plot = _plot(evidence.curve) if evidence.curve is not None else ""
    return f"<figure>{plot}<figcaption><small>{_code(visible(evidence.text, 120))}</small></figcaption></figure>"


def _plot(curve: Curve) -> str:
    """Return a curve as SVG, with its interval marked."""
    points = [(step, value) for step, value in zip(curve.steps, curve.values, strict=True) if math.isfinite(value)]
    if len(points) < 2:
        return ""
    steps, values = [step for step, _ in points], [value for _, value in points]
    first, last = min(steps), max(steps, default=0)
    last = max(last, curve.end or last)
    x = _scale(first, last, _WIDTH)
    y = _scale(min(values), max(values), _HEIGHT)
    line = " ".join(f"{x(step):.1f},{_HEIGHT - y(value):.1f}" for step, value in points)
    return (
        f'<svg width="{_WIDTH}" height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{markup(curve.name, 120)}">{_interval(curve, first, last)}<polyline points="{line}"/></svg>'
    )


def _interval(curve: Curve, first: int, last: int) -> str:
    if curve.begin is None:
        return ""
    x = _scale(first, last, _WIDTH)
    begin, end = x(max(first, curve.begin)), x(min(last, last if curve.end is None else curve.end))
    return f'<rect x="{begin:.1f}" y="0" width="{max(2.0, end - begin):.1f}" height="{_HEIGHT}"/>'


def _scale(low: float, high: float, length: int) -> Callable[[float], float]:
    """Return a linear scale into a plot, with margins. Extreme ranges do not overflow."""
    middle = low / 2 + high / 2
    half = high / 2 - low / 2
    inner = length - 2 * _MARGIN
    return lambda value: length / 2 if half == 0 else length / 2 + inner / 2 * (value - middle) / half
