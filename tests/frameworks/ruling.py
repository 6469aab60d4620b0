"""Where a rule first fires on a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from smdwidgets import create_trial
from smdwidgets.rules import RuleRunner


def first_firing(run: Path, rule: str, **parameters: Any) -> int | None:
    """The first step at which a rule fires. A rule that judged nothing is a failure, not silence."""
    runner = RuleRunner(create_trial(run))
    evaluation = runner.add(rule, **parameters)
    runner.start()
    assert runner.wait(120)
    assert not evaluation.errors, evaluation.message
    assert evaluation.judged, evaluation.message
    return evaluation.first_firing.step if evaluation.first_firing else None
