"""What counts as something breaking, judged from the statistics of steps."""

from __future__ import annotations

import math

import numpy as np
import pytest

from python.hooks.flight import statistics_of
from smdwidgets.hooks.incidents.step_columns import StepColumns
from smdwidgets.hooks.incidents.triggers import Triggers
from smdwidgets.modes import ModeKeys
from smdwidgets.naming.tensors import Kind, Kinds

TRAIN, EVAL = ModeKeys.TRAIN, ModeKeys.EVAL
MEMBERS = {"losses": ("loss", "val_loss"), "gradients": ("gradient/w", "gradient/b"), "weights": ("w",)}


@pytest.fixture
def triggers():
    return Triggers(Kinds(lambda collection, name: name in MEMBERS.get(collection, ())))


def judge(triggers, step, mode=TRAIN, **tensors):
    named = {name.replace("__", "/"): value for name, value in tensors.items()}
    return triggers.judge((step, mode, step), StepColumns([statistics_of(named)]))


def test_spike_needs_15_values_and_eight_deviations_above_the_median(triggers):
    noise = np.random.default_rng(0).normal(0, 0.01, 400)
    for step in range(15):
        assert judge(triggers, step, loss=[5 * (step % 2) + 1.0]) == []  # no spike without a window
    fresh = Triggers(Kinds(lambda collection, name: name in MEMBERS.get(collection, ())))
    for step in range(200):
        assert judge(fresh, step, loss=[1 + noise[step]]) == []
    assert judge(fresh, 200, loss=[1.4]) == []  # half of the median is 0.5
    [cause] = judge(fresh, 201, loss=[1.6])
    assert cause.why.startswith("loss 1.6 is far above the last 50 (limit 1.")
    assert (cause.trigger.tensor, cause.trigger.column, cause.trigger.value) == ("loss", "mean", 1.6)


def test_plateau_after_a_jump_is_one_spike(triggers):
    found = [step for step in range(300) for _ in judge(triggers, step, loss=[1.0 if step < 100 else 50.0])]
    assert found == [100]


def test_rises_of_a_loss_that_is_as_good_as_zero_are_rounding(triggers):
    """Of a model that has learned its data by heart."""
    for step in range(600):
        value = 2.3 if step < 60 else 0.0 if step % 57 else 1.863e-09
        assert judge(triggers, step, loss=[value]) == []
    [cause] = judge(triggers, 600, loss=[1e-3])
    assert cause.why.startswith("loss 0.001 is far above")


def test_losses_of_modes_are_judged_apart(triggers):
    for step in range(200):
        assert judge(triggers, step, EVAL if step % 2 else TRAIN, loss=[100.0 if step % 2 else 1.0]) == []


@pytest.mark.parametrize("every", [1, 5, 100])
def test_lasting_nan_is_one_incident_at_any_interval(triggers, every):
    found = []
    for step in range(0, 1000, every):
        value = math.nan if step >= 400 else 1.0
        found += [step for _ in judge(triggers, step, w=[value], loss=[1.0])]
        if step % 200 == 0:
            found += [step for _ in judge(triggers, step, EVAL, loss=[value])]
    assert found == [400]


def test_nan_of_evaluations_alone_is_one_incident(triggers):
    found = []
    for step in range(1000):
        evaluates = step % 100 == 99
        bad = evaluates and step > 500
        mode = EVAL if evaluates else TRAIN
        found += [step for _ in judge(triggers, step, mode, loss=[math.nan if bad else 1.0])]
    assert found == [599]


def test_nan_that_comes_back_is_another_incident(triggers):
    found = []
    for step in range(0, 3000, 100):
        bad = step in (500, 600, 1700, 2800)
        found += [step for _ in judge(triggers, step, w=[math.nan if bad else 1.0])]
    assert found == [500, 1700, 2800]


def test_gradient_norm_is_computed_where_the_optimizer_does_not_report_it(triggers):
    for step in range(64):
        assert judge(triggers, step, gradient__w=np.full(4, 1.0), gradient__b=np.full(4, 0.1)) == []
    [cause] = judge(triggers, 64, gradient__w=np.full(4, 1.0), gradient__b=np.full(4, 30.0))
    assert cause.why.startswith("gradient norm 60.03 is far above")
    assert (cause.trigger.tensor, cause.trigger.column) == ("gradient/b", "l2")


def test_reported_gradient_norm_is_preferred(triggers):
    for step in range(64):
        judge(triggers, step, gradient__w=[1.0], optimizer__SGD__gradient_norm=[2.0])
    [cause] = judge(triggers, 64, gradient__w=[1.0], optimizer__SGD__gradient_norm=[50.0])
    assert cause.trigger.tensor == "optimizer/SGD/gradient_norm"


