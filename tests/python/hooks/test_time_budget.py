"""Intervals of captured tensors follow what they cost, without alternating."""

from __future__ import annotations

import pytest

from smdwidgets import CapturePlan
from smdwidgets.hooks.capture.capture import Capture
from smdwidgets.hooks.capture.time_budget import LARGEST_INTERVAL, TimeBudget

LADDER = ("activations", "gradients", "weights")


class Training:
    """A training whose clock only advances in steps.

    Its capture costs given seconds a step and kind.
    """

    def __init__(self, step, share=0.01, fixed=None, **costs):
        self.now = 0.0
        self.taken = 0.0
        self.step, self.costs = step, costs
        self.budget = TimeBudget(share, LADDER, fixed, clock=lambda: self.now)
        self.changes = []
        self.number = 0

    def run(self, steps):
        for _ in range(steps):
            for changed in self.budget.step(self.taken):
                self.changes.append((self.number, changed, self.budget.interval(changed)))
            for kind, cost in self.costs.items():
                interval = self.budget.interval(kind)
                if interval and self.number % interval == 0:
                    self.budget.spend(kind, cost)
                    self.taken += cost
                    self.now += cost
            self.now += self.step
            self.number += 1
        return self

    def intervals(self):
        return [self.budget.interval(kind) for kind in LADDER]

    def share(self):
        before = self.taken, self.now
        self.run(2 * LARGEST_INTERVAL)
        taken, wall = self.taken - before[0], self.now - before[1]
        return taken / (wall - taken)


def test_cheap_capture_stays_at_every_step():
    training = Training(0.1, activations=0.0003, gradients=0.0003, weights=0.0003).run(50_000)
    assert training.intervals() == [1, 1, 1]
    assert training.changes == []


def test_activations_become_rarer_first():
    training = Training(0.1, activations=0.002, gradients=0.0003, weights=0.0003).run(20_000)
    assert {kind for _, kind, _ in training.changes} == {"activations"}
    assert training.intervals()[1:] == [1, 1]
    assert training.share() <= 0.0125


def test_kind_that_costs_little_keeps_its_interval_if_another_is_to_blame():
    training = Training(0.1, activations=0.0001, gradients=0.01, weights=0.01).run(50_000)
    assert training.intervals()[0] == 1
    assert training.share() <= 0.0125


def test_intervals_do_not_alternate():
    for cost in (0.0011, 0.0013, 0.002, 0.004, 0.016, 0.1):
        training = Training(0.1, activations=cost, gradients=cost / 3, weights=cost / 3).run(20_000)
        late = [change for change in training.changes if change[0] > 5_000]
        assert late == []
        assert training.share() <= 0.0125


def test_cost_that_goes_away_makes_captures_frequent_again():
    training = Training(0.1, activations=0.01, gradients=0.01, weights=0.01).run(20_000)
    assert max(training.intervals()) > 1
    training.costs = dict.fromkeys(LADDER, 0.0001)
    training.run(20_000)
    assert training.intervals() == [1, 1, 1]


def test_short_training_is_captured_whole():
    training = Training(0.005, activations=0.0005, gradients=0.0005, weights=0.0005).run(400)
    assert training.intervals() == [1, 1, 1]


@pytest.mark.parametrize("step", [0.001, 0.0045, 0.03, 0.3])
@pytest.mark.parametrize("costs", [0.2, 1.0, 3.0])
@pytest.mark.parametrize("floor", [0.0, 0.004, 0.5])
def test_the_share_is_reached_within_three_seconds_of_training(step, costs, floor):
    training = WithFloor(step, activations=0.5 * costs * step, gradients=0.3 * costs * step, weights=0.2 * costs * step)
    training.floor = floor * step
    training.run(int(3 / step) + 1)
    assert training.share() <= max(0.01 * 1.25, floor * 1.5 * 1.05)


def test_the_share_that_is_reported_is_that_of_the_clock():
    training = WithFloor(0.0045, activations=0.003, gradients=0.001, weights=0.001)
    training.floor = 0.00001
    training.run(20_000)
    assert training.budget.measured_share == pytest.approx(training.share(), rel=0.1)
    assert training.budget.floor_share == pytest.approx(0.00001 / 0.0045, rel=0.1)


def test_a_step_that_is_interrupted_changes_little():
    training = Training(0.1, activations=0.0003, gradients=0.0003, weights=0.0003).run(1000)
    for _ in range(20):
        training.costs["activations"] = 1.0
        training.run(1)
        training.costs["activations"] = 0.0003
        training.run(199)
    assert training.changes == []


