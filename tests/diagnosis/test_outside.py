"""The figures of programs and logs of others, and the page that states them."""

from __future__ import annotations

from diagnosis import outside


def test_page_states_the_figures_of_the_table():
    assert f"{outside.section()}\n{outside.END}" in outside.PAGE.read_text(encoding="utf-8"), (
        "run: python tests/diagnosis/outside.py"
    )


def test_figures_of_a_set_do_not_contradict_each_other():
    all_sets = outside.sets()
    assert len({one.name for one in all_sets}) == len(all_sets)
    for one in all_sets:
        assert one.group in outside.GROUPS, one
        measured = (one.any, one.first, one.alarms, one.any_after, one.first_after, *one.confidences.values())
        assert all(0 <= share.part <= share.whole for share in measured), one
        if one.any.whole:
            assert one.first.part <= one.any.part, one


def test_share_states_whether_it_reaches_its_target():
    assert outside.Share(3, 4).against(0.75) == "3 of 4 (75 %)"
    assert outside.Share(2, 4).against(0.75) == "2 of 4 (50 %), **missed**"
    assert outside.Share(0, 40).against(-0.03) == "0 of 40 (0 %)"
    assert outside.Share(2, 40).against(-0.03) == "2 of 40 (5 %), **missed**"
    assert outside.Share().against(0.75) == ""
