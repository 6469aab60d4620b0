"""Catalog of a run for the browser: steps with their modes, tensors, collections."""

from __future__ import annotations

import hashlib
import logging
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from smdwidgets._text import natural, visible
from smdwidgets.exceptions import SMDebugError
from smdwidgets.incident import Incident
from smdwidgets.modes import ModeKeys
from smdwidgets.pictures.packet import LARGEST_STEP, pack
from smdwidgets.pictures.run_colours import run_colours
from smdwidgets.pictures.run_facts import run_facts
from smdwidgets.pictures.signal_view import SIGNALS, described_names, names_shown, rows_of
from smdwidgets.trials.reader import RunReader
from smdwidgets.trials.refresh import no_refresh
from smdwidgets.trials.samples import sampled_steps
from smdwidgets.trials.trial import Trial

logger = logging.getLogger("smdwidgets.widgets")

SHOWN_NAME = 2000
"""Names sent to the browser have at most this length; a name can be as long as a megabyte."""
_STEPS_A_PACKET = 20_000
#: Seconds without a write after which a log is shown as stalled.
STALLED_AFTER = 60.0
_NAME_BYTES_A_PACKET = 500_000
#: Latest incidents that are sent, and the length of the text of each.
_SHOWN_INCIDENTS = 200
_INCIDENT_TEXT = 500


def shown_name(name: str) -> str:
    """Return the name that is sent to the browser.

    A long name ends with a hash, so that it stays unique.

    >>> shown_name("fc1.weight")
    'fc1.weight'
    >>> shown_name("w" * 3000 + ".a") == shown_name("w" * 3000 + ".b")
    False
    """
    if len(name) <= SHOWN_NAME:
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{name[: SHOWN_NAME - 18]}… {digest}"


@dataclass
class SentState:
    """State of one run that was already sent to a browser."""

    run: int
    colour: int = 0
    steps: array[int] = field(default_factory=lambda: array("q"))
    names: list[str] = field(default_factory=list)
    workers: list[str] = field(default_factory=list)
    status: tuple[str, str] = ("", "")
    incidents: list[dict[str, Any]] = field(default_factory=list)
    restarts: int = 0

    def start_over(self, restarts: int) -> None:
        """Forget what was sent of an earlier run in the same place."""
        self.steps, self.names, self.workers, self.status = array("q"), [], [], ("", "")
        self.incidents = []
        self.restarts = restarts

    def unsent_steps(self, steps: list[int]) -> list[int]:
        """Return the steps that were not sent yet. ``steps`` are ascending."""
        count = len(self.steps)
        # Fast path: new steps are usually appended.
        if array("q", steps[:count]) == self.steps:
            return steps[count:]
        known = set(self.steps)
        return [step for step in steps if step not in known]

    def mark_sent(self, steps: list[int]) -> None:
        """Mark steps as sent."""
        if not self.steps or not steps or steps[0] > self.steps[-1]:
            self.steps.extend(steps)
        else:
            self.steps = array("q", sorted({*self.steps, *steps}))


def nothing_sent(trials: Sequence[tuple[int, Trial]]) -> dict[int, SentState]:
    """Return the initial state of each run of a widget, by number."""
    colours = run_colours.of([str(trial.path) for _, trial in trials])
    return {run: SentState(run, colour) for (run, _), colour in zip(trials, colours, strict=True)}


def status_of(trial: Trial) -> str:
    """Return ``running``, ``stalled`` or ``ended``.

    A log has no end marker, so that it is stalled when nothing has been written for a minute.

    >>> status_of(trial)    # doctest: +SKIP
    'ended'
    """
    if trial.loaded_all_steps:
        return "ended"
    silence = trial.reader.silence()
    return "running" if silence is None or silence < STALLED_AFTER else "stalled"


