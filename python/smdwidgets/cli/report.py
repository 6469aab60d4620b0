"""One self-contained page of a run: its curves, its tensors with a slider that still moves, and what rules found.

The page needs no network, no server and no Python: send it, archive it, attach it to a build.

Examples:
  smdwidgets report runs/mlp -o report.html
  smdwidgets report runs/mlp -o report.html --tensors 'weight$' --rules LossSpike,DeadRelu
  smdwidgets report runs/mlp -o report.html --no-rules --limit-mb 5

Exit codes: 0 written, 2 it could not be
"""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path

from smdwidgets._text import byte_size, listed
from smdwidgets.cli._run import open_run, plain
from smdwidgets.cli.check import _by_default
from smdwidgets.exceptions import SMDebugError, SMDebugValueError
from smdwidgets.rules import RuleRunner
from smdwidgets.rules.progress import Progress
from smdwidgets.trials import Trial

#: Tensors that a page holds unless it is told which.
MOST = 12
#: What a page shows: everything but the exact values, which only a kernel has.
PANELS = ("histogram", "heatmap", "history", "statistics", "scalars")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declares what the command takes."""
    parser.add_argument("run", metavar="RUN", help="the run: a directory or an s3:// address")
    parser.add_argument("-o", "--output", metavar="FILE", default="report.html", help="(default: %(default)s)")
    parser.add_argument("--tensors", metavar="REGEX", help=f"tensors that can be looked at (default: {MOST} of them)")
    parser.add_argument(
        "--rules",
        metavar="A,B",
        help="names of rules (default: all that need no parameter and find something to judge)",
    )
    parser.add_argument("--no-rules", action="store_true", help="run none")
    parser.add_argument("--limit-mb", type=float, default=20.0, metavar="N", help="size of the page (default: 20)")


def run(args: argparse.Namespace) -> int:
    """Writes the page."""
    from smdwidgets.widgets import Explorer

    if not 0 < args.limit_mb < 2000:
        raise SMDebugValueError("--limit-mb takes megabytes, more than 0 and fewer than 2000.")
    if not (folder := Path(args.output).absolute().parent).is_dir():
        raise SMDebugValueError(f"There is no directory {plain(folder)} to write the page to.")
    with open_run(args.run) as trial:
        names = trial.tensor_names(regex=args.tensors) if args.tensors else _first(trial)
        if not names:
            raise SMDebugValueError("The run has no tensor" + (" of such a name." if args.tensors else " yet."))
        runner = None if args.no_rules else _judged(trial, args.rules)
        # A weight comes into view first, as in a notebook, unless it was said which tensors matter.
        chosen = {"tensor": names[0]} if args.tensors else {}
        panels = [*PANELS, *(["rules"] if runner is not None and len(runner) else [])]
        explorer = Explorer(trial, rules=runner, panels=panels, **chosen)
        if explorer.tensor not in names:
            explorer.tensor = names[0]
        try:
            size = explorer.to_html(args.output, tensors=names, limit=int(args.limit_mb * 1e6))
        finally:
            explorer.close()
        print(f"{plain(args.output)}: {byte_size(size)}, {len(names)} tensors ({plain(listed(names))})")
        if runner is not None:
            fired = [each.name for each in runner if each.fired]
            print(f"{len(fired)} of {len(runner)} rules fired" + (f": {', '.join(fired)}" if fired else ""))
    return 0


def _first(trial: Trial) -> list[str]:
    """Tensors worth a look: some of each collection that people look at, losses first."""
    names: dict[str, None] = {}
    for collection in ("losses", "weights", "gradients", "metrics", "outputs"):
        if collection in trial.collections():
            with contextlib.suppress(SMDebugError):  # a pattern that takes too long groups nothing
                names.update(dict.fromkeys(trial.tensor_names(collection=collection)[: MOST // 4]))
    names.update(dict.fromkeys(trial.tensor_names()[:MOST]))
    weights = [name for name in names if trial.tensor(name).dtype is not None]
    return sorted(weights[:MOST])


def _judged(trial: Trial, asked: str | None) -> RuleRunner:
    """The rules, done with what is there."""
    names = [name.strip() for name in (asked or "").split(",") if name.strip()] or _by_default({})
    runner = RuleRunner(trial, names, follow=False)
    with Progress("rules") as progress:
        runner.start()
        try:
            while not runner.wait(0.2):
                progress.update(*runner.progress)
        except KeyboardInterrupt:
            runner.stop(timeout=5.0)
            raise
    if not asked:
        # Most rules are about something that a run does not have: they would only hide what the others say.
        for evaluation in list(runner):
            if not (evaluation.judged or evaluation.fired or evaluation.errors):
                runner.remove(evaluation.name)
    return runner
