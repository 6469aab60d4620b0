"""A hook leaves trainings of TRL and PEFT as they are, bit for bit."""

from __future__ import annotations

import pytest

from frameworks.stacks import preferences
from frameworks.stacks.comparing import check
from frameworks.stacks.running import Runner
from frameworks.stacks.table import names_in


@pytest.fixture(scope="module")
def runner():
    with Runner("preferences", HF_HUB_OFFLINE="1") as one:
        yield one


@pytest.mark.parametrize("name", names_in(preferences.__name__))
def test_training_is_bit_equal_with_the_hook_and_recorded(runner, name, tmp_path):
    check(name, runner, tmp_path)
