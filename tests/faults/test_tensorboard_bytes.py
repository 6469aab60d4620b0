"""Change every byte of a TensorBoard log, and truncate it at every length.

Its checksums are true, so that damage never gives another value.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from faults import campaign
from python import tfrecords
from python.logs import logs
from smdwidgets import _core, create_trial
from smdwidgets.exceptions import SMDebugError

#: Damage affects the record that contains it. After a damaged length, reading resumes at the next record.
LOST = 1


def log() -> bytes:
    """A log with every kind of value."""
    image = logs.field(4, logs.integer(1, 2) + logs.integer(2, 3) + logs.integer(3, 1) + logs.field(4, b"\x89PNG" * 8))
    parts = [_core.version_record(99.0)]
    for step in range(6):
        at = 100.0 + step
        parts += [
            _core.scalar_record("loss", step, at, 1 / (step + 1)),
            _core.scalar_record("accuracy/val", step, at, step / 6),
            _core.histogram_record(
                "w", step, at, [0.5, 1.0], [3, 4], min=0, max=1, num=7, sum=3.5, sum_squares=float(step)
            ),
            logs.event(logs.value("image", image), step, at),
            logs.event(logs.value("t", logs.tensor(np.arange(4, dtype="<f4") + step, 1), "mine"), step, at),
            logs.event(logs.value("text", logs.strings(b"a", b"<b>"), "text"), step, at),
        ]
    return b"".join(parts)


def problem_counts(content: bytes) -> Counter[str]:
    """Return all values of a log as distinct texts, counted."""
    events = _core.read_events(content)
    found: Counter[str] = Counter()
    for tag, (steps, times, values) in events.scalars.items():
        rows = zip(steps.tolist(), times.tolist(), values.tolist(), strict=True)
        found.update(json.dumps([tag, *row]) for row in rows)
    for event in events.others:
        found[json.dumps([event.tag, event.step, event.wall_time, event.kind, event.plugin]) + plain(event.value)] += 1
    return found


def plain(value: Any) -> str:
    if isinstance(value, dict):
        return str({key: plain(part) for key, part in value.items()})
    return str(value.tolist() if isinstance(value, np.ndarray) else value)


def test_log_in_memory() -> None:
    content = log()
    right, chance = problem_counts(content), campaign.rng("log")
    with campaign.tally("TensorBoard log") as counts:
        for at in campaign.some(range(len(content)), 1500, chance):
            for mask in (0xFF, *(1 << bit for bit in (range(8) if campaign.LONG else [chance.randrange(8)]))):
                found = problem_counts(content[:at] + bytes([content[at] ^ mask]) + content[at + 1 :])
                counts["flipped"] += 1
                assert found <= right, (at, mask, found - right)
                lost = (right - found).total()
                assert lost <= LOST, (at, mask, right - found)
                counts["records refused"] += lost
            found = problem_counts(content[:at])
            counts["cut"] += 1
            assert found <= right
            whole = tfrecords.records(content[:at])
            assert found.total() == max(0, len(whole) - 1)  # all but the version


def test_growing_log_on_disk(tmp_path: Path) -> None:
    """Damage within a growing log is a problem of one record, whenever it is read."""
    content, chance = log(), campaign.rng("growing log")
    with campaign.tally("TensorBoard log growing") as counts:
        for number in range(campaign.size(15, 400)):
            at, mask = chance.randrange(len(content)), 1 << chance.randrange(8)
            wrong = content[:at] + bytes([content[at] ^ mask]) + content[at + 1 :]
            file = tmp_path / str(number) / "events.out.tfevents.1.host"
            file.parent.mkdir()
            cuts = sorted(chance.sample(range(len(wrong)), 4))
            file.write_bytes(wrong[: cuts[0]])
            counts["logs"] += 1
            try:
                trial = create_trial(file.parent)
            except SMDebugError:
                counts["not opened"] += 1
                continue
            with trial:
                for end in [*cuts[1:], len(wrong)]:
                    file.write_bytes(wrong[:end])
                    for step in trial.steps():
                        for tag, right in (("loss", 1 / (step + 1)), ("accuracy/val", step / 6)):
                            try:
                                value = trial.tensor(tag).value(step)
                            except SMDebugError:
                                counts["refused"] += 1
                            else:
                                counts["right"] += 1
                                assert float(value) == float(np.float32(right)), (at, mask, tag, step)
                assert len(trial.steps()) >= 5
