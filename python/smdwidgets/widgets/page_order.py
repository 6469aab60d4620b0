"""Order the tensors of a page by how much a reader needs their pictures."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from smdwidgets._text import natural
from smdwidgets.diagnosis import Diagnosis
from smdwidgets.exceptions import SMDebugError
from smdwidgets.naming.tensors import SCALAR_COLLECTIONS
from smdwidgets.pictures.signal_view import can_show, names_shown
from smdwidgets.survey import Survey
from smdwidgets.survey.bins import INFINITE, NAN, level_of
from smdwidgets.trials import Trial
from smdwidgets.widgets.view import RunView

_BLAMED, _OF_ONE = 8, 4
"""Findings of a survey whose tensors come first, and tensors of each: the first affected are the cause."""


def in_order(widget: RunView, diagnosis: Diagnosis | None) -> tuple[list[str], list[str]]:
    """Return the tensors that a page has pictures of, and others in order.

    The first are those that findings name, those in view and compared, and bookmarks. The others are those that the
    query finds, the rest of the findings' tensors, scalars, and all others by suspicion.
    """
    findings = (*diagnosis.listed, *diagnosis.explained) if diagnosis is not None else ()
    named = [name for finding in findings if finding.source != "survey" for name in finding.names]
    named += widget.rule_controller.blamed()
    named += [name for finding in findings[:_BLAMED] for name in finding.names[:_OF_ONE]]
    named += [widget.tensor, str(widget.compare.get("tensor", ""))]
    named += [str(mark.get("tensor", "")) for mark in widget.bookmarks]
    first = _existing(widget, named)
    others = [name for finding in findings for name in finding.names]
    for _, trial in widget.trials.opened():
        for collection in SCALAR_COLLECTIONS:
            others += _members(trial, collection)
    others += _by_suspicion(widget)
    for _, trial in widget.trials.opened():
        for collection in ("weights", "gradients"):
            others += _members(trial, collection)
        others += sorted(names_shown(trial), key=natural)
    others = [*_queried(widget), *others]
    return first, [name for name in _existing(widget, others) if name not in set(first)]


def telling_steps(widget: RunView, diagnosis: Diagnosis | None) -> frozenset[int]:
    """Return the steps that links lead to, which are never omitted."""
    onsets = [finding.first for finding in (*diagnosis.listed, *diagnosis.explained)] if diagnosis is not None else []
    marked = [mark.get("step") for mark in widget.bookmarks]
    found = {*onsets, *widget.rule_controller.first_firings(), widget.step, widget.compare.get("step"), *marked}
    return frozenset(step for step in found if isinstance(step, int))


def _existing(widget: RunView, names: Iterable[str]) -> list[str]:
    return [
        name
        for name in dict.fromkeys(names)
        if name and any(can_show(trial, name) for _, trial in widget.trials.opened())
    ]


def _queried(widget: RunView) -> list[str]:
    """Return the tensors that the query of the widget finds, in its order."""
    if widget.live_survey is None or widget.table or not widget.query:
        return []
    number = widget.trials.index(widget.trial)
    names = widget.live_survey.of(number)[0].names()
    try:
        return [names[at] for at in widget.live_survey.found(number, names, widget.query, widget.mode, widget.worker)]
    except SMDebugError:  # the query may be invalid
        return []


def _by_suspicion(widget: RunView) -> list[str]:
    if widget.live_survey is None or widget.table:
        return []
    return suspicion(widget.live_survey.of(widget.trials.index(widget.trial))[0])


def suspicion(survey: Survey) -> list[str]:
    """Return the names of the tensors, the most suspicious first.

    Those with values that are not finite come first, then those with the largest surprise.
    """
    ends, names = survey.steps(), survey.names()
    if ends is None or not names:
        return []
    level = level_of(*ends, 1)
    bins = survey.bins(names, "", 0, "surprise", level, ends[0] >> level, 1)
    amount = np.nan_to_num(np.fmax(np.abs(bins.lo), np.abs(bins.hi))).max(axis=1)
    bad = (bins.flag & (NAN | INFINITE)).any(axis=1)
    return [names[at] for at in np.lexsort((-amount, ~bad))]


def _members(trial: Trial, collection: str) -> list[str]:
    try:
        return (
            sorted(trial.tensor_names(collection=collection), key=natural) if collection in trial.collections() else []
        )
    except SMDebugError:  # the collection's pattern may be invalid or time out
        return []
