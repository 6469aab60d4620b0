"""Reading of series: order, repeated steps, portions, kinds and pairs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from python.diagnosis import curves
from smdwidgets.diagnosis.blocks import MOST, Blocks, block_length, completed
from smdwidgets.diagnosis.inputs import Kind
from smdwidgets.diagnosis.kinds import checked_kinds, judged_as
from smdwidgets.diagnosis.series import SeriesBuilder
from smdwidgets.diagnosis.trends import _running_median, mann_kendall, trends
from smdwidgets.exceptions import SMDebugValueError
from smdwidgets.naming.scalars import Role, describe


def series_of(*portions):
    builder = SeriesBuilder()
    for steps, values in portions:
        builder.append(np.array(steps, dtype=np.int64), np.array(values, dtype=np.float64))
    return builder.series("loss", "GLOBAL", "", Kind.LOSS, Role.NONE, ("loss",))


def test_the_value_written_last_for_a_step_counts():
    series = series_of(([0, 10, 20, 10], [1, 2, 3, 4]), ([20, 30], [5, 6]))
    assert series.steps.tolist() == [0, 10, 20, 30]
    assert series.values.tolist() == [1, 4, 5, 6]
    assert series.superseded == 2


def test_values_that_are_not_finite_are_set_aside():
    series = series_of(([0, 1, 2], [1, np.nan, 2]), ([3, 4], [np.inf, 3]), ([1], [7]))
    assert series.steps.tolist() == [0, 1, 2, 4]
    assert series.values.tolist() == [1, 7, 2, 3]
    assert (series.lost_steps.tolist(), series.lost_values.tolist()) == ([3], [np.inf])


rows = st.lists(st.tuples(st.integers(0, 60), st.floats(allow_nan=True, allow_infinity=True, width=32)), max_size=80)


@given(rows, st.integers(0, 80), st.integers(0, 80))
@pytest.mark.slow
def test_portions_do_not_change_a_series(table, first, second):
    cuts = sorted([min(first, len(table)), min(second, len(table))])
    parts = [table[: cuts[0]], table[cuts[0] : cuts[1]], table[cuts[1] :]]
    whole, portioned = (
        series_of(*(([step for step, _ in part], [value for _, value in part]) for part in some))
        for some in ([table], parts)
    )
    latest = dict(table)
    assert dict(zip(whole.steps.tolist(), whole.values.tolist(), strict=True)) == {
        step: value for step, value in latest.items() if np.isfinite(value)
    }
    for attribute in ("steps", "values", "lost_steps", "lost_values"):
        np.testing.assert_array_equal(getattr(whole, attribute), getattr(portioned, attribute))
    assert whole.superseded == portioned.superseded


def blocks_of(blocks, values):
    parts = blocks.update(values)
    [medians] = completed([parts])
    return parts.length, medians


@given(st.integers(1, 700), st.lists(st.integers(1, 120), max_size=12), st.integers(0, 2**32 - 1))
def test_blocks_do_not_depend_on_portions(count, sizes, seed):
    random = np.random.default_rng(seed)
    values = np.exp(random.normal(size=count) * random.uniform(0.1, 1.5)) * random.choice([1, -1])
    length, expected = blocks_of(Blocks(), values)
    blocks = Blocks()
    for end in np.minimum(np.cumsum([*sizes, count]), count).tolist():
        found_length, found = blocks_of(blocks, values[:end])
    assert found_length == length == block_length(count)
    np.testing.assert_array_equal(found, expected)
    assert len(expected) <= MOST + 1


def test_blocks_are_medians_of_equally_many_points():
    values = np.random.default_rng(0).normal(size=960)
    length, medians = blocks_of(Blocks(), values)
    np.testing.assert_allclose(medians, np.median(values.reshape(-1, length), axis=1))


def test_trend_of_noise_is_none_and_of_a_fall_is_clear():
    random = np.random.default_rng(0)
    noise = mann_kendall(random.normal(size=(2000, 40)))
    assert np.mean(np.abs(noise) > 3) < 0.005
    assert np.abs(noise.std() - 1) < 0.25
    for before in (0.5, 0.8):
        noise = random.normal(size=(2000, 80))
        for at in range(1, 80):
            noise[:, at] += before * noise[:, at - 1]
        assert np.mean(np.abs(mann_kendall(noise[:, 40:])) > 3) < 0.04
    [trend] = trends([(1, curves.falling(40))])
    assert trend.z < -2.5
    assert trend.best_at > 30


def test_running_medians_are_medians():
    table = np.random.default_rng(0).normal(size=(20, 30)).round(1)
    for width in (3, 5):
        windows = np.lib.stride_tricks.sliding_window_view(table, width, axis=1)
        found = _running_median(table, width)
        np.testing.assert_array_equal(found if width == 3 else found[:, 2:-2], np.median(windows, axis=2))


def test_noise_is_measured_about_the_trend():
    values = np.linspace(10, 0, 48) + np.random.default_rng(0).normal(size=48) * 0.1
    [trend] = trends([(1, values)])
    assert 0.06 < trend.noise < 0.16


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("train/loss", Kind.LOSS),
        ("CrossEntropyLoss_output_0", Kind.LOSS),
        ("train-rmse", Kind.LOSS),
        ("train_loss_epoch", Kind.LOSS),
        ("loss2", Kind.LOSS),
        ("val/perplexity", Kind.LOSS),
        ("metrics/mAP50-95(B)", Kind.METRIC),
        ("val_top1", Kind.METRIC),
        ("F1", Kind.METRIC),
        ("epoch_accuracy", Kind.METRIC),
        ("lr-AdamW/pg1", Kind.LEARNING_RATE),
        ("Policy/Learning Rate", Kind.LEARNING_RATE),
        ("grad_norm", Kind.GRADIENT_NORM),
        ("weight_norm", Kind.UNKNOWN),
        ("rollout/ep_rew_mean", Kind.REWARD),
        ("Eval_StdReturn", Kind.HOUSEKEEPING),
        ("global_step/sec", Kind.HOUSEKEEPING),
        ("epoch", Kind.HOUSEKEEPING),
        ("value_loss", Kind.UNDIRECTED),
        ("entropy", Kind.RL),
        ("kl_loss", Kind.UNDIRECTED),
        ("损失", Kind.UNKNOWN),
        ("", Kind.UNKNOWN),
    ],
)
def test_kind_of_a_name(name, kind):
    assert judged_as(describe(name)) is kind


def test_roles_and_stems_pair_training_with_validation():
    for training, validation in [
        ("train/loss", "val/loss"),
        ("loss", "val_loss"),
        ("train_loss_epoch", "val_loss"),
        ("Loss/train", "Loss/test"),
        ("train-rmse", "validation-rmse"),
    ]:
        assert describe(training).stem == describe(validation).stem
        assert describe(validation).role.is_held_out
        assert not describe(training).role.is_held_out


def test_invalid_kind_names_the_choices():
    with pytest.raises(
        SMDebugValueError, match=r"invalid kind 'los' of series 'x'; choose from learning rate, .*metric down"
    ):
        checked_kinds({"x": "los"})
