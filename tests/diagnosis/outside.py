"""Write the figures of programs and logs that others wrote into the documentation.

Usage: `python tests/diagnosis/outside.py`. The figures of `make exam` are in `outside.csv`, a row for each set in the
order in which the sets were seen, and the words in `outside.md`, where `<!-- NAME -->` stands for a table.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent
PAGE = FOLDER.parents[1] / "docs/diagnosis-figures.md"
#: The headings before and after the section in the page.
BEGIN, END = "## Outside figures", "## Planted figures"
#: Groups of sets, and the name of one fault in them.
GROUPS = ("programs", "logs", "published logs")
#: Number of the last sets of a group that are counted apart.
LAST = 3
CONFIDENCES = ("proof", "high", "medium")
#: Least shares; one below 0 is a largest share.
TARGETS = {"any": 0.95, "first": 0.75, "alarms": -0.03, "proof": 1.0, "high": 0.95, "medium": 0.75}


class Share(NamedTuple):
    """How many of how many."""

    part: int = 0
    whole: int = 0

    @property
    def counts(self) -> str:
        """Both numbers; nothing without a measurement."""
        return f"{self.part} of {self.whole}" if self.whole else ""

    @property
    def percent(self) -> str:
        """The share in percent; nothing without a measurement."""
        return f"{self.part / self.whole:.0%}".replace("%", " %") if self.whole else ""

    def against(self, target: float) -> str:
        """Return the share, and whether it misses a target."""
        if not self.whole:
            return ""
        value = self.part / self.whole
        is_reached = value <= -target if target < 0 else value >= target
        return f"{self.counts} ({self.percent}){'' if is_reached else ', **missed**'}"


@dataclass(frozen=True)
class Set:
    """The figures of one set of programs or logs; a share of nothing was not measured."""

    name: str
    group: str
    what: str
    any: Share
    first: Share
    alarms: Share
    any_after: Share
    first_after: Share
    alarms_after: Share
    confidences: dict[str, Share]


def sets() -> list[Set]:
    """Return all sets, in the order in which they were seen."""
    with (FOLDER / "outside.csv").open(encoding="utf-8", newline="") as file:
        return [_set(row) for row in csv.DictReader(file)]


def _set(row: dict[str, str]) -> Set:
    faults, healthy = int(row["faults"]), int(row["healthy"])
    return Set(
        row["set"],
        row["group"],
        row["what"],
        Share(int(row["any"]), faults) if row["any"] else Share(),
        Share(int(row["first"]), faults),
        Share(int(row["alarms"]), healthy),
        *(_share(row[f"{name} after"]) for name in ("any", "first", "alarms")),
        {name: _share(row[name]) for name in CONFIDENCES},
    )


def _share(cell: str) -> Share:
    return Share(*map(int, cell.split("/"))) if cell else Share()


def total(shares: Iterable[Share]) -> Share:
    """Add shares."""
    listed = list(shares)
    return Share(sum(one.part for one in listed), sum(one.whole for one in listed))


def groups() -> dict[str, list[Set]]:
    """Return the sets of each group."""
    every = sets()
    return {group: [one for one in every if one.group == group] for group in GROUPS}


def summary() -> list[str]:
    """Return a table of the first looks at the last sets and at all of them."""
    lines = [
        "| at the first look | any finding (≥ 95 %) | the cause first (≥ 75 %) | false alarms (≤ 3 %) |",
        "|---|---|---|---|",
    ]
    for group, of_group in groups().items():
        for name, some in (
            (f"the last {LAST} sets of {group}", of_group[-LAST:]),
            (f"all {len(of_group)} sets", of_group),
        ):
            shares = (
                total(getattr(one, field) for one in some).against(TARGETS[field])
                for field in ("any", "first", "alarms")
            )
            lines.append(f"| {name} | {' | '.join(shares)} |")
    return lines


def confidences() -> list[str]:
    """Return a table of how often first findings of each confidence were right."""
    programs, logs, published = groups().values()
    columns = {
        f"the last {LAST} sets of programs and of logs": [*programs[-LAST:], *logs[-LAST:]],
        "all programs": programs,
        "all logs": [*logs, *published],
    }
    lines = [
        f"| claimed | target | {' | '.join(columns)} |",
        "|---|---|" + "---|" * len(columns),
    ]
    for name in CONFIDENCES:
        target = TARGETS[name]
        shares = (total(one.confidences[name] for one in some).against(target) for some in columns.values())
        lines.append(
            f"| {name} | {'' if target == 1 else '≥ '}{target:.0%} | ".replace("%", " %") + " | ".join(shares) + " |"
        )
    return lines


def table(group: str) -> list[str]:
    """Return a table of the sets of a group."""
    lines = [
        "| set | what | faults | any finding | cause first | false alarms | after repairs: any | first | alarms |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for one in groups()[group]:
        cells = (
            one.name,
            one.what,
            str(one.first.whole),
            *(one.any.percent, one.first.percent, one.alarms.counts),
            *(one.any_after.percent, one.first_after.percent, one.alarms_after.counts),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def section() -> str:
    """Return the section of the page."""
    text = (FOLDER / "outside.md").read_text(encoding="utf-8")
    tables = {"summary": summary(), "confidences": confidences()} | {group: table(group) for group in GROUPS}
    for name, lines in tables.items():
        text = text.replace(f"<!-- {name} -->", "\n".join(lines))
    return text


def main() -> None:
    """Replace the section in the page."""
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{section()}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
