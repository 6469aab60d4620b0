"""Write a self-contained HTML report with a diagnosis, curves and rule findings.

The step slider works without a network connection, a server or Python, so the file can be shared or archived.

Examples:
  smdwidgets report runs/mlp -o report.html
  smdwidgets report runs/mlp -o report.html --tensors 'weight$' --rules LossSpike,DeadRelu
  smdwidgets report runs/mlp -o report.html --no-rules --limit-mb 5

Exit codes: 0 report written, 2 an error occurred
"""

from __future__ import annotations

import argparse

from smdwidgets.cli.arguments._types import positive


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command to its parser."""
    parser.add_argument("run", metavar="RUN", help="the run: a directory, or an address such as s3://bucket/prefix")
    parser.add_argument(
        "-o", "--output", metavar="FILE", default="report.html", help="output file (default: %(default)s)"
    )
    parser.add_argument(
        "--tensors",
        metavar="REGEX",
        help="pictures of tensors whose names match (default: those that findings name, then others until the limit)",
    )
    parser.add_argument(
        "--rules",
        metavar="A,B",
        help="rule names (default: every rule without required parameters that finds something to judge)",
    )
    parser.add_argument("--no-rules", action="store_true", help="do not evaluate rules")
    parser.add_argument(
        "--limit-mb",
        type=positive,
        metavar="N",
        help="maximum size of the report in MB (default: 20, for a TensorBoard log 5)",
    )
