"""Schedules of a learning rate that begin again, or go on past their end."""

import numpy as np
import pytest

import smdwidgets

STEPS = np.arange(10, 410, 10)
FALLS = 2.0 * np.exp(-STEPS / 150) + 1.0


def cosine(steps, length, highest=4e-3):
    return highest * (1 + np.cos(np.pi * steps / length)) / 2


def findings(rate, loss=FALLS):
    return smdwidgets.diagnose({"learning_rate": (STEPS, rate), "loss": (STEPS, loss)}).findings


@pytest.mark.parametrize("warm_up", [0, 50])
def test_a_schedule_that_begins_again_in_the_middle_of_its_fall(warm_up):
    def rate_of(steps):
        return np.minimum(1, (steps + 1) / (warm_up + 1)) * cosine(np.maximum(0, steps - warm_up), 400)

    resumed = rate_of(np.where(STEPS <= 220, STEPS, STEPS - 220))
    [one] = findings(resumed)
    assert (one.kind, one.confidence, one.first) == ("rate_rise", "medium", 230)
    assert "the state of the schedule was not loaded" in one.text
    assert not findings(rate_of(STEPS))


def test_schedules_with_restarts_begin_again_at_their_end():
    assert not findings(cosine(STEPS % 100, 100))
    assert not findings(1e-3 + cosine(STEPS % 200, 200))
    assert not findings(np.where(STEPS % 200 < 100, 1e-3, 5e-4))  # steps, which do not fall steadily
    assert not findings(4e-3 * (1 - STEPS % 200 / 200))


def test_a_cosine_that_goes_on_past_its_end():
    [one] = findings(cosine(STEPS, 160))
    assert (one.kind, one.first) == ("schedule_over", 160)
    assert [one.kind for one in findings(np.minimum(STEPS / 50, 1) * cosine(STEPS - 50, 150))] == ["schedule_over"]


def test_rates_that_rise_on_purpose():
    triangle = 1 - np.abs((STEPS - 200) % 400 - 200) / 200
    assert not findings(1e-3 * (0.05 + triangle))
    one_cycle = np.where(STEPS < 120, STEPS / 120, (400 - np.minimum(STEPS, 400)) / 280)
    assert not findings(1e-3 * one_cycle)
    for length in (400, 330, 133):
        assert not findings(cosine(STEPS, length))
    assert not findings(np.zeros(40) + 1e-3)


@pytest.mark.parametrize("values", [[], [0.0], [1e-3], [0.0, 1e-3], [-1e-3] * 12, [np.nan] * 20])
def test_rates_without_a_schedule(values):
    steps = STEPS[: len(values)]
    kinds = [
        one.kind for one in smdwidgets.diagnose({"learning_rate": (steps, np.array(values)), "loss": (STEPS, FALLS)})
    ]
    assert not {"schedule_over", "rate_rise"}.intersection(kinds)
