"""What `smdwidgets report` does."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from smdwidgets._text import byte_size, listed, natural
from smdwidgets.cli._check_rules import without_required_parameters
from smdwidgets.cli._run import open_run, plain
from smdwidgets.diagnosis import diagnose
from smdwidgets.exceptions import SMDebugValueError
from smdwidgets.rules import RuleRunner
from smdwidgets.rules.progress import Progress
from smdwidgets.trials import TensorBoardTrial, Trial

#: Default limits of the page in MB. Logs contain curves, other runs contain tensors.
LOG_MB, RUN_MB = 5.0, 20.0
#: Every panel. Of exact values, a page has those of texts.
PANELS = ("histogram", "heatmap", "history", "statistics", "values", "scalars")


def run(args: argparse.Namespace) -> int:
    """Write the report."""
    from smdwidgets.widgets import Explorer
    from smdwidgets.widgets.page import write_page

    if args.limit_mb is not None and not 0 < args.limit_mb < 2000:
        raise SMDebugValueError(f"invalid --limit-mb {args.limit_mb}; must be greater than 0 and less than 2000")
    if not (folder := Path(args.output).absolute().parent).is_dir():
        raise SMDebugValueError(f"cannot write the report: directory {plain(folder)} does not exist")
    with open_run(args.run) as trial:
        names = sorted(trial.tensor_names(regex=args.tensors), key=natural) if args.tensors else None
        if names == []:
            raise SMDebugValueError(f"no tensor name matches --tensors {plain(args.tensors)}")
        with Progress("diagnosis") as progress:
            diagnosis = diagnose(trial, progress=progress.update)
        runner = None if args.no_rules else _run_rules(trial, args.rules)
        # Without --tensors, the first tensor that a finding names, else the widget's default selection, which is a weight.
        blamed = [name for finding in diagnosis.findings for name in finding.series if trial.has_tensor(name)]
        chosen: dict[str, Any] = {"tensor": (names or blamed)[0]} if names or blamed else {}
        panels = [*PANELS, *(["rules"] if runner is not None and len(runner) else [])]
        explorer = Explorer(trial, rules=runner, panels=panels, **chosen)
        try:
            limit = args.limit_mb or (LOG_MB if isinstance(trial, TensorBoardTrial) else RUN_MB)
            written = write_page(explorer, args.output, names, int(limit * 1e6), diagnosis)
        finally:
            explorer.close()
        opened = f"pictures of {len(written.opened)} of {len(trial.tensor_names())} tensors"
        print(f"{plain(args.output)}: {byte_size(written.size)}, {opened} ({plain(listed(written.opened))})")
        print(plain(diagnosis.summary, 4000))
        if runner is not None:
            fired = [each.name for each in runner if each.fired]
            print(f"{len(fired)} of {len(runner)} rules fired" + (f": {', '.join(fired)}" if fired else ""))
    return 0


def _run_rules(trial: Trial, requested: str | None) -> RuleRunner:
    """Evaluate the rules on the steps saved so far and return the runner."""
    names = [name.strip() for name in (requested or "").split(",") if name.strip()] or without_required_parameters({})
    runner = RuleRunner(trial, names, follow=False)
    with Progress("rules") as progress:
        runner.start()
        try:
            while not runner.wait(0.2):
                progress.update(*runner.progress)
        except KeyboardInterrupt:
            runner.stop(timeout=5.0)
            raise
    if not requested:
        # Most built-in rules do not apply to a given run; omit those that found nothing to judge.
        for evaluation in list(runner):
            if not (evaluation.judged or evaluation.fired or evaluation.errors):
                runner.remove(evaluation.name)
    return runner
