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
from smdwidgets.survey.sentence import LONGEST, text

Plant = Callable[[int, runs.Tensors], None]


def survey_of(root: Path, fault: Plant) -> Survey:
    survey = Survey(smdwidgets.create_trial(runs.written(root / "run", fault)))
    survey.update()
    return survey


def said(survey: Survey, rules: tuple[RuleFirings, ...] = ()) -> str:
    return text(survey.findings(rules)[1])


def test_healthy(tmp_path: Path) -> None:
    found, parts = survey_of(tmp_path, runs.healthy).findings()
    assert found == []
    assert text(parts[:1]) == "Nothing stands out in 13 tensors and 200 steps."
    assert " Largest change: `" in text(parts)
    assert [part.tensor != "" for part in parts] == [False, False, True, False]


def test_nan(tmp_path: Path) -> None:
    survey = survey_of(tmp_path, runs.nan)
    found, parts = survey.findings()
    assert [(one.kind, one.first, one.last) for one in found] == [
        ("not_finite", 120, 199),
        ("surprise", found[1].first, found[1].last),
    ]
    assert 110 <= found[1].first <= 116
    assert found[1].last <= 119
    assert found[0].tensors == ("layers.2.weight", "loss")
    assert found[0].text == (
        "`layers.2.weight` turns NaN (8 of 144 values) at step 120, until step 199; 1 more tensor follows."
    )
    assert text(parts).startswith(
        "Trouble starts at step 120: `layers.2.weight` turns NaN (8 of 144 values). "
        f"Before that, at step {found[1].first}: `gradient/layers.2.weight` grows to "
    )
    assert [(part.tensor, part.step) for part in parts if part.tensor] == [
        ("layers.2.weight", 120),
        ("gradient/layers.2.weight", found[1].first),
    ]


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
    assert said(survey, firings) == (
        f"Trouble starts at step {steps[0]}: `VanishingGradient` fires for `gradient/layers.0.weight` "
        f"({len(steps)} steps)."
    )


def test_dead(tmp_path: Path) -> None:
    survey = survey_of(tmp_path, runs.dead)
    assert said(survey) == "A change stands out at step 90: `relu_1` falls to 0."
    assert survey.findings()[0][0].severity == "warning"


def test_loss_spike(tmp_path: Path) -> None:
    survey = survey_of(tmp_path, runs.spike)
    [found] = survey.findings()[0]
    assert (found.kind, found.first, found.last, found.count) == ("loss_jump", 140, 142, 3)
    assert said(survey).startswith("Trouble starts at step 140: `loss` jumps from 0.")


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
    _, parts = survey.findings()
    assert text(parts) == (
        "In the 12 % read so far: trouble starts between steps 112 and 120: "
        "`layers.2.weight` turns NaN (8 of 144 values)."
    )


def test_two_causes_far_apart_are_two_findings(tmp_path: Path) -> None:
    def fault(step: int, saved: runs.Tensors) -> None:
        if step in (20, 150):
            saved["layers.0.weight" if step == 20 else "layers.3.weight"][0, 0] = np.inf

    survey = survey_of(tmp_path, fault)
    found, parts = survey.findings()
    assert [(one.kind, one.first, one.count) for one in found] == [("not_finite", 20, 1), ("not_finite", 150, 1)]
    assert (
        text(parts) == "Trouble starts at step 20: `layers.0.weight` turns infinite (1 of 144 values). 1 more finding."
    )


def test_the_infinities_of_a_mask_are_no_finding(tmp_path: Path) -> None:
    def fault(step: int, saved: runs.Tensors) -> None:
        saved["mask"] = np.where(np.tri(4) == 0, -np.inf, 0)

    assert survey_of(tmp_path, fault).findings()[0] == []


@pytest.mark.parametrize("name", ["w" * 3000, "a`b\x1b`c", "model." * 60 + "weight"])
def test_long_and_hostile_names(tmp_path: Path, name: str) -> None:
    def fault(step: int, saved: runs.Tensors) -> None:
        saved[name] = np.array([np.nan if step > 50 else 1.0])

    survey = survey_of(tmp_path, fault)
    found, parts = survey.findings()
    assert found[0].tensors == (name,)
    assert text(parts).count("`") == 2
    assert len(text(parts)) <= LONGEST
    assert text(parts).isprintable()
