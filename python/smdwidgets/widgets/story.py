"""Findings, bookmarks and the current view of a widget as captioned pictures."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, overload

from smdwidgets._atomic import replacing
from smdwidgets._text import did_you_mean, listed, markup, natural, shown, visible
from smdwidgets.exceptions import SMDebugTypeError, SMDebugValueError
from smdwidgets.pictures.signal_view import can_show
from smdwidgets.widgets import run_picture, state_string
from smdwidgets.widgets.live_diagnosis import lasting_of
from smdwidgets.widgets.run_picture import Marks
from smdwidgets.widgets.static_repr import run_svg
from smdwidgets.widgets.traits import STATE
from smdwidgets.widgets.view import RunView

CURRENT = "current view"
_ROWS = 12
"""Rows of a picture of a finding."""
_STYLE = (
    "body{margin:24px;max-width:980px;font:15px/1.45 system-ui,sans-serif;color:#1c2024;background:#fff}"
    "figure{margin:0 0 32px}img{display:block;max-width:100%;border:1px solid #d5d9de;border-radius:4px}"
    "figcaption h2{font-size:17px;margin:0 0 4px}figcaption p{margin:4px 0 8px}"
    "pre{font-size:12px;background:#f1f2f4;padding:8px;border-radius:4px;overflow-x:auto}"
    "@media(prefers-color-scheme:dark){body{color:#e6e8eb;background:#14171b}pre{background:#23272d}img{border-color:#3a4048}}"
)


@dataclass(frozen=True)
class Part:
    """One captioned picture.

    Attributes:
        name: what was asked for, such as "finding 1".
        title: the fact in one sentence; names are between backticks.
        text: what else there is to say.
        python: the line of Python that opens this view.
        svg: the picture.
    """

    name: str
    title: str
    text: str
    python: str
    svg: str


@dataclass(frozen=True)
class _Place:
    """What a part shows."""

    title: str
    text: str
    tensors: tuple[str, ...]
    step: int | None
    lasting: Mapping[str, tuple[str, int, int | None]] = field(default_factory=dict)


class Story:
    """Captioned pictures of a run; see ``widget.story``.

    >>> story = widget.story(["finding 1", "current view"])                # doctest: +SKIP
    >>> story.to_markdown("story.md")                                      # doctest: +SKIP
    """

    def __init__(self, run: str, parts: Sequence[Part]) -> None:
        self.run = run
        self.parts = tuple(parts)

    def __repr__(self) -> str:
        lines = [f"Story of run {shown(self.run)}: {len(self.parts)} {'part' if len(self.parts) == 1 else 'parts'}"]
        return "\n".join([*lines, *(f"{part.name}: {visible(part.title)}" for part in self.parts)])

    def _repr_html_(self) -> str:
        return "".join(map(_figure, self.parts))

    @overload
    def to_html(self, path: None = None) -> str: ...

    @overload
    def to_html(self, path: str | Path) -> Path: ...

    def to_html(self, path: str | Path | None = None) -> str | Path:
        """Return the story as one HTML page, or write it to a path and return the path.

        The page contains the pictures, and makes no network requests.
        """
        policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
        page = (
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>{markup(self.run, 200)}: story</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
            f"{self._repr_html_()}\n</body>\n</html>\n"
        )
        return page if path is None else _write(Path(path), page)

    @overload
    def to_markdown(self, path: None = None) -> str: ...

    @overload
    def to_markdown(self, path: str | Path) -> Path: ...

    def to_markdown(self, path: str | Path | None = None) -> str | Path:
        """Return the story as Markdown, or write it to a path and return the path.

        With a path, each picture is an SVG file in the same folder, which GitHub and GitLab show. Without one, the
        pictures are in the text as data URLs, which notebooks show, but GitHub does not.
        """
        texts = []
        for number, part in enumerate(self.parts, 1):
            if path is None:
                address = f"data:image/svg+xml;base64,{_base64(part.svg)}"
            else:
                picture = Path(path).with_name(f"{Path(path).stem}-{number}.svg")
                _write(picture, part.svg)
                address = picture.name.replace(" ", "%20")
            caption = [f"### {part.name.capitalize()}: {_markdown(part.title)}", _markdown(part.text)]
            lines = [*caption, f"![{_markdown(part.name)}]({address})", f"```python\n{part.python}\n```"]
            texts.append("\n\n".join(line for line in lines if line))
        text = "\n\n".join(texts) + "\n"
        return text if path is None else _write(Path(path), text)


def make_story(widget: RunView, names: Iterable[str]) -> Story:
    """Return the story of parts by name: findings, bookmarks, and the current view."""
    if isinstance(names, str):
        raise SMDebugTypeError(f"story takes a list of names, such as [{names!r}]")
    if widget.live_survey is None:
        raise SMDebugTypeError("a story needs the map of a run; use smdwidgets.explore")
    places = _places(widget)
    parts = []
    for name in names:
        if name not in places:
            known = listed(list(places), 8)
            raise SMDebugValueError(
                f"unknown part {shown(name)}; choose from {known}.{did_you_mean(str(name), places)}"
            )
        parts.append(_part(widget, name, places[name]))
    return Story(widget.trial.name, parts)


def _places(widget: RunView) -> dict[str, _Place]:
    """Return what can be shown, by name."""
    assert widget.live_survey is not None
    run = widget.trials.index(widget.trial)
    places: dict[str, _Place] = {}
    diagnosis = widget.live_diagnosis.completed(run) if widget.live_diagnosis is not None else None
    if diagnosis is not None:
        for name, findings in (("finding", diagnosis.findings), ("note", diagnosis.notes)):
            for number, finding in enumerate(findings, 1):
                text = f"{finding.text} {diagnosis.consequences(finding)}".strip()
                places[f"{name} {number}"] = _Place(
                    finding.title, text, finding.names, finding.first, lasting_of([finding])
                )
    for number, mark in enumerate(widget.bookmarks, 1):
        tensor, step = str(mark.get("tensor", "")), int(mark.get("step", 0))
        title = f"{f'`{tensor}` at step' if tensor else 'Step'} {step:,}"
        places[f"bookmark {number}"] = _Place(title, str(mark.get("note", "")), (tensor,) if tensor else (), step)
    places[CURRENT] = _Place("", "", (), None)
    return places


def _part(widget: RunView, name: str, place: _Place) -> Part:
    assert widget.live_survey is not None
    state: dict[str, Any] = {trait: getattr(widget, trait) for trait in STATE}
    if name == CURRENT:
        sentence, picture = run_svg(widget)
        title = sentence or f"Run {widget.trial.name}"
    else:
        title = place.title
        picture = _picture(widget, place)
        tensor = next((one for one in place.tensors if can_show(widget.trial, one)), "")
        state |= {"tensor": tensor, "inspect": bool(tensor), "range": [], "bookmarks": []}
        state |= {"step": place.step} if place.step is not None else {}
    text = state_string.encode(state, widget.run_names())
    if widget.live_table is not None:
        python = f"smdwidgets.explore(smdwidgets.runs({widget.live_table.root!r})"
    else:
        paths = [str(trial.path) for trial in widget.trials]
        python = f"smdwidgets.explore({(paths[0] if len(paths) == 1 else paths)!r}"
    return Part(name, title, place.text if place.text != title else "", f'{python}, state="{text}")', picture)


def _picture(widget: RunView, place: _Place) -> str:
    assert widget.live_survey is not None
    survey, rules = widget.live_survey.of(widget.trials.index(widget.trial))
    known = set(survey.names())
    tensors = [name for name in place.tensors if name in known][:_ROWS]
    loss = next((name for name in place.tensors if name in widget.trial.tensor_names(collection="losses")), "")
    if not loss:
        loss = min(widget.trial.tensor_names(collection="losses"), key=natural, default="")
    return (
        run_picture.draw(
            survey,
            title=visible(widget.trial.name, 80),
            loss=loss,
            rules=rules,
            marks=Marks(place.step, tensors[0] if tensors else "", tuple(tensors), lasting=place.lasting),
            tensors=tensors or None,
            stat=widget.map_stat,
            worker=widget.worker,
        )
        or ""
    )


def _figure(part: Part) -> str:
    title = re.sub(r"`([^`]*)`", r"<code>\1</code>", markup(part.title, 2000))
    text = re.sub(r"`([^`]*)`", r"<code>\1</code>", markup(part.text, 4000))
    return (
        f"<figure><figcaption><h2>{markup(part.name.capitalize())}: {title}</h2>{f'<p>{text}</p>' if text else ''}</figcaption>"
        f'<img alt="{markup(part.title, 500)}" src="data:image/svg+xml;base64,{_base64(part.svg)}">'
        f"<pre>{markup(part.python)}</pre></figure>"
    )


def _markdown(text: str) -> str:
    """Escape text outside of backticks, so that a name is neither markup nor HTML."""
    pieces = visible(text).split("`")
    for at in range(0, len(pieces), 2):
        pieces[at] = re.sub(r"([\\*_\[\]<>#|~])", r"\\\1", pieces[at])
    return "`".join(pieces)


def _base64(text: str) -> str:
    return base64.b64encode(text.encode("utf-8")).decode("ascii")


def _write(path: Path, text: str) -> Path:
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")
    return path
