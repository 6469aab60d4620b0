"""Saved steps stay within their share; the first and last ones are kept."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smdwidgets.config.capture_plan import CapturePlan
from smdwidgets.hooks.capture.disk_budget import DiskBudget, Spacing
from smdwidgets.modes import ModeKeys


def save(spacing, key, nbytes):
    """Save a step as the writer does.

    Returns whether it was saved, and the thinned steps.
    """
    if not spacing.wants(key[2]):
        return False, []
    fits, thinned = spacing.make_room(key, nbytes)
    if fits:
        spacing.saved(key, nbytes)
    return fits, thinned


def train(spacing, sizes):
    """Return the steps left and the number of deletions."""
    left, deletions = [], 0
    for step, nbytes in enumerate(sizes):
        fits, thinned = save(spacing, (step, ModeKeys.TRAIN, step), nbytes)
        deletions += len(thinned)
        left = [each for each in left if each not in {key[0] for key in thinned}]
        assert spacing.used <= spacing.share
        left += [step] if fits else []
        assert [key[0] for key in spacing.steps] == left
    return left, deletions


def test_long_training_keeps_evenly_spaced_steps():
    left, deletions = train(Spacing(share=16 * 100), [100] * 123_457)
    assert 8 <= len(left) <= 16
    assert left[0] == 0
    spacing = left[2] - left[1]
    assert spacing & (spacing - 1) == 0
    assert left[:-2] == list(range(0, left[-2], spacing))[: len(left) - 2]
    assert deletions < 150


def test_last_steps_are_kept():
    spacing = Spacing(share=10 * 100, keep_last=3)
    for step in range(1000):
        before = spacing.steps[-2:]
        save(spacing, (step, ModeKeys.TRAIN, step), 100)
        assert set(before) <= set(spacing.steps)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 400), min_size=1, max_size=300), st.integers(500, 5000), st.integers(0, 4))
def test_share_is_never_exceeded(sizes, share, keep_last):
    left, _ = train(Spacing(share, keep_last=keep_last), sizes)
    assert left[0] == 0


def test_step_larger_than_the_share_is_not_saved():
    spacing = Spacing(share=100)
    assert train(spacing, [101] * 10) == ([], 0)
    assert spacing.every == 1


@pytest.mark.parametrize("parts", [1, 2, 3, 4])
def test_share_of_few_steps_keeps_the_first_and_the_last(parts):
    left, _ = train(Spacing(share=parts * 100), [100] * 1000)
    assert len(left) <= parts
    assert left[0] == 0
    assert parts == 1 or left[-1] > 500


def test_first_step_of_each_mode_is_kept():
    spacing = Spacing(share=1000)
    number = 0
    for mode, count in ((ModeKeys.TRAIN, 100), (ModeKeys.EVAL, 100), (ModeKeys.TRAIN, 100)):
        start = 100 if number == 200 else 0
        for step in range(count):
            save(spacing, (number, mode, start + step), 100)
            number += 1
    assert {(0, ModeKeys.TRAIN, 0), (100, ModeKeys.EVAL, 0)} <= set(spacing.steps)


def test_step_saved_again_counts_once():
    spacing = Spacing(share=1000)
    key = (0, ModeKeys.TRAIN, 0)
    for nbytes in (300, 500, 900):
        assert save(spacing, key, nbytes) == (True, [])
    assert spacing.used == 900


class Disk:
    def __init__(self, free, total=10**11):
        self.free, self.total = free, total

    def __call__(self):
        return self.free, self.total


def test_reserve_is_5_percent_of_the_disk_but_leaves_half_of_what_is_free():
    assert DiskBudget(CapturePlan(), free=Disk(5 * 10**10)).reserve == 5 * 10**9
    assert DiskBudget(CapturePlan(), free=Disk(10**9, total=4 * 10**9)).reserve == 5 * 10**8
    assert DiskBudget(CapturePlan(reserve="3GB"), free=Disk(1)).reserve == 3 * 10**9
    assert DiskBudget(CapturePlan()).reserve == 0


def test_full_disk_pauses_values_then_incidents_then_statistics_and_resumes():
    disk = Disk(10**10)
    budget = DiskBudget(CapturePlan(reserve="1GB"), free=disk)
    states = []
    for free in (10**10, 9 * 10**8, 4 * 10**8, 2 * 10**8, 9 * 10**8, 105 * 10**7, 12 * 10**8):
        disk.free = free
        changed = budget.check()
        states.append((changed, budget.paused, budget.allows_incident(1), budget.statistics_interval))
    assert states == [
        (False, False, True, 1),
        (True, True, True, 1),
        (False, True, False, 1),
        (False, True, False, 10),
        (False, True, True, 1),
        (False, True, True, 1),
        (True, False, True, 1),
    ]


def test_incidents_have_a_separate_share():
    budget = DiskBudget(CapturePlan(budget="1GB"))
    key = (7, ModeKeys.TRAIN, 7)
    save(budget.values, key, 10**8)
    budget.keep(key)
    assert (budget.values.used, budget.incidents_used) == (0, 10**8)
    assert budget.allows_incident(2 * 10**8)
    assert not budget.allows_incident(2 * 10**8 + 1)


def test_workers_share_the_budget():
    assert DiskBudget(CapturePlan(), workers=4).values.share == DiskBudget(CapturePlan()).values.share // 4


def test_statistics_become_rarer_before_their_share_is_used_up():
    budget = DiskBudget(CapturePlan(budget="1MB"))
    used, steps = 0, []
    for step in range(100_000):
        if step % budget.statistics_interval == 0:
            used += 50
            steps.append(step)
            budget.wrote_statistics(50)
    assert 80_000 < used <= budget.statistics_share
    assert steps[:1000] == list(range(1000))
    assert budget.statistics_interval > 8


def test_full_disk_without_a_reserve_resumes_when_two_steps_fit():
    disk = Disk(1000)
    budget = DiskBudget(CapturePlan(reserve=0), free=disk)
    disk.free = 700
    assert budget.fill(400)
    assert (budget.check(), budget.paused) == (False, True)
    disk.free = 1600
    assert (budget.check(), budget.paused) == (True, False)
    assert not budget.fill(400)  # the disk has space: another limit


@pytest.mark.parametrize(
    ("model", "workers", "total"),
    [(0, 1, 10**8), (10**6, 1, 10**8), (10**7, 1, 2 * 10**8), (10**9, 1, 2 * 10**9), (10**7, 4, 2 * 10**8)],
)
def test_the_budget_follows_the_size_of_the_model_by_default(model, workers, total):
    budget = DiskBudget(CapturePlan(), workers)
    assert budget.total == 10**8 // workers
    budget.fit(model)
    assert budget.total == total if workers == 1 else 10**8 // workers < budget.total == total
    assert budget.values.share == pytest.approx(0.4 * budget.total)


def test_a_budget_that_was_asked_for_is_kept():
    budget = DiskBudget(CapturePlan(budget="3GB"))
    budget.fit(10**9)
    assert budget.total == 3 * 10**9
