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


def jump(jumps, mode, now):
    return jumps.largest(mode, now, [(0, row) for row in range(len(now.names))])


def test_largest_jumps_are_listed_with_the_first_and_small_ones_are_left_out():
    jumps = Jumps()
    for step in range(80):
        jumps.push(TRAIN, columns(**{f"w{number}": [1.0 + step % 3, -1.0] for number in range(8)}))
    now = columns(**{f"w{number}": [-3.0 * 10**number] for number in range(8)})
    jumped = jump(jumps, TRAIN, now)
    assert [one.tensor for one in jumped] == ["w2", "w4", "w5", "w6", "w7"]  # 10 is less than the fourth root of 10**7
    assert (jumped[0].before, jumped[0].value) == (3.0, 300.0)
    assert [one.tensor for one in jumps.largest(TRAIN, now, [(0, -row) for row in range(8)])] == [
        "w7",
        "w6",
        "w5",
        "w4",
        "w3",
    ]
    assert jump(jumps, TRAIN, columns(w0=[4.0])) == ()
    assert jump(jumps, EVAL, now) == ()


@pytest.mark.parametrize("steps", [3, 7])
def test_few_steps_are_not_compared_with(steps):
    jumps = Jumps()
    for _ in range(steps):
        jumps.push(TRAIN, columns(w=[1.0]))
    assert jump(jumps, TRAIN, columns(w=[1e9])) == ()


def test_values_that_are_not_finite_and_zeros_are_no_measure():
    jumps = Jumps()
    for _ in range(20):
        jumps.push(TRAIN, columns(w=[0.0], nan=[math.nan], b=[1.0]))
    assert [one.tensor for one in jump(jumps, TRAIN, columns(w=[5.0], nan=[5.0], b=[5.0]))] == ["b"]


def test_tensors_that_come_at_some_steps_only():
    jumps = Jumps()
    for step in range(200):
        jumps.push(TRAIN, columns(**{"loss": [1.0], **({"w": [2.0]} if step % 4 == 0 else {})}))
    found = jump(jumps, TRAIN, columns(w=[2.0**20], loss=[1.0]))
    assert [(one.tensor, one.before) for one in found] == [("w", 2.0)]


def test_old_steps_are_forgotten():
    jumps = Jumps()
    for step in range(100):
        jumps.push(TRAIN, columns(w=[100.0 if step < 30 else 1.0]))
    assert jump(jumps, TRAIN, columns(w=[50.0]))[0].before == 1.0


def test_incident_lists_the_weight_that_jumped(tmp_path):
    rig = Rig(tmp_path)
    weights = np.ones((4, 4))
    for step in range(40):
        rig.step(step, weight1=weights, weight2=weights, loss=[1.0 + step % 2])
    weights[1, 2] = 2.0**20
    rig.step(40, weight1=weights, weight2=np.ones((4, 4)), loss=[9e3])
    with rig.close() as trial:
        [incident] = trial.incidents()
    assert incident.trigger.tensor == "loss"
    assert [one.tensor for one in incident.jumps] == ["weight1", "loss"]
    assert "first jump: 'weight1' from 1 to 1.05e+06" in str(incident)


def test_weight_is_named_before_what_it_raises_more(tmp_path):
    """A flipped bit raises the gradients of other layers by more than the weight."""
    rig = Rig(tmp_path)
    for step in range(41):
        factor = 2.0**20 if step == 40 else 1.0
        rig.step(
            step,
            weight1=np.full(3, factor),
            loss=[factor**2 * (1.0 + step % 2)],
            **{f"gradient/weight{layer}": np.full(3, factor**3) for layer in range(2, 9)},
        )
    with rig.close() as trial:
        [incident] = trial.incidents()
    assert [one.tensor for one in incident.jumps] == ["weight1", *(f"gradient/weight{layer}" for layer in (5, 4, 3, 2))]
    assert "first jump: 'weight1' from 1 to 1.05e+06" in str(incident)


def test_tensor_that_the_step_of_the_incident_lacks_is_compared_at_the_next_one(tmp_path):
    """With a capture plan, weights may be captured at some steps only."""
    rig = Rig(tmp_path)
    for step in range(50):
        factor = 2.0**20 if step >= 41 else 1.0
        weights = {f"weight{number}": np.full(3, factor if number == 2 else 1.0) for number in range(4)}
        rig.step(step, **(weights if step % 4 == 0 else {}), loss=[factor * (1.0 + step % 2)])
    with rig.close() as trial:
        [incident] = trial.incidents()
    assert incident.step == 41
    assert [(one.tensor, one.before) for one in incident.jumps] == [("loss", 2.0), ("weight2", 1.0)]
