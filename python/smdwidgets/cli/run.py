"""What `smdwidgets run` does."""

from __future__ import annotations

import argparse

from smdwidgets.exceptions import SMDebugValueError
from smdwidgets.launch.checking import check
from smdwidgets.launch.command import command_line, default_out, environment, start
from smdwidgets.launch.options import Options


def run(args: argparse.Namespace) -> int:
    """Run the script in place of this process."""
    steps = (args.steps or "50") if args.checks_only else ""
    if args.steps and not args.checks_only:
        raise SMDebugValueError("--steps requires --checks-only")
    arguments = Options(
        args.out, args.what, args.every, args.budget, args.config, args.checks, steps, "yes" if args.replay else ""
    )
    command = command_line(args.command, args.module)
    options = arguments.or_else(Options.of_environment()).check()
    if options.checks_only:
        return check(command, options)
    if not options.out:
        options = options.or_else(Options(out=default_out(args.command, args.module)))
    return start(command, environment(options))
