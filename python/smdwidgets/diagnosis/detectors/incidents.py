"""What the flight recorder of a hook recorded, and other detectors do not judge."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from smdwidgets.diagnosis.inputs import RunData
from smdwidgets.finding import Evidence, Finding
from smdwidgets.incident import Incident

__all__ = ["NOT_FINITE", "incidents", "with_rows"]

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
            yield with_rows(_finding(one), (one,))


def with_rows(finding: Finding, incidents: Iterable[Incident]) -> Finding:
    """Return a finding with the rows of its step, if an incident has them."""
    rows = next((one.rows_text for one in incidents if one.step == finding.first and one.rows), "")
    if not rows:
        return finding
    batch = f"The batch of step {finding.first:,} has {rows}."
    evidence = finding.evidence
    if not any(rows in one.text for one in evidence):
        evidence = (*evidence, Evidence(batch[:-1], step=finding.first))
    return replace(finding, text=f"{finding.text} {batch}", evidence=evidence)


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
