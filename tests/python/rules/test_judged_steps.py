"""The steps that a rule judged, against a plain list."""

from __future__ import annotations

import sys
from array import array

from hypothesis import given
from hypothesis import strategies as st

from smdwidgets.rules.judged_steps import JudgedSteps

STEPS = st.integers(-(2**40), 2**40)
#: Equal distances, single steps, and steps that are judged again.
PIECES = st.one_of(
    st.builds(lambda first, distance, count: [first + distance * at for at in range(count)],
              STEPS, st.integers(0, 50), st.integers(0, 30)),
    st.lists(st.integers(0, 5), max_size=6),
)  # fmt: skip


@given(st.lists(st.tuples(PIECES, st.booleans()), max_size=8), st.integers(0, 80))
def test_steps_are_those_of_a_list(pieces: list[tuple[list[int], bool]], place: int) -> None:
    steps, expected = JudgedSteps(), []
    for piece, at_once in pieces:
        if at_once:
            steps.extend(array("q", piece))
        else:
            for step in piece:
                steps.append(step)
        expected += piece
        assert len(steps) == len(expected)
        assert list(steps) == expected
        assert steps.after(place) == array("q", expected[place:])


def test_steps_at_equal_distances_take_no_memory() -> None:
    steps = JudgedSteps()
    steps.extend(range(0, 1_000_000, 10))
    for step in range(1_000_000, 1_000_500, 10):
        steps.append(step)
    assert len(steps) == 100_050
    assert sum(sys.getsizeof(part) for part in vars(steps).values()) < 1000
