"""Find out what is wrong with a run: since when, why, and what to try.

Reads the scalars and tensor statistics of the run and compares trends with their noise. A TensorBoard directory with
several runs is diagnosed run by run.

Examples:
  smdwidgets diagnose runs/mlp
  smdwidgets diagnose logs --json --fail-on high
  smdwidgets diagnose runs/mlp --kind "score=metric up" --notes
  smdwidgets diagnose train.log --sarif > findings.sarif
  smdwidgets diagnose runs/mlp --follow --notify https://example.org/hook
  smdwidgets diagnose runs/new --against runs/good1 runs/good2

Exit codes: 0 nothing found, 1 a finding of at least the confidence of --fail-on, 2 no such run, or a run with nothing
to judge (unless --allow-unjudged)
"""

from __future__ import annotations

import argparse

from smdwidgets.cli.arguments._types import add_scheduler, at_least


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command to its parser."""
    parser.add_argument(
        "runs", nargs="+", metavar="RUN", help="directories or addresses of runs, such as s3://bucket/prefix"
    )
    parser.add_argument(
        "--kind",
        action="append",
        default=[],
        metavar="NAME=KIND",
        help="what a series measures, where its name does not tell, such as foo=loss or bar='metric up'; repeatable",
    )
    parser.add_argument(
        "--against",
        nargs="+",
        default=[],
        metavar="GOOD",
        help="good runs, or a file of baselines, to compare with: what differs first, since when, and by how much",
    )
    parser.add_argument("--until", type=at_least(0), metavar="N", help="last step to read (default: all)")
    parser.add_argument(
        "--notes", action="store_true", help="print notes of low confidence, and the kind of each series"
    )
    parser.add_argument("--follow", action="store_true", help="wait for the run to start, and follow it until it ends")
    parser.add_argument(
        "--fail-on",
        choices=("high", "medium", "low"),
        default="medium",
        help="least confidence of a finding for exit code 1 (default: medium); low includes notes",
    )
    parser.add_argument("--allow-unjudged", action="store_true", help="do not fail if a run has nothing to judge")
    add_scheduler(parser)
    parser.add_argument(
        "--notify",
        metavar="CMD|URL",
        help="with --follow: run a command, or post to an address, for each finding that is new or withdrawn; the message is "
        "JSON (a bearer token is read from SMDWIDGETS_NOTIFY_TOKEN)",
    )
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="print JSON: one object per run")
    output.add_argument("--sarif", action="store_true", help="print a SARIF log, which code hosts show")
    output.add_argument("--github", action="store_true", help="print annotations of GitHub Actions")
