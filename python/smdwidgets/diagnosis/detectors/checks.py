"""What the checks of a training have proven while it ran."""

from __future__ import annotations

from collections.abc import Iterator

from smdwidgets.checks.record import CheckRecord
from smdwidgets.diagnosis.inputs import RunData
from smdwidgets.finding import Evidence, Finding

__all__ = ["checks"]


def checks(data: RunData) -> Iterator[Finding]:
    """Yield one finding per check that fired and worker. It is a proof."""
    for one in data.checks:
        yield _finding(one)


def _finding(record: CheckRecord) -> Finding:
    subject, rank = record.subject[0] if record.subject else "", _rank(record.worker)
    seen = f"seen {record.count:,} times" if record.count > 1 else "seen once"
    at = (
        f"at step {record.first:,}" if record.first == record.last else f"from step {record.first:,} to {record.last:,}"
    )
    evidence = (Evidence(f"{record.says}; {seen}, {at}", subject, record.first, worker=record.worker),)
    return Finding(
        record.id,
        record.level,
        "proof",
        subject,
        record.first,
        record.last,
        rank,
        record.says,
        f"{record.says}.",
        record.try_,
        evidence,
        source="check",
        others=record.subject[1:],
    )


def _rank(worker: str) -> int:
    number = worker.rpartition("_")[2]
    return int(number) if number.isdecimal() and len(number) < 10 else 0
