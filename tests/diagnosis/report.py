"""Measure the diagnosis on the proving ground.

Usage: `python tests/diagnosis/report.py [--logs LOGS] [--short] [--write]`. Prints recall, false alarms, onset error
and cause accuracy by fault beside their targets, on seeds that no limit was tuned on. --write also writes
docs/diagnosis-figures.md. LOGS is the directory of the public logs: see real.py.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from diagnosis import outside, real  # noqa: E402
from diagnosis.cases import REPORT_SEEDS  # noqa: E402
from diagnosis.evaluate import CUTS, NOISES, false_alarms_of_noise, run_tasks, tasks_of  # noqa: E402

#: Seeds of each group, and the views in which its runs are diagnosed.
GROUPS = {
    "planted": (6, ("fifth", "scalars")),
    "healthy": (6, ("fifth", "cuts")),
    "drawn": (5, ()),
    "drawn healthy": (70, ("fifth",)),
    "dose": (3, ()),
}
#: Seeds of each group with --short.
SHORT = {"planted": 4, "healthy": 2, "drawn": 2, "drawn healthy": 24, "dose": 1}
NULL_SERIES = 300


class Figures:
    """The outcomes of all groups, and sentences and tables about them."""

    def __init__(self, outcomes, noise):
        self.groups = {group: [one for one in outcomes if one.group == group] for group in GROUPS}
        self.noise = noise

    def seeds(self):
        """Return the number of seeds of each case, by group."""
        numbers = {group: len({one.seed for one in some}) for group, some in self.groups.items() if some}
        return ", ".join(f"{number} {group}" for group, number in numbers.items())

    def share(self, group, right):
        """Return how many outcomes of a group are right, and of how many."""
        some = self.groups[group]
        return sum(map(right, some)), len(some)

    def onset_errors(self):
        """Return the onset errors of the first findings, as shares of the run."""
        dated = [one for one in self.groups["planted"] if one.fault_at is not None and one.right()]
        return [abs((one.said["all"].onsets[0] or 0) - one.fault_at) / one.length for one in dated]

    def summary(self):
        """Return rows: measure, measured, target, whether it is reached."""
        planted, drawn = self.groups["planted"], self.groups["drawn"]
        by_fault = Counter(one.case for one in planted if one.right())
        seeds = Counter(one.case for one in planted)
        worst = min(by_fault[case] / seeds[case] for case in seeds)
        errors = self.onset_errors()
        counted = [one for one in drawn if not one.missed_harmlessly()]
        cuts = self.share("healthy", lambda one: any(one.said[share].kinds for share in CUTS))
        return [
            _row("planted faults: the first finding is the cause", *self.share("planted", lambda one: one.right()), 0.95),
            ("the same, worst fault", f"{worst:.0%}", "≥ 85 %", worst >= 0.85),
            _row("the same, from every fifth save", *self.share("planted", lambda one: one.right("fifth")), 0.90),
            _row("planted faults, scalars only: any finding", *self.share("planted", lambda one: bool(one.said["scalars"].kinds)), 0.50),
            _row("faults on drawn networks: the first finding is the cause", sum(one.right() for one in counted), len(counted), 0.85),
            _row("healthy trainings: false alarms", *self.share("healthy", lambda one: bool(one.said["all"].kinds)), -0.02),
            _row("the same, from every fifth save", *self.share("healthy", lambda one: bool(one.said["fifth"].kinds)), -0.02),
            _row("healthy drawn networks: false alarms", *self.share("drawn healthy", lambda one: bool(one.said["all"].kinds)), -0.02),
            _row(f"healthy trainings, cut at any of {len(CUTS)} places: false alarms", *cuts, -0.02),
            *(_row(f"series with {noise} noise: false alarms", count, NULL_SERIES, -0.05 if noise == "t2" else -0.02) for noise, count in self.noise.items()),
            ("onset of dated faults, error: median", f"{np.median(errors):.1%} of the run", "≤ 1 %", np.median(errors) <= 0.01),
            ("onset of dated faults, error: worst", f"{max(errors):.1%} of the run", "≤ 5 %", max(errors) <= 0.05),
        ]  # fmt: skip

    def by_fault(self):
        """Return a table of the planted faults."""
        lines = [
            "| fault | first finding | every fifth save | scalars only: any finding | onset error |",
            "|---|---|---|---|---|",
        ]
        for case in dict.fromkeys(one.case for one in self.groups["planted"]):
            some = [one for one in self.groups["planted"] if one.case == case]
            errors = [
                abs((one.said["all"].onsets[0] or 0) - one.fault_at) for one in some if one.fault_at and one.right()
            ]
            counts = [
                sum(one.right() for one in some),
                sum(one.right("fifth") for one in some),
                sum(bool(one.said["scalars"].kinds) for one in some),
            ]
            onset = f"{max(errors)} steps" if errors else ""
            lines.append(f"| {case} | {' | '.join(f'{count} of {len(some)}' for count in counts)} | {onset} |")
        return lines

    def drawn(self):
        """Return a table of faults on drawn networks."""
        lines = ["| fault | first finding | silent, no harm done | silent | another finding |", "|---|---|---|---|---|"]
        for case in dict.fromkeys(one.case for one in self.groups["drawn"]):
            some = [one for one in self.groups["drawn"] if one.case == case]
            right = sum(one.right() for one in some)
            harmless = sum(one.missed_harmlessly() for one in some)
            silent = sum(not one.said["all"].kinds for one in some) - harmless
            lines.append(
                f"| {case} | {right} of {len(some)} | {harmless} | {silent} | {len(some) - right - harmless - silent} |"
            )
        return lines

    def doses(self):
        """Return a table of doses."""
        lines = ["| fault | mildest | | | strongest |", "|---|---|---|---|---|"]
        cells: dict[str, list[str]] = {}
        for case in dict.fromkeys(one.case for one in self.groups["dose"]):
            some = [one for one in self.groups["dose"] if one.case == case]
            right, harmless = sum(one.right() for one in some), sum(one.missed_harmlessly() for one in some)
            parts = [f"{right} found"] * bool(right) + [f"{harmless} harmless"] * bool(harmless)
            missed = len(some) - right - harmless
            parts += [f"{missed} missed"] * bool(missed)
            cells.setdefault(case.rpartition(" ")[0], []).append(", ".join(parts))
        return lines + [f"| {name} | {' | '.join(row)} |" for name, row in cells.items()]

    def wrong(self):
        """Return a line for each wrong first finding and each false alarm."""
        lines = []
        for group in GROUPS:
            for one in self.groups[group]:
                for view, found in one.said.items():
                    harmless = view == "all" and one.missed_harmlessly()
                    if view != "scalars" and not one.right(view) and not harmless and group != "dose":
                        where = {"all": "", "fifth": ", every fifth save"}.get(view, f", cut at {view}")
                        answer = ", ".join(found.kinds) or "nothing"
                        lines.append(f"{group}: {one.case}, seed {one.seed}{where}: {answer}")
        return lines


def _row(name, count, total, limit):
    """Return a row; a negative limit is the largest share."""
    share = count / total if total else float("nan")
    reached = share >= limit if limit > 0 else share <= -limit
    return name, f"{count} of {total} ({share:.1%})", f"{'≥' if limit > 0 else '≤'} {abs(limit):.0%}", reached


def measure(progress, short=False):
    """Run everything on the seeds for reporting."""
    outcomes = []
    for group, (number, wanted) in GROUPS.items():
        number = SHORT[group] if short else number
        outcomes += run_tasks(
            tasks_of(group, number, True, wanted),
            progress=lambda done, total, group=group: progress(group, done, total),
        )
    return Figures(outcomes, {noise: false_alarms_of_noise(noise, NULL_SERIES, True) for noise in NOISES})


def document(figures, logs):
    """Return the page of the figures."""
    lines = [
        "# How accurate is diagnose?",
        "",
        "`make diagnosis-report` measures them and writes this page. Small networks are trained in NumPy with planted faults and",
        f"without, and `diagnose` reads what the hook saved. Seeds from {REPORT_SEEDS} on are used here only; limits were tuned on others.",
        f"Seeds of each case: {figures.seeds()}.",
        "",
        *outside.section().splitlines(),
        "",
        "## Planted figures",
        "",
        "| measure | measured | target | |",
        "|---|---|---|---|",
        *(f"| {name} | {measured} | {target} | {'reached' if reached else '**missed**'} |" for name, measured, target, reached in figures.summary()),
        "",
        "## Planted faults",
        "",
        "1,500 steps, saved every 10, validated every 30; the onset error is the largest.",
        "",
        *figures.by_fault(),
        "",
        "## Faults on drawn networks",
        "",
        "1 to 5 layers of 16 to 192 units, batches of 2 to 512, three optimizers. \"No harm done\": the final validation loss is",
        "within 10 % of that of the same training without the fault; such cases do not count in the summary.",
        "",
        *figures.drawn(),
        "",
        "## Doses",
        "",
        "Four strengths of a fault. \"Harmless\": nothing was found, and the outcome is as without the fault.",
        "",
        *figures.doses(),
        "",
        "## Wrong answers",
        "",
        *([f"- {line}" for line in figures.wrong()] or ["None."]),
        "",
    ]  # fmt: skip
    if logs is not None:
        lines += [
            "## Public logs",
            "",
            "Labelled by eye before any verdict; not part of the repository.",
            "",
            "```text",
        ]
        lines += [*"\n".join(real.report(logs, half) for half in ("tuning", "held out")).split("\n"), "```", ""]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--logs", type=Path, help="directory of the public logs")
    parser.add_argument("--short", action="store_true", help="use fewer seeds, for a busy machine")
    parser.add_argument("--write", action="store_true", help="write docs/diagnosis-figures.md")
    args = parser.parse_args()
    start = time.monotonic()

    def progress(group, done, total):
        if done in (1, total) or done % 20 == 0:
            print(f"{time.monotonic() - start:6.0f} s  {group}: {done} of {total}", file=sys.stderr, flush=True)

    text = document(measure(progress, args.short), args.logs)
    print(text)
    if args.write:
        (ROOT / "docs" / "diagnosis-figures.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
