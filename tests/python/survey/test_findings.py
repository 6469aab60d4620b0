"""What stands out in runs with planted faults, and the sentence about it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import smdwidgets
from python.survey import runs
from smdwidgets.rules import RuleRunner
from smdwidgets.survey import RuleFirings, Survey
from smdwidgets.survey.sentence import text

Plant = Callable[[int, runs.Tensors], None]


def survey_of(root: Path, fault: Plant) -> Survey:
    survey = Survey(smdwidgets.create_trial(runs.written(root / "run", fault)))
    survey.update()
    return survey


def said(survey: Survey, rules: tuple[RuleFirings, ...] = ()) -> str:
    return text(survey.sentence(survey.findings(rules)))


def test_healthy(tmp_path: Path) -> None:
    survey = survey_of(tmp_path, runs.healthy)
    assert survey.findings() == []
    parts = survey.sentence([])
    assert text(parts[:1]) == "Nothing stands out in 13 tensors and 200 steps."
    assert " Largest change: `" in text(parts)
    assert [part.tensor != "" for part in parts] == [False, False, True, False]


def test_nan(tmp_path: Path) -> None:
    survey = survey_of(tmp_path, runs.nan)
    nan, change = survey.findings()
    assert (nan.kind, nan.level, nan.confidence, nan.source) == ("not_finite", "problem", "proof", "survey")
    assert (nan.first, nan.last, nan.names) == (120, 199, ("layers.2.weight", "loss"))
    assert nan.text.startswith(
        "`layers.2.weight` is NaN from step 120 to 199 (8 of 144 values; 1 more tensor follows). "
    )
    assert (change.kind, change.level, change.subject) == ("stands_out", "note", "gradient/layers.2.weight")
    assert 110 <= change.first <= 116
    assert change.last <= 119
    assert change.title.startswith("`gradient/layers.2.weight` grows to ")
    parts = survey.sentence([nan, change])
    assert text(parts) == "`layers.2.weight` is NaN from step 120 to 199. 1 more."
    assert [(part.tensor, part.step) for part in parts if part.tensor] == [("layers.2.weight", 120)]


def test_vanishing(tmp_path: Path) -> None:
    survey = survey_of(tmp_path, runs.vanishing)
    assert said(survey).startswith("Nothing stands out")  # slow rot is what rules are for
    runner = RuleRunner(survey.trial)
    runner.add("VanishingGradient", threshold=1e-4)
    runner.start()
    assert runner.wait(60)
    rule = runner["VanishingGradient"]
    steps = tuple(event.step for event in rule.firings if event.step is not None)
    assert steps
    firings = (RuleFirings("VanishingGradient", steps, {"gradient/layers.0.weight": steps[:1]}),)
    [finding] = survey.findings(firings)
    assert finding.title == f"`VanishingGradient` fires for `gradient/layers.0.weight` ({len(steps)} steps)"
    assert (finding.kind, finding.source, finding.subject) == ("rule", "rule", "VanishingGradient")
    assert finding.names[1:] == ("gradient/layers.0.weight",)


def test_dead(tmp_path: Path) -> None:
    survey = survey_of(tmp_path, runs.dead)
    assert said(survey) == "`relu_1` falls to 0 at step 90."
    assert survey.findings()[0].level == "warning"


def test_loss_spike(tmp_path: Path) -> None:
    [finding] = survey_of(tmp_path, runs.spike).findings()
    assert (finding.kind, finding.level, finding.first, finding.last) == ("spike", "note", 140, 142)
    assert finding.text.startswith("`loss` jumps at step 140 (0.")


def test_partial(tmp_path: Path) -> None:
    survey = Survey(smdwidgets.create_trial(runs.written(tmp_path / "run", runs.nan)))
    _, blocks = survey._feed.plan()
    for block in blocks:
        taken = [step for step in block.steps if step % 8 == 0]
        block.steps = [step for step in block.steps if step % 8]
        for step in taken:
            part = type(block)(block.names, [step], None, 0.0)
            survey.table.add(survey._feed.read(part, 1))
    survey._blocks = blocks
    survey._report("sampled")
    assert said(survey) == "In the 12 % read so far: `layers.2.weight` is NaN since a step between 112 and 120."


def test_two_causes_far_apart_are_two_findings(tmp_path: Path) -> None:
    def fault(step: int, saved: runs.Tensors) -> None:
        if step in (20, 150):
            saved["layers.0.weight" if step == 20 else "layers.3.weight"][0, 0] = np.inf

    survey = survey_of(tmp_path, fault)
    assert [(one.kind, one.first, one.last) for one in survey.findings()] == [
        ("not_finite", 20, 20),
        ("not_finite", 150, 150),
    ]
    assert said(survey) == "`layers.0.weight` is infinite at step 20. 1 more."


def test_the_infinities_of_a_mask_are_no_finding(tmp_path: Path) -> None:
    def fault(step: int, saved: runs.Tensors) -> None:
        saved["mask"] = np.where(np.tri(4) == 0, -np.inf, 0)

    assert survey_of(tmp_path, fault).findings() == []


@pytest.mark.parametrize("name", ["w" * 3000, "a`b\x1b`c", "model." * 60 + "weight"])
def test_long_and_hostile_names(tmp_path: Path, name: str) -> None:
    def fault(step: int, saved: runs.Tensors) -> None:
        saved[name] = np.array([np.nan if step > 50 else 1.0])

    survey = survey_of(tmp_path, fault)
    [finding] = survey.findings()
    assert finding.names == (name,)
    assert said(survey).count("`") == 2
    assert len(said(survey)) <= 200
    assert said(survey).isprintable()
