"""The first value that is far above the median before it."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from smdwidgets.diagnosis import tensor_updates
from smdwidgets.diagnosis.tensor_layers import median
from smdwidgets.diagnosis.tensor_updates import HIGH, JUMP, _first_jump


def by_medians(values):
    """Return the same by the median of all values before each."""
    for at in range(1, len(values)):
        if values[at] > HIGH and values[at] > JUMP * median(values[:at]):
            return at
    return None


_VALUES = st.sampled_from([0.0, 0.001, 0.01, 0.02, 0.11, 0.3, 2.5, 100.0, np.nan, np.inf])


@given(st.lists(_VALUES, max_size=40))
def test_it_is_that_of_the_medians(values):
    array = np.array(values, dtype=float)
    assert _first_jump(array) == by_medians(array)


def test_large_updates_throughout_need_no_median(monkeypatch):
    def fail(*_):
        raise AssertionError("a value was sorted")

    monkeypatch.setattr(tensor_updates, "insort", fail)
    assert _first_jump(np.random.default_rng(0).uniform(0.5, 1.5, 20_000)) is None
