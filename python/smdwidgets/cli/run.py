"""What `smdwidgets run` does."""

from __future__ import annotations

import argparse

from smdwidgets.launch.command import command_line, default_out, environment, start
from smdwidgets.launch.options import Options


def run(args: argparse.Namespace) -> int:
    """Run the script in place of this process."""
    given = Options(args.out, args.what, args.every, args.budget, args.config)
    command = command_line(args.command, args.module)
    options = given.or_else(Options.of_environment()).check()
    if not options.out:
        options = options.or_else(Options(out=default_out(args.command, args.module)))
    return start(command, environment(options))
