"""The tensors whose magnitudes jump at a step."""

from __future__ import annotations

import math

import numpy as np
import pytest

from python.hooks.flight import Rig, statistics_of
from smdwidgets.hooks.incidents.jumps import Jumps
from smdwidgets.hooks.incidents.step_columns import StepColumns
from smdwidgets.modes import ModeKeys

TRAIN, EVAL = ModeKeys.TRAIN, ModeKeys.EVAL


def columns(**tensors):
    return StepColumns([statistics_of(tensors)])


def test_largest_jumps_come_first_and_small_ones_are_left_out():
    jumps = Jumps()
    for step in range(80):
        jumps.push(TRAIN, columns(**{f"w{number}": [1.0 + step % 3, -1.0] for number in range(8)}))
    now = columns(**{f"w{number}": [-3.0 * 10**number] for number in range(8)})
    found = jumps.largest(TRAIN, now)
    assert [one.tensor for one in found] == ["w7", "w6", "w5", "w4", "w3"]
    assert (found[0].before, found[0].value) == (3.0, 3e7)
    assert jumps.largest(TRAIN, columns(w0=[4.0])) == ()
    assert jumps.largest(EVAL, now) == ()


@pytest.mark.parametrize("steps", [3, 7])
def test_few_steps_are_not_compared_with(steps):
    jumps = Jumps()
    for _ in range(steps):
        jumps.push(TRAIN, columns(w=[1.0]))
    assert jumps.largest(TRAIN, columns(w=[1e9])) == ()


def test_values_that_are_not_finite_and_zeros_are_no_measure():
    jumps = Jumps()
    for _ in range(20):
        jumps.push(TRAIN, columns(w=[0.0], nan=[math.nan], b=[1.0]))
    assert [one.tensor for one in jumps.largest(TRAIN, columns(w=[5.0], nan=[5.0], b=[5.0]))] == ["b"]


def test_tensors_that_come_at_some_steps_only():
    jumps = Jumps()
    for step in range(200):
        jumps.push(TRAIN, columns(**{"loss": [1.0], **({"w": [2.0]} if step % 4 == 0 else {})}))
    found = jumps.largest(TRAIN, columns(w=[2.0**20], loss=[1.0]))
    assert [(one.tensor, one.before) for one in found] == [("w", 2.0)]


def test_old_steps_are_forgotten():
    jumps = Jumps()
    for step in range(100):
        jumps.push(TRAIN, columns(w=[100.0 if step < 30 else 1.0]))
    assert jumps.largest(TRAIN, columns(w=[50.0]))[0].before == 1.0


def test_incident_lists_the_weight_that_jumped(tmp_path):
    rig = Rig(tmp_path)
    weights = np.ones((4, 4))
    for step in range(40):
        rig.step(step, loss=[1.0 + step % 2], weight1=weights, weight2=weights)
    weights[1, 2] = 2.0**20
    rig.step(40, loss=[9e3], weight1=weights, weight2=np.ones((4, 4)))
    with rig.close() as trial:
        [incident] = trial.incidents()
    assert incident.trigger.tensor == "loss"
    assert [one.tensor for one in incident.jumps] == ["weight1", "loss"]
    assert "largest jump: 'weight1' from 1 to 1.05e+06" in str(incident)