def test_infinities_of_an_output_from_the_beginning_are_a_mask(triggers):
    mask = [0.0, -math.inf]
    for step in range(50):
        assert judge(triggers, step, attention_output_0=mask, loss=[1.0]) == []
    [cause] = judge(triggers, 50, attention_output_0=[0.0, math.inf], loss=[1.0])
    assert cause.trigger.column == "pos_inf"
    for step in range(51, 70):
        assert judge(triggers, step, attention_output_0=mask, loss=[1.0]) == []
    [cause] = judge(triggers, 70, attention_output_0=[0.0, math.nan], loss=[1.0])
    assert cause.trigger.column == "nan"


def test_norm_shows_a_nan_in_gradients_that_were_not_captured(triggers):
    for step in range(20):
        assert judge(triggers, step, w=[1.0], optimizer__SGD__gradient_norm=[2.0]) == []
    [cause] = judge(triggers, 20, w=[1.0], optimizer__SGD__gradient_norm=[math.nan])
    assert cause.trigger.tensor == "optimizer/SGD/gradient_norm"
    assert judge(triggers, 21, w=[math.nan], optimizer__SGD__gradient_norm=[math.nan]) == []


def test_gradient_is_named_before_its_norm(triggers):
    for step in range(20):
        judge(triggers, step, gradient__w=[1.0], optimizer__SGD__gradient_norm=[1.0])
    [cause] = judge(triggers, 20, optimizer__SGD__gradient_norm=[math.nan], gradient__w=[math.nan])
    assert cause.trigger.tensor == "gradient/w"


def test_nan_of_an_output_counts_from_the_first_step(triggers):
    assert len(judge(triggers, 0, net_output_0=[math.nan])) == 1


def test_infinities_of_a_gradient_are_never_a_mask(triggers):
    assert len(judge(triggers, 0, gradient__w=[math.inf])) == 1


@pytest.mark.parametrize(
    ("bad", "first"),
    [
        ({"loss", "gradient/w", "gradient/b"}, "loss"),
        ({"gradient/w", "gradient/b"}, "gradient/b"),
        ({"net_output_0", "loss", "gradient/w"}, "net_output_0"),
        ({"w", "net_output_0", "loss", "gradient/w"}, "w"),
    ],
)
def test_first_tensor_in_causal_order_is_named(triggers, bad, first):
    """An observed loss is captured after the gradients."""
    names = ["w", "net_input_0", "net_output_0", "gradient/w", "gradient/b", "loss"]
    for step in range(20):
        assert judge(triggers, step, **{name.replace("/", "__"): [1.0] for name in names}) == []
    values = {name.replace("/", "__"): [math.inf if name in bad else 1.0] for name in names}
    cause = judge(triggers, 20, **values)[0]
    assert cause.trigger.tensor == first


def test_input_that_is_not_finite_is_the_cause(triggers):
    values = {"w": [1.0], "net_input_0": [math.nan], "net_output_0": [math.nan], "loss": [math.nan]}
    assert judge(triggers, 0, **values)[0].trigger.tensor == "net_input_0"


def test_tensors_of_the_script_may_have_values_that_are_not_finite_from_the_beginning(triggers):
    for step in range(50):
        assert judge(triggers, step, missing=[1.0, math.nan]) == []


def test_overflow_of_a_grad_scaler_is_no_incident_unless_five_in_a_row(triggers):
    overflow = {"net_output_0": [math.inf], "loss": [math.nan], "optimizer__SGD__skipped": [1.0]}
    healthy = {"net_output_0": [1.0], "loss": [1.0], "gradient__w": [1.0]}
    step = 0
    for _ in range(5):
        for _ in range(4):
            assert judge(triggers, step, **overflow) == []
            step += 1
        assert judge(triggers, step, **healthy) == []
        step += 1
    found = [cause.why for step in range(step, step + 9) for cause in judge(triggers, step, **overflow)]
    assert found == ["GradScaler skipped 5 updates in a row"]


def test_a_condition_counts_again_after_ten_steps_without_it(triggers):
    found = [step for step in range(60) for _ in judge(triggers, step, loss=[math.nan if step in (5, 9, 30) else 1.0])]
    assert found == [5, 30]


def test_kinds_by_collection_and_by_name():
    kinds = Kinds(lambda collection, name: name in MEMBERS.get(collection, ()))
    assert kinds["loss"] is Kind.LOSS
    assert kinds["gradient/w"] is Kind.GRADIENT
    assert kinds["w"] is Kind.WEIGHT
    assert kinds["fc1_input_0"] is Kind.INPUT
    assert kinds["fc1_output_0_1"] is Kind.OUTPUT
    assert kinds["anything"] is Kind.OTHER


def test_values_are_the_same_in_one_part_or_several():
    tensors = {"loss": [1.0, math.nan], "w": [3.0, -4.0]}
    together = StepColumns([statistics_of(tensors)])
    apart = StepColumns([statistics_of({name: value}) for name, value in tensors.items()])
    assert together.names == apart.names == ("loss", "w")
    for column in ("l2", "abs_max", "not_finite", "mean", "update_ratio", "unknown"):
        np.testing.assert_array_equal(together[column], apart[column])
    assert together["l2"].tolist() == pytest.approx([1.0, 5.0])
