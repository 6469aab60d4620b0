"""What the flight recorder of a hook recorded, and other detectors do not judge."""

from __future__ import annotations

from collections.abc import Iterator

from smdwidgets.diagnosis.findings import Candidate, Evidence
from smdwidgets.diagnosis.inputs import RunData
from smdwidgets.incident import Incident

__all__ = ["NOT_FINITE", "incidents"]

#: Statistics that count values that are not finite, which other detectors judge.
NOT_FINITE = ("nan", "pos_inf", "neg_inf")
#: Beginning of the reason of an incident that an exception caused.
EXCEPTION = "exception "


def incidents(data: RunData) -> Iterator[Candidate]:
    """Yield exceptions as problems, and other incidents as notes.

    Spikes and user-defined rules are notes: a training often recovers.
    """
    for one in data.incidents:
        if one.trigger is None or one.trigger.column not in NOT_FINITE:
            yield _candidate(one)


def _candidate(incident: Incident) -> Candidate:
    failed = any(reason.startswith(EXCEPTION) for reason in incident.why)
    facts = {
        "why": incident.cause,
        "what": "An exception left the training. " if failed else "",
        "saved": f" ({incident.saved})" if incident.steps else "",
    }
    return Candidate(
        "incident",
        "problem" if failed else "note",
        "high" if failed else "low",
        incident.step,
        None,
        (incident.trigger.tensor,) if incident.trigger is not None else (),
        facts,
        (Evidence(f"incident at {incident}", incident.trigger.tensor if incident.trigger is not None else ""),),
    )
