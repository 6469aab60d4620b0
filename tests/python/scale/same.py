"""Compare results bit for bit."""

from __future__ import annotations

from smdwidgets.trials import Columns


def assert_same(one: Columns, other: Columns) -> None:
    assert list(one) == list(other)
    for name in one:
        assert one[name].dtype == other[name].dtype, name
        if one[name].dtype == object:
            assert one[name].tolist() == other[name].tolist(), name
        else:
            assert one[name].tobytes() == other[name].tobytes(), name
    errors = [(error.name, error.step, error.worker, type(error.error), str(error.error)) for error in one.errors]
    assert errors == [(e.name, e.step, e.worker, type(e.error), str(e.error)) for e in other.errors]
    assert one.last_step == other.last_step
