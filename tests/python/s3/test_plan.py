"""Close ranges are coalesced, and each range is covered by exactly one request."""

from hypothesis import given
from hypothesis import strategies as st

from smdwidgets.storage.protocol import Range
from smdwidgets.storage.s3.plan import coalesce, end_of

ranges = st.lists(st.builds(Range, st.sampled_from("abc"), st.integers(0, 5000), st.integers(0, 500)), max_size=40)


@given(ranges, st.integers(0, 300), st.integers(1, 3000))
def test_every_range_is_inside_its_request(wanted: list[Range], gap: int, largest: int) -> None:
    gets = coalesce(wanted, gap=gap, largest=largest)
    assert sorted(i for get in gets for i in get.answers) == list(range(len(wanted)))
    for get in gets:
        for i in get.answers:
            assert get.key == wanted[i].key
            assert get.offset <= wanted[i].offset
            assert end_of(wanted[i]) <= get.end
        joined = sorted((wanted[i] for i in get.answers), key=lambda r: r.offset)
        end = end_of(joined[0])
        for piece in joined[1:]:
            assert piece.offset - end <= gap
            end = max(end, end_of(piece))
        assert (get.offset, get.end) == (joined[0].offset, end)
        if len(get.answers) > 1:
            assert get.length <= max(largest, *(wanted[i].length for i in get.answers))


def test_tensors_of_one_step_are_one_request() -> None:
    back_to_back = [Range("events/0", 1000 * n, 1000) for n in range(500)]
    assert [(get.offset, get.length) for get in coalesce(back_to_back)] == [(0, 500_000)]


def test_gap_limit_is_one_mebibyte() -> None:
    first = Range("k", 0, 10)
    assert len(coalesce([first, Range("k", 10 + (1 << 20), 1)])) == 1
    assert len(coalesce([first, Range("k", 11 + (1 << 20), 1)])) == 2
