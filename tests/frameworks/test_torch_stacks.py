"""A hook leaves each training as it is, bit for bit, and records all of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from frameworks.stacks import graphs, loops, trainers, updates, workers
from frameworks.stacks.comparing import check
from frameworks.stacks.running import Runner
from frameworks.stacks.table import names_in

MODULES = [one.__name__ for one in (loops, updates, graphs, trainers, workers)]

NAMES = names_in(*MODULES)
PAGE = Path(__file__).parents[2] / "docs" / "hooks.md"


@pytest.fixture(scope="module")
def runner():
    with Runner(*(name.rpartition(".")[2] for name in MODULES), KERAS_BACKEND="torch") as one:
        yield one


@pytest.mark.parametrize("name", NAMES)
def test_training_is_bit_equal_with_the_hook_and_recorded(runner, name, tmp_path):
    check(name, runner, tmp_path)


def test_the_page_has_the_number_of_stacks():
    assert int(re.search(r"(\d+) stacks use PyTorch", PAGE.read_text(encoding="utf-8"))[1]) == len(NAMES)
