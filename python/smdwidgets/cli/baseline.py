"""What `smdwidgets baseline` does."""

from __future__ import annotations

import argparse

from smdwidgets._text import shown
from smdwidgets.cli._run import plain, table
from smdwidgets.diagnosis import summary_of
from smdwidgets.diagnosis.reference import read_summaries, write_summaries
from smdwidgets.exceptions import SMDebugValueError
from smdwidgets.trials import create_trial


def run(args: argparse.Namespace) -> int:
    """Add, remove or list baselines."""
    baselines = (
        {one.name: one for one in read_summaries(args.file)} if args.file.exists() or args.action != "add" else {}
    )
    if args.action == "list":
        rows = [["baseline", "quantities", "settings", "last step"]]
        for name, one in baselines.items():
            last = max((quantity.steps[-1] for quantity in one.quantities.values()), default=0)
            rows.append([plain(name), f"{len(one.quantities):,}", f"{len(one.settings):,}", f"{last:,.0f}"])
        print(table(rows))
        return 0
    if args.action == "remove":
        if baselines.pop(args.name, None) is None:
            raise SMDebugValueError(
                f"{args.file} has no baseline {shown(args.name)}; it has {', '.join(baselines) or 'none'}"
            )
    else:
        with create_trial(args.run) as trial:
            summary = summary_of(trial, args.name)
        if not summary.quantities:
            raise SMDebugValueError(
                f"{shown(args.run)} has no series or tensor with enough steps to compare others with"
            )
        baselines[args.name] = summary
    write_summaries(args.file, baselines.values())
    count = f"{len(baselines):,} baselines" if len(baselines) != 1 else "1 baseline"
    print(f"{plain(str(args.file))}: {count}, {args.file.stat().st_size / 1000:,.0f} kB")
    return 0
