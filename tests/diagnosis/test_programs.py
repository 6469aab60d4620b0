"""The programs of the exam have a fault each, which their twins do not have."""

import ast

import pytest

from diagnosis.programs import pairs
from smdwidgets.finding import KINDS

PAIRS = pairs()


def test_parts_have_many_programs():
    parts = (*"truabcdefghijklmnopqsvwxyz", "ab", "ac", "ad", "ae", "af")
    sizes = {part: sum(name.startswith(f"{part}_") for name in PAIRS) for part in parts}
    assert sum(sizes.values()) == len(PAIRS) >= 450
    assert min(sizes.values()) >= 15


@pytest.mark.parametrize("name", PAIRS)
def test_a_program_and_its_twin_are_programs_that_differ(name):
    pair = PAIRS[name]
    faulty, repaired = ast.parse(pair.faulty), ast.parse(pair.repaired)
    assert ast.dump(faulty) != ast.dump(repaired)
    assert pair.kinds
    assert {*pair.kinds} <= KINDS.keys() | {"unnamed"}
