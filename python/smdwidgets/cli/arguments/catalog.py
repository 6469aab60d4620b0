"""Write or update the catalog of a team's runs: a Parquet file beside them.

The file smdwidgets-catalog.parquet has a row for each run: name, owner, tags, git commit, settings, the last, smallest,
largest and best value of each curve, and the findings of the diagnosis with their ids. DuckDB, Polars, Spark and pandas
read it. `smdwidgets runs PREFIX` and `smdwidgets.runs(PREFIX)` open it in place of the runs. Runs that did not change
are not read again, so the command may run every few minutes. Programs that write at the same time do not lose rows.

Examples:
  smdwidgets catalog s3://team/runs
  smdwidgets catalog runs --no-findings
  smdwidgets catalog runs --accept job-17 'spike:loss:1200'
  duckdb -c "SELECT name, unnest(findings).title FROM 's3://team/runs/smdwidgets-catalog.parquet'"

Exit codes: 0 success, 2 there is no run, or the catalog could not be written
"""

from __future__ import annotations

import argparse


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command to its parser."""
    parser.add_argument(
        "root", metavar="PREFIX", help="a directory or an address such as s3://bucket/prefix, with runs below it"
    )
    parser.add_argument("--no-findings", action="store_true", help="do not diagnose the runs")
    parser.add_argument(
        "--accept",
        nargs=2,
        action="append",
        default=[],
        metavar=("RUN", "ID"),
        help="set the state of a finding to accepted; repeatable",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