def overview(trial: Trial, sent: SentState, status: str | None = None, message: str = "") -> list[bytes]:
    """Return packets with the changes since ``sent``, and update it.

    The list is empty if nothing changed.
    """
    with no_refresh(trial):
        if sent.restarts != trial.restarts:
            sent.start_over(trial.restarts)
        incidents = _incidents(trial, sent.incidents)  # first, because a new one adds steps
        steps = trial.steps(show_incomplete_steps=True)
        described = _described_steps(trial)
        if not described.keys() <= set(steps):
            steps = sorted({*steps, *described})
        if steps and steps[-1] > LARGEST_STEP:
            beyond = sum(step > LARGEST_STEP for step in steps)
            steps = steps[: len(steps) - beyond]
            message = (
                message or f"{beyond:,} steps beyond 2^53 are not shown: browser numbers are not exact beyond 2^53"
            )
        message = message or "; ".join(dict.fromkeys(text for _, text in trial.notes()))[:2000]
        names = names_shown(trial)
        status = status or status_of(trial)
        first = sent.status == ("", "")
        new_steps = sent.unsent_steps(steps)
        known = set(sent.names)
        new_names = sorted((name for name in names if name not in known), key=natural)
        unchanged = sent.status == (status, message) and sent.incidents == incidents
        if not first and not new_steps and not new_names and unchanged:
            return []
        modes = [
            (place if (place := trial.mode_modestep(step))[1] is not None else described.get(step, place), step)
            for step in new_steps
        ]
        sent.workers = trial.workers()
        head = _head(trial, sent, status, message)
        # A new launch brings new names, or hides values, which changes the message.
        facts = run_facts(trial) if first or new_names or sent.status[1] != message else {}
        collections = collection_members(trial, [*sent.names, *new_names], len(sent.names)) if new_names else {}
    packets: list[bytes] = []
    name_parts = list(_cut_names(new_names))
    at = 0
    for i in range(max(1, len(name_parts), -(-len(modes) // _STEPS_A_PACKET))):
        part = modes[i * _STEPS_A_PACKET : (i + 1) * _STEPS_A_PACKET]
        named = name_parts[i] if i < len(name_parts) else []
        start = len(sent.names) + at
        mine = {
            collection: indices[bisect_left(indices, start) : bisect_left(indices, start + len(named))]
            for collection, indices in collections.items()
        }
        at += len(named)
        packets.append(
            pack(
                {
                    **head,
                    "append": not (first and i == 0),
                    **(facts if i == 0 else {}),
                    **({"incidents": incidents} if i == 0 and incidents != sent.incidents else {}),
                    "tensors": [shown_name(name) for name in named],
                    "collections": {collection: indices for collection, indices in mine.items() if indices},
                },
                {
                    "step": np.array([step for _, step in part], np.float64),
                    "mode": np.array([(mode or ModeKeys.GLOBAL).value for (mode, _), _ in part], np.uint8),
                    "mode_step": np.array(
                        [step if mode_step is None else mode_step for (_, mode_step), step in part], np.float64
                    ),
                },
            )
        )
    sent.mark_sent(new_steps)
    sent.names += new_names
    sent.status = (status, message)
    sent.incidents = incidents
    return packets


def _described_steps(trial: Trial) -> dict[int, tuple[ModeKeys, int]]:
    """Return mode and mode step of steps with samples or statistics only.

    Bare steps have none.
    """
    reader = getattr(trial, "reader", None)
    return {} if reader is None else {**_recorded_steps(reader), **sampled_steps(reader)}


def _recorded_steps(reader: RunReader) -> dict[int, tuple[ModeKeys, int]]:
    """Return mode and mode step of steps with statistics of unsaved tensors."""
    file = reader.statistics_file()
    unsaved = set() if file is None else {*file.names()}.difference(reader.names())
    if file is None or not unsaved:
        return {}
    rows = file.read([min(unsaved)])
    places = zip(rows["step"].tolist(), rows["mode"].tolist(), rows["mode_step"].tolist(), strict=True)
    return {step: (ModeKeys(mode), mode_step) for step, mode, mode_step in places}


def status_packets(trial: Trial, sent: SentState, status: str, message: str) -> list[bytes]:
    """Return a packet with a new status, without reading the run.

    The run may be unavailable.
    """
    if sent.status == (status, message):
        return []
    sent.status = (status, message)
    return [pack({**_head(trial, sent, status, message[:2000]), "append": True, "tensors": [], "collections": {}})]


def _head(trial: Trial, sent: SentState, status: str, message: str) -> dict[str, Any]:
    return {
        "kind": "catalog",
        "run": sent.run,
        "name": trial.name,
        "path": str(trial.path),
        "status": status,
        "message": message,
        "workers": sent.workers,
        "last_write": None,
        "restarted_at": trial.restarted_at,
        "colour": sent.colour,
    }


def _incidents(trial: Trial, known: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the latest incidents of a run.

    If the records cannot be read, these are the ones already known.
    """
    try:
        found = trial.incidents()
    except Exception:  # a widget without marks is better than none
        logger.debug("cannot read the incidents of %s", trial.path, exc_info=True)
        return known
    return [
        {"step": one.step, "text": visible(_incident_text(one), _INCIDENT_TEXT)}
        for one in found[-_SHOWN_INCIDENTS:]
        if 0 <= one.step <= LARGEST_STEP
    ]


def _incident_text(one: Incident) -> str:
    """Return the description of an incident.

    >>> _incident_text(Incident("worker_0", 337, ("NaN in 'fc1.weight'",), steps=(336, 337, 338)))
    "Incident at step 337: NaN in 'fc1.weight'; whole tensors of steps 336 to 338"
    """
    text = f"Incident at step {one.step:,}: {one.cause}"
    if not one.saved:
        return text
    return (
        f"{text}; {one.saved}, {one.missed:,} of them not whole"
        if one.missed
        else f"{text}; whole tensors of {one.saved}"
    )


def _cut_names(names: list[str]) -> list[list[str]]:
    parts: list[list[str]] = []
    size = _NAME_BYTES_A_PACKET
    for name in names:
        if size + min(len(name), SHOWN_NAME) * 4 > _NAME_BYTES_A_PACKET:
            parts.append([])
            size = 0
        parts[-1].append(name)
        size += min(len(name), SHOWN_NAME) * 4 + 8
    return parts


def collection_members(trial: Trial, names: list[str], since: int = 0) -> dict[str, list[int]]:
    """Return the indices of the tensors of each collection, of those with members.

    ``all`` and ``default`` are left out. ``since`` is the first index that is returned. Rows of signals are a
    collection, too.
    """
    number = {name: i for i, name in enumerate(names)}
    rows = rows_of(trial)
    described = not described_names(trial).issubset(trial.tensor_names())  # these are no tensor names
    signals = [at for name, at in number.items() if at >= since and name in rows]
    found: dict[str, list[int]] = {SIGNALS: signals} if signals else {}
    for collection in trial.collections():
        if collection in {"all", "default"}:
            continue
        try:
            members = trial.tensor_names(collection=collection)
        except SMDebugError:
            continue  # a pattern that times out matches nothing
        members = [*members, *(trial.collections()[collection].tensor_names if described else ())]
        indices = sorted({number[name] for name in members if number.get(name, -1) >= since})
        if indices:
            key = shown_name(collection)
            found[key] = sorted({*found.get(key, ()), *indices})
    return found
