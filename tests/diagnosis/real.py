"""Evaluate the diagnosis on public logs that were labelled by eye.

Usage: `python tests/diagnosis/real.py LOGS`.
The logs are not part of the repository. LOGS is a directory with one subdirectory per entry of real_labels.json, named
after it. Logs with an even number were used for tuning, the others only for reporting.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from smdwidgets.diagnosis import Diagnosis, diagnose
from smdwidgets.trials import create_trials

LABELS = json.loads((Path(__file__).parent / "real_labels.json").read_text(encoding="utf-8"))["logs"]
#: Labels at which silence is right.
SILENT = ("healthy", "noisy", "undecidable", "too short")
#: Shares of the run at which it is cut, as if it were still running.
CUTS = (0.1, 0.25, 0.4, 0.55, 0.7, 0.85)


@dataclass(frozen=True)
class Verdict:
    """A label and what the diagnosis of the whole run and of its beginnings says."""

    label: dict[str, Any]
    whole: Diagnosis
    cuts: tuple[Diagnosis, ...]

    @property
    def is_found(self) -> bool:
        return any(one.kind == self.label.get("kind") for one in self.whole)

    @property
    def onset_error(self) -> float:
        """Distance of the found onset from the label's, as a share of the run."""
        [found] = [one for one in self.whole if one.kind == self.label["kind"]]
        first, last = self.whole.steps
        return abs((found.first or 0) - self.label["onset"]) / max(1, last - first)


def verdicts(logs: Path, half: str) -> Iterator[Verdict]:
    """Diagnose the logs of a half."""
    logging.disable(logging.WARNING)
    for label in LABELS:
        folder = logs / label["log"]
        if label["half"] != half or not folder.is_dir():
            continue
        for trial in create_trials(folder).values():
            with trial:
                whole = diagnose(trial)
                first, last = whole.steps
                cuts = tuple(diagnose(trial, until=int(first + share * (last - first))) for share in CUTS)
            yield Verdict(label, whole, cuts)


def report(logs: Path, half: str) -> str:
    """Return the figures of a half, and every verdict that differs from its label."""
    every = list(verdicts(logs, half))
    lines = [f"{half}: {len(every)} runs"]
    silent = [one for one in every if one.label["label"] in SILENT]
    for label in SILENT:
        some = [one for one in silent if one.label["label"] == label]
        lines.append(f"  {label}: {sum(bool(one.whole) for one in some)} false alarms of {len(some)}")
    judged = [one for one in silent if one.label["label"] in ("healthy", "noisy")]
    live = sum(any(one.cuts) for one in judged)
    lines.append(f"  healthy or noisy, any finding at any of {len(CUTS)} cuts: {live} of {len(judged)}")
    faults = [one for one in every if one.label["label"] == "fault"]
    for kind in sorted({one.label["kind"] for one in faults}):
        some = [one for one in faults if one.label["kind"] == kind]
        errors = [one.onset_error for one in some if one.is_found]
        onset = f", onset error median {np.median(errors):.1%}, worst {max(errors):.1%}" if errors else ""
        lines.append(f"  {kind}: {sum(one.is_found for one in some)} of {len(some)} found{onset}")
    for one in every:
        wrong = (one in silent and one.whole) or (one in faults and not one.is_found)
        if wrong:
            found = ", ".join(f"{each.kind} at {each.first}" for each in one.whole) or "nothing"
            lines.append(f"  log {one.label['log']} ({one.label['label']}): {found}")
        early = [f"{share:.0%}: {each.findings[0].kind}" for share, each in zip(CUTS, one.cuts, strict=True) if each]
        if one in judged and early:
            lines.append(f"  log {one.label['log']} ({one.label['label']}), cut: {'; '.join(early)}")
    return "\n".join(lines)


if __name__ == "__main__":
    for each_half in ("tuning", "held out"):
        print(report(Path(sys.argv[1]), each_half))
