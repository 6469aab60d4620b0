"""Diagnose networks with a planted fault, and healthy ones.

The first finding is the cause; healthy networks have no finding.
One seed of each, which is one of those for tuning. `make diagnosis-report` measures all cases on other seeds.
"""

import numpy as np
import pytest

import smdwidgets
from diagnosis import views
from diagnosis.cases import DRAWN, HEALTHY, PLANTED, REPORT_SEEDS, is_healthy, seeds
from diagnosis.evaluate import NOISES, Task, false_alarms_of_noise, run_task
from diagnosis.trainings import SAVE_EVERY, Setup, train


@pytest.mark.slow
@pytest.mark.parametrize("case", PLANTED, ids=lambda case: case.name)
def test_first_finding_is_the_cause(case, tmp_path):
    case.train(tmp_path, 0)
    diagnosis = smdwidgets.diagnose(tmp_path)
    assert [one.kind for one in diagnosis][:1] == [kind for kind in case.expected if kind == diagnosis.findings[0].kind]
    finding = diagnosis.findings[0]
    assert finding.try_
    assert "{" not in finding.text + finding.try_
    if case.onset is not None:
        assert abs(finding.first - case.onset) <= 0.05 * 1500


@pytest.mark.slow
@pytest.mark.parametrize("case", HEALTHY, ids=lambda case: case.name)
def test_healthy_training_has_no_finding(case, tmp_path):
    case.train(tmp_path / "run", 0)
    fewer = views.every_fifth_save(tmp_path / "run", tmp_path / "fewer", SAVE_EVERY)
    for run in (tmp_path / "run", fewer):
        diagnosis = smdwidgets.diagnose(run)
        assert diagnosis.findings == ()
        assert diagnosis.can_tell


@pytest.mark.slow
@pytest.mark.parametrize("noise", NOISES)
def test_noise_has_few_findings(noise):
    assert false_alarms_of_noise(noise, 50, report=False) <= 3


def test_live_diagnoses_equal_those_of_the_whole_run(tmp_path):
    train(tmp_path, Setup(frozen=1, steps=600), 0)
    ends = (50, 310, 590)
    whole = [smdwidgets.diagnose(tmp_path, until=end) for end in ends]
    parts = []
    for end in ends:
        trial = smdwidgets.create_trial(tmp_path, range_steps=(None, end + 1))
        parts.append(smdwidgets.diagnose(trial))
    for one, other in zip(whole, parts, strict=True):
        assert one.findings == other.findings
        assert one.notes == other.notes
    assert [one.kind for one in whole[-1]] == ["frozen"]


def test_every_fifth_save_is_a_run_with_fewer_saves(tmp_path):
    train(tmp_path / "run", Setup(steps=200), 0)
    fewer = smdwidgets.create_trial(views.every_fifth_save(tmp_path / "run", tmp_path / "fewer", SAVE_EVERY))
    assert fewer.steps() == [0, 50, 100, 150]


def test_a_training_is_repeatable(tmp_path):
    first, second = (train(tmp_path / name, Setup(steps=100), 3) for name in ("first", "second"))
    assert first == second
    assert train(tmp_path / "third", Setup(steps=100), 4) != first


def test_outcome_decides_what_is_healthy():
    assert is_healthy([2.3, 1.0, 1.05])
    assert not is_healthy([2.3, 1.0, 1.2])
    assert not is_healthy([2.3, 2.2, 2.2])
    assert not is_healthy([2.3, 1.0, np.nan])


def test_seeds_for_reporting_are_not_used_for_tuning():
    assert not set(seeds(REPORT_SEEDS, report=False)) & set(seeds(REPORT_SEEDS, report=True))


def test_a_drawn_fault_is_judged_beside_its_healthy_twin():
    [at] = [at for at, case in enumerate(DRAWN) if case.name == "frozen layer"]
    outcome = run_task(Task("drawn", at, 0))
    assert outcome.right()
    assert not outcome.missed_harmlessly()
