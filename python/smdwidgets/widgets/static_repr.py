"""Static image and text of a widget, for viewers without a kernel."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smdwidgets import _core
from smdwidgets._text import byte_size, shown, visible
from smdwidgets.exceptions import SMDebugError
from smdwidgets.pictures.frames import HistogramWanted, Wanted, make_frame
from smdwidgets.pictures.plane import ImageWanted
from smdwidgets.pictures.signal_view import view_of
from smdwidgets.run_table import RunTable
from smdwidgets.survey.sentence import text as sentence
from smdwidgets.widgets import run_picture
from smdwidgets.widgets.first_view import lane_of
from smdwidgets.widgets.live_diagnosis import lasting_of
from smdwidgets.widgets.protocol import SCHEMA
from smdwidgets.widgets.run_picture import Marks
from smdwidgets.widgets.view import RunView

_INK = np.array([31, 119, 180], np.uint8)
_PAPER = np.array([255, 255, 255], np.uint8)
_LINE = np.array([200, 200, 200], np.uint8)
_HEIGHT, _WIDTH = 200, 320


def bundle(widget: RunView) -> dict[str, Any]:
    """Return the MIME bundle that a notebook file stores in addition to the widget."""
    data: dict[str, Any] = {"text/plain": repr(widget)}
    try:
        picture = draw(widget)
    except (SMDebugError, ValueError):
        picture = None
    if picture is not None:
        data["image/png"] = base64.b64encode(_core.encode_png(picture)).decode("ascii")
    return data


def run_svg(widget: RunView) -> tuple[str, str]:
    """Return the sentence about the displayed run, and its map and timeline as SVG.

    Both are empty before the first statistics were read, and for a widget without a map.
    """
    if widget.live_survey is None or widget.table:
        return "", ""
    run = widget.trials.index(widget.trial)
    survey, rules = widget.live_survey.of(run)
    if not len(survey.table):
        return "", ""
    diagnosis = widget.diagnosis
    listed = diagnosis.listed if diagnosis is not None else survey.findings(rules)
    loss = next((str(line["tensor"]) for line in lane_of(widget.trial, run, widget.lane)), "")
    blamed = [name for finding in listed[:8] for name in finding.names[:8]]
    steps = widget.trial.steps()
    step = widget.step if widget.step >= 0 else steps[-1] if steps else None
    picture = run_picture.draw(
        survey,
        title=f"{visible(widget.trial.name, 80)} · {len(steps):,} steps · {len(widget.trial.tensor_names()):,} tensors",
        loss=loss,
        rules=rules,
        marks=Marks(
            step, widget.tensor, tuple(dict.fromkeys(blamed)), tuple(_steps_of(widget.bookmarks)), lasting_of(listed)
        ),
        span=(widget.range[0], widget.range[1]) if len(widget.range) == 2 else None,
        stat=widget.map_stat,
        worker=widget.worker,
    )
    if not picture:
        return "", ""
    if diagnosis is not None and diagnosis.findings:
        return f"{diagnosis.findings[0].title}.", picture
    return sentence(survey.sentence([finding for finding in listed if finding.source == "survey"])), picture


def _steps_of(bookmarks: list[dict[str, Any]]) -> list[int]:
    return [mark["step"] for mark in bookmarks if isinstance(mark.get("step"), int)]


def text(widget: RunView) -> str:
    """Describe the displayed run, tensor and rules in a few lines."""
    if widget.live_table is not None and widget.table:
        return RunTable(widget.live_table.root, widget.live_table.read_runs()).to_text(10)
    trial = widget.trial
    steps = trial.steps()
    lines = [
        f"{type(widget).__name__}: run {shown(trial.name)}, {len(steps):,} steps, {len(trial.tensor_names()):,} tensors"
    ]
    if widget.tensor:
        lines.append(_about_tensor(widget))
    for runner in widget.rule_controller.runners.values():
        lines += [f"rule {evaluation.name}: {evaluation.label}" for evaluation in runner]
    return "\n".join(lines)


def _about_tensor(widget: RunView) -> str:
    try:
        step = widget.step_shown()
        value = widget.value()
    except SMDebugError as error:
        return f"{shown(widget.tensor)}: {error}"
    about = f"{shown(widget.tensor)} at step {step}: {value.dtype.name} {value.shape}, {byte_size(value.nbytes)}"
    if value.dtype.kind in "USO" or not value.size:
        return about
    frame = make_frame(view_of(widget.trial, widget.tensor, widget.worker), step, Wanted(histogram=None, image=None))
    low, high, mean, _, std = frame.stats[:5]
    nan, infinite, zeros = frame.counts[1], frame.counts[2] + frame.counts[3], frame.counts[4]
    return f"{about}; min {low:.6g}, max {high:.6g}, mean {mean:.6g}, std {std:.6g}; NaN {nan:.0f}, inf {infinite:.0f}, zero {zeros:.0f}"


def draw(widget: RunView) -> NDArray[np.uint8] | None:
    """Draw the histogram and heat map of the displayed tensor side by side as pixels."""
    if not widget.tensor or widget.table:
        return None
    view = view_of(widget.trial, widget.tensor, widget.worker)
    frame = make_frame(
        view, widget.step_shown(), Wanted(histogram=HistogramWanted(bins=80, edges="own"), image=ImageWanted()), None
    )
    parts = []
    if frame.hist is not None:
        parts.append(_bars(frame.hist))
    if frame.image is not None:
        codes = frame.image.codes
        parts.append(_map(codes) if codes.ndim == 2 else _enlarged(codes[..., :3]))
    if not parts:
        return None
    gap = np.full((_HEIGHT, 16, 3), 255, np.uint8)
    return np.concatenate([part for pair in ((part, gap) for part in parts) for part in pair][:-1], axis=1)


def _bars(counts: NDArray[np.uint32]) -> NDArray[np.uint8]:
    picture = np.broadcast_to(_PAPER, (_HEIGHT, _WIDTH, 3)).copy()
    width = _WIDTH // len(counts)
    top = max(1, int(counts.max()))
    for i, count in enumerate(counts.tolist()):
        height = round(count / top * (_HEIGHT - 2))
        picture[_HEIGHT - 1 - height : _HEIGHT - 1, i * width : (i + 1) * width] = _INK
    picture[-1] = _LINE
    return picture


def _enlarged(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    rows = np.arange(_HEIGHT) * picture.shape[0] // _HEIGHT
    columns = np.arange(_WIDTH) * picture.shape[1] // _WIDTH
    return picture[np.ix_(rows, columns)]


def _map(codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Colour palette codes: 0 to 252 from low to high, then -inf, +inf, NaN."""
    not_finite = SCHEMA["colours"]["not_finite"]
    table = run_picture.colour_map("viridis")[np.minimum(np.arange(256) * 255 // 252, 255)]
    table[253:] = [list(bytes.fromhex(not_finite[kind])) for kind in ("negInf", "posInf", "nan")]
    return table[_enlarged(codes)]
