"""Judge a run in a terminal or as a CI gate: by its diagnosis, or by rules.

Without --rules or --config, the run is diagnosed as by `smdwidgets diagnose`; most healthy runs then give no finding.
Rules fire at their thresholds, also on many healthy runs, so name those that fit the training.

Examples:
  smdwidgets check runs/mlp --junit check.xml
  smdwidgets check runs/mlp --rules VanishingGradient,LossNotDecreasing --param VanishingGradient.threshold=1e-6
  smdwidgets check s3://bucket/job/debug-output --config rules.json --junit rules.xml

Exit codes: 0 nothing found and no rule fired, 1 a finding or a rule that fired, 2 an error occurred (no such run or
rule, an invalid parameter, a rule that raised, a timeout, a run without a step or with nothing to judge, or a rule
requested by name that found nothing to judge)
"""

from __future__ import annotations

import argparse

from smdwidgets.cli.arguments._types import add_scheduler, at_least, positive


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command to its parser."""
    parser.add_argument("run", nargs="?", help="the run: a directory, or an address such as s3://bucket/prefix")
    parser.add_argument(
        "--rules",
        metavar="A,B",
        help="rule names, or 'all' for every built-in rule without required parameters (default: diagnose the run)",
    )
    parser.add_argument(
        "--param",
        action="append",
        default=[],
        metavar="RULE.NAME=VALUE",
        help="a parameter of a rule; repeatable",
    )
    parser.add_argument(
        "--config", metavar="FILE", help="read rules from a JSON file in the format of a SageMaker training request"
    )
    parser.add_argument(
        "--allow-custom", action="store_true", help="allow --config to execute the rule files that it names"
    )
    parser.add_argument("--start-step", type=at_least(0), default=0, metavar="N", help="first step (default: 0)")
    parser.add_argument("--end-step", type=at_least(0), metavar="N", help="end step (exclusive)")
    parser.add_argument(
        "--follow", action="store_true", help="wait for the run to start, and judge new steps until it ends"
    )
    parser.add_argument(
        "--timeout",
        type=positive,
        metavar="SECONDS",
        help="stop after this time; exit code 2 if steps remain unjudged",
    )
    parser.add_argument("--stop-training", action="store_true", help="request that training stops when a rule fires")
    parser.add_argument(
        "--allow-unjudged",
        action="store_true",
        help="do not fail if the run has no step, or if there is nothing to judge for the diagnosis or a named rule",
    )
    parser.add_argument(
        "--json", nargs="?", const="-", metavar="FILE", help="write the result as JSON to FILE or to standard output"
    )
    parser.add_argument(
        "--junit", nargs="?", const="-", metavar="FILE", help="write the result as JUnit XML to FILE or standard output"
    )
    add_scheduler(parser)
    parser.add_argument("--list", action="store_true", help="list the rules and their parameters, and exit")