class Waiting(Training):
    """A training that waits for so many seconds a capture."""

    is_in_hook = True

    def __init__(self, step, **waits):
        super().__init__(step)
        self.budget = TimeBudget(0.01, ("values", *LADDER), clock=lambda: self.now)
        self.waits, self.waited = waits, 0.0

    def run(self, steps):
        for _ in range(steps):
            self.changes += self.budget.step(self.taken, self.waited)
            for kind, seconds in self.waits.items():
                if self.number % self.budget.interval(kind) == 0:
                    self.budget.spend_beside(kind, seconds)
                    self.waited += seconds
                    self.taken += seconds if self.is_in_hook else 0.0
                    self.now += seconds
            self.now += self.step
            self.number += 1
        return self


def test_waiting_for_the_disk_makes_values_rarer():
    training = Waiting(0.1, values=0.01).run(500)
    assert training.budget.interval("values") == 16
    assert training.intervals() == [1, 1, 1]


@pytest.mark.parametrize("is_in_hook", [True, False])
def test_waiting_for_statistics_makes_their_tensors_rarer(is_in_hook):
    training = Waiting(0.1, values=0.00001, activations=0.05)
    training.is_in_hook = is_in_hook
    training.run(2000)
    assert training.budget.interval("values") == 1
    assert 32 <= training.budget.interval("activations") <= 128
    assert training.intervals()[1:] == [1, 1]


def test_a_training_that_only_waits_is_not_a_short_one():
    training = Waiting(0.02, activations=4.0).run(12)
    assert training.budget.interval("activations") == LARGEST_INTERVAL
    assert training.waited < 40


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ({}, {"values": 2.0}),
        ({"values": 1.0}, {"values": 2.0}),
        ({"activations": 3.0, "values": 1.0}, {"activations": 1.5, "values": 0.5}),
    ],
)
def test_a_wait_is_due_to_what_the_writer_was_busy_with(written, expected):
    capture = Capture(CapturePlan(), {"all": "activations"})
    spent = {}
    capture.time.spend_beside = lambda kind, seconds: spent.update({kind: seconds})
    for kind, seconds in written.items():
        capture.wrote(kind, seconds)
    capture.measure(1, 3.0, 2.0)
    assert spent == expected
    capture.device_copied("weights", 0.25)
    capture.measure(2, 3.0, 2.0)
    assert spent == {**expected, "weights": 0.25}


def test_compilation_during_the_first_steps_is_not_counted():
    training = Training(0.1, activations=30.0).run(10)
    training.costs = {"activations": 0.0001}
    training.run(20_000)
    assert training.changes == []


def test_fixed_interval_is_not_adapted():
    training = Training(0.1, fixed=10, activations=1.0, gradients=1.0, weights=1.0).run(5000)
    assert training.intervals() == [10, 10, 10]


def test_nothing_left_to_save():
    training = Training(0.001, activations=10.0, gradients=10.0, weights=10.0).run(20_000)
    assert training.intervals() == [LARGEST_INTERVAL] * 3


@pytest.mark.parametrize("back", [5.0, 1e6])
def test_clock_that_goes_backwards(back):
    training = Training(0.1, activations=0.0001).run(1000)
    training.now -= back
    training.run(int(back * 20) if back < 100 else 1000)
    assert training.intervals() == [1, 1, 1]


class WithFloor(Training):
    """A training in which a part of the hook's cost is that of every step."""

    floor = 0.0

    def run(self, steps):
        for _ in range(steps):
            self.taken += self.floor
            self.now += self.floor
            super().run(1)
        return self


@pytest.mark.parametrize("floor", [0.05, 0.2])
def test_captures_are_not_given_up_for_a_cost_that_no_interval_changes(floor):
    training = WithFloor(0.1, activations=0.005, gradients=0.003, weights=0.002)
    training.floor = floor * 0.1 if floor < 0.2 else 0.05
    training.run(20_000)
    assert max(training.intervals()) <= (2 if floor == 0.2 else 16)
    late = [change for change in training.changes if change[0] > 10_000]
    assert late == []


def test_captures_do_not_take_more_than_a_floor_above_the_share():
    training = WithFloor(0.1, activations=0.005, gradients=0.003, weights=0.002)
    training.floor = 0.002  # twice the share
    training.run(50_000)
    assert max(training.intervals()) <= 32
    assert training.share() <= 0.05


def test_a_floor_above_the_time_of_the_training_excuses_a_tenth_of_that():
    training = WithFloor(1e-4, activations=5e-5, gradients=3e-5, weights=2e-5)
    training.floor = 2e-4
    training.run(100_000)
    assert training.share() <= 2 + 0.1 * 1.25


def test_floor_below_the_share_is_counted():
    training = WithFloor(0.1, activations=0.005, gradients=0.003, weights=0.002)
    training.floor = 0.0004
    training.run(50_000)
    assert training.share() <= 0.0135
