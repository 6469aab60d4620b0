"""What `smdwidgets report` does."""

from __future__ import annotations

import argparse
from datetime import datetime
from typing import TYPE_CHECKING, Any

from smdwidgets._core import __version__
from smdwidgets._text import byte_size, listed, markup, natural, shown
from smdwidgets.cli._check_rules import wait_for_rules, without_required_parameters
from smdwidgets.cli._run import check_output, open_run, plain
from smdwidgets.diagnosis import Diagnosis, diagnose
from smdwidgets.exceptions import RunIOError, SMDebugValueError
from smdwidgets.rules import RuleRunner
from smdwidgets.rules.progress import Progress
from smdwidgets.trials import TensorBoardTrial, Trial
from smdwidgets.trials.matching import matching_names

if TYPE_CHECKING:
    from smdwidgets.widgets import Explorer
    from smdwidgets.widgets.page import WrittenPage

#: Default limits of the page in MB. Logs contain curves, other runs contain tensors.
LOG_MB, RUN_MB = 5.0, 20.0
#: Every panel. Of exact values, a page has those of texts.
PANELS = ("histogram", "heatmap", "history", "statistics", "values", "scalars")


def run(args: argparse.Namespace) -> int:
    """Write the report."""
    from smdwidgets.widgets import Explorer

    if args.limit_mb is not None and not 0 < args.limit_mb < 2000:
        raise SMDebugValueError(f"invalid --limit-mb {args.limit_mb}; must be greater than 0 and less than 2000")
    check_output(args.output, "the report")
    with open_run(args.run) as trial:
        names = sorted(matching_names(trial, args.tensors), key=natural) if args.tensors else None
        with Progress("diagnosis") as progress:
            diagnosis = diagnose(trial, progress=progress.update)
        runner = None if args.no_rules else _run_rules(trial, args.rules)
        # Without --tensors, the first tensor that a finding names, else the widget's default selection, which is a
        # weight.
        blamed = [name for finding in diagnosis.findings for name in finding.names if trial.has_tensor(name)]
        chosen: dict[str, Any] = {"tensor": (names or blamed)[0]} if names or blamed else {}
        panels = [*PANELS, *(["rules"] if runner is not None and len(runner) else [])]
        explorer = Explorer(trial, rules=runner, panels=panels, **chosen)
        try:
            limit = args.limit_mb or (LOG_MB if isinstance(trial, TensorBoardTrial) else RUN_MB)
            written = _write(explorer, args.output, names, int(limit * 1e6), diagnosis, _heading(trial, args.run))
            if explorer.diagnosis is not None:  # with what stands out in the map, and what the rules found
                diagnosis = explorer.diagnosis
        finally:
            explorer.close()
        opened = f"pictures of {len(written.opened)} of {len(trial.tensor_names())} tensors"
        print(f"{plain(args.output)}: {byte_size(written.size)}, {opened} ({plain(listed(written.opened))})")
        print(plain(diagnosis.summary, 4000))
        if runner is not None:
            fired = [each.name for each in runner if each.fired]
            print(f"{len(fired)} of {len(runner)} rules fired" + (f": {', '.join(fired)}" if fired else ""))
    return 0


def _heading(trial: Trial, given: str) -> str:
    """Return a heading as HTML: the run, its steps, date and command."""
    steps, end = trial.steps(show_incomplete_steps=True), trial.run_end()
    facts = [str(trial.path)]
    facts += [f"steps {steps[0]:,} to {steps[-1]:,}"] if steps else []
    facts += [str(end) if end is not None else "not ended"]
    now = datetime.now().astimezone().isoformat(" ", "minutes")
    made = f"Written {now} by smdwidgets {__version__}: smdwidgets report {given}"
    return f"<header><h1>{markup(trial.name)}</h1><p>{markup(' · '.join(facts))}<br><small>{markup(made)}</small></p></header>\n"


def _write(
    explorer: Explorer, path: str, names: list[str] | None, limit: int, diagnosis: Diagnosis, heading: str
) -> WrittenPage:
    from smdwidgets.widgets.page import write_page

    try:
        return write_page(explorer, path, names, limit, diagnosis, heading)
    except OSError as error:
        raise RunIOError(f"cannot write the report to {shown(path, 400)}: {error.strerror}") from error


def _run_rules(trial: Trial, requested: str | None) -> RuleRunner:
    """Evaluate the rules on the steps saved so far and return the runner."""
    names = [name.strip() for name in (requested or "").split(",") if name.strip()] or without_required_parameters({})
    runner = RuleRunner(trial, names, follow=False)
    wait_for_rules(runner)
    if not requested:
        # Most built-in rules do not apply to a given run; omit those that found nothing to judge.
        for evaluation in list(runner):
            if not (evaluation.judged or evaluation.fired or evaluation.errors):
                runner.remove(evaluation.name)
    return runner
