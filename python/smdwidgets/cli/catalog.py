"""What `smdwidgets catalog` does."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from smdwidgets.cli._run import plain
from smdwidgets.run_table import update_catalog


def run(args: argparse.Namespace) -> int:
    """Update the catalog and print what changed."""
    done = update_catalog(args.root, findings=not args.no_findings, accept=[tuple(pair) for pair in args.accept])
    if args.json:
        print(json.dumps(asdict(done), indent=2))
        return 0
    counts = f"{len(done.added):,} new, {len(done.changed):,} changed, {len(done.removed):,} removed"
    print(plain(f"{done.place}: {done.runs:,} runs: {counts}", 2000))
    if done.findings:
        print(f"findings: {', '.join(f'{count:,} {state}' for state, count in sorted(done.findings.items()))}")
    return 0
