"""Rules on runs written by smdebug: complete, damaged and unfinished runs."""

from __future__ import annotations

import pytest

from fixtures import unpacked
from smdwidgets import create_trial
from smdwidgets.exceptions import SMDebugError
from smdwidgets.rules import BUILTIN, RuleRunner

GOLDEN = unpacked("golden")
NEEDY = {"SimilarAcrossRuns", "CreateXgboostReport", "AllZero", "UnchangedTensor", "TensorVariance"}


@pytest.mark.parametrize("name", sorted(path.name for path in GOLDEN.iterdir() if (path / "run").is_dir()))
def test_no_rule_fails_on_golden_runs(name: str) -> None:
    try:
        trial = create_trial(GOLDEN / name / "run", skip_bad_index=True)
    except SMDebugError:
        return  # a run that cannot be opened cannot be judged
    runner = RuleRunner(trial, [rule for rule in BUILTIN if rule not in NEEDY], follow=False)
    for rule in ("AllZero", "UnchangedTensor", "TensorVariance"):
        runner.add(rule, tensor_regex=".", name=f"{rule} of all")
    runner.add("SimilarAcrossRuns", other_trials=trial)
    runner.start()
    assert runner.wait(60)
    assert {each.name: each.message for each in runner if each.errors} == {}
    assert not runner["SimilarAcrossRuns"].fired
