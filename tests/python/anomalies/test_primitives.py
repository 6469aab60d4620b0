"""Primitives give the same answers for columns and for single values."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smdwidgets.anomalies import Episodes, NotFinite, Rises, SpikeScan, begins_episode, not_finite, rises
from smdwidgets.anomalies.defaults import SPIKE_FIRST, SPIKE_WINDOW

FLAGS = st.lists(st.tuples(st.booleans(), st.booleans()), max_size=12)


def series(count: int, seed: int) -> np.ndarray:
    """Noise of some width, with gaps and spikes."""
    random = np.random.default_rng(seed)
    values = np.exp(random.normal(size=count) * random.uniform(0.05, 1.5)) * random.choice([1, -1])
    values[random.random(count) < 0.02] *= random.choice([10.0, -10.0])
    values[random.random(count) < random.choice([0, 0.1])] = random.choice([np.nan, np.inf, -np.inf])
    return values


def assert_same(one: Rises, other: Rises) -> None:
    for name, column in vars(one).items():
        np.testing.assert_array_equal(column, getattr(other, name), err_msg=name)


@given(st.integers(1, 700), st.lists(st.integers(1, 120), max_size=12), st.integers(0, 2**32 - 1))
def test_rises_do_not_depend_on_portions(count: int, sizes: list[int], seed: int) -> None:
    values = series(count, seed)
    scan, parts, begin = SpikeScan(), [], 0
    for size in [*sizes, count]:
        parts.append(scan.extend(values[begin : begin + size]))
        begin += size
    assert_same(Rises.joined(parts), rises(values))
    assert scan.count == count


@given(st.integers(1, 300), st.integers(0, 2**32 - 1), st.sampled_from([0.5, 1.0, 3.0]))
def test_spikes_of_single_values_are_those_of_the_column(count: int, seed: int, sensitivity: float) -> None:
    values = series(count, seed)
    scan = SpikeScan(sensitivity)
    pushed = [spike for value in values.tolist() if (spike := scan.push(value)) is not None]
    assert pushed == rises(values, sensitivity).anomalies()


@given(st.integers(1, 300), st.integers(0, 2**32 - 1))
def test_a_spike_depends_on_earlier_values_only(count: int, seed: int) -> None:
    values = series(count, seed)
    whole = [spike.index for spike in rises(values).anomalies()]
    half = [spike.index for spike in rises(values[: count // 2]).anomalies()]
    assert half == [index for index in whole if index < count // 2]


@given(st.integers(20, 300), st.integers(0, 2**32 - 1))
def test_a_higher_sensitivity_has_more_spikes(count: int, seed: int) -> None:
    values = series(count, seed)
    few, many = ({spike.index for spike in rises(values, each).anomalies()} for each in (0.5, 2.0))
    assert few <= many


@pytest.mark.parametrize(("height", "is_spike"), [(1.49, False), (1.51, True)])
def test_a_spike_exceeds_the_median_by_half(height: float, is_spike: bool) -> None:
    values = np.append(np.tile([0.99, 1.0, 1.01], 20), height)
    assert bool(rises(values).anomalies()) is is_spike


@pytest.mark.parametrize("before", [SPIKE_FIRST - 1, SPIKE_FIRST])
def test_a_spike_needs_earlier_values(before: int) -> None:
    assert len(rises(np.append(np.ones(before), 99.0)).anomalies()) == (before >= SPIKE_FIRST)


def test_a_spike_is_compared_with_the_window_only() -> None:
    values = np.concatenate([np.full(100, 1000.0), np.full(SPIKE_WINDOW, 1.0), [3.0]])
    [spike] = rises(values).anomalies()
    assert (spike.index, spike.value, spike.usual) == (len(values) - 1, 3.0, 1.0)


@given(FLAGS, st.tuples(st.booleans(), st.booleans()))
def test_values_that_are_not_finite(present: list[tuple[bool, bool]], tolerated: tuple[bool, bool]) -> None:
    judge = NotFinite(tolerated)
    column = np.array(present, bool).reshape(-1, 2)
    assert [judge.push(flags) for flags in present] == not_finite(column, tolerated).tolist()


def test_a_mask_is_infinite_from_the_first_value_on() -> None:
    infinite = np.array([[True], [False], [True]])
    assert not_finite(infinite, (True,)).tolist() == [False, False, False]
    assert not_finite(infinite, (False,)).tolist() == [True, False, True]
    assert not_finite(~infinite, (True,)).tolist() == [False, True, False]


@given(st.lists(st.integers(0, 200), max_size=30))
def test_episodes(steps: list[int]) -> None:
    episodes = Episodes()
    assert [episodes.push(step) for step in steps] == begins_episode(np.array(steps, np.int64)).tolist()
