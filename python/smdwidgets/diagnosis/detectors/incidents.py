"""What the flight recorder of a hook recorded, and other detectors do not judge."""

from __future__ import annotations

from collections.abc import Iterator

from smdwidgets.diagnosis.inputs import RunData
from smdwidgets.finding import Evidence, Finding
from smdwidgets.incident import Incident

__all__ = ["NOT_FINITE", "incidents"]

#: Statistics that count values that are not finite, which other detectors judge.
NOT_FINITE = ("nan", "pos_inf", "neg_inf")
#: Beginning of the reason of an incident that an exception caused.
EXCEPTION = "exception "


def incidents(data: RunData) -> Iterator[Finding]:
    """Yield exceptions as problems, and other incidents as notes.

    Spikes and user-defined rules are notes: a training often recovers.
    """
    for one in data.incidents:
        if one.trigger is None or one.trigger.column not in NOT_FINITE:
            yield _finding(one)


def _finding(incident: Incident) -> Finding:
    failed = any(reason.startswith(EXCEPTION) for reason in incident.why)
    facts = {
        "why": incident.cause,
        "what": "An exception left the training. " if failed else "",
        "saved": f" ({incident.saved})" if incident.steps else "",
    }
    return Finding.of(
        "incident",
        "problem" if failed else "note",
        "proof" if failed else "low",
        incident.step,
        None,
        (incident.trigger.tensor,) if incident.trigger is not None else (),
        facts,
        (Evidence(f"incident at {incident}", incident.trigger.tensor if incident.trigger is not None else ""),),
        rank=incident.rank,
        source="trigger",
        incident=incident.step,
    )
