"""Checks of trainings in the style of public examples: silence, the same bits."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from frameworks.check_examples import PAGE, checked_scripts
from frameworks.public_trainings import PUBLIC, UNSEEN
from python.launch.launching import Place

#: Trainings of one process, and the fewest updates: those with a closure have many passes.
AT_ONCE, FEWEST = 15, 5
NAMES = [*UNSEEN, *PUBLIC]
LOAD = """
import torch
from frameworks.public_trainings import traced
torch.set_num_threads(1)
"""


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    """Return a function that runs a training with checks and, on request, without.

    It returns what fired, what was off, how many updates were checked, and the digest of the weights.
    """
    checked, plain = {}, {}

    def of(name, with_checks=True):
        begin = NAMES.index(name) // AT_ONCE * AT_ONCE
        names = NAMES[begin : begin + AT_ONCE]
        folder = tmp_path_factory.mktemp("public")
        if with_checks and name not in checked:
            found = checked_scripts(folder, LOAD, {one: f'traced("{one}", "digests.txt")' for one in names})
            checked.update({one: (*found[one], digest) for one, digest in digests(folder).items()})
        elif not with_checks and name not in plain:
            place = Place(folder, Path(__file__).parents[1])
            place.write("train.py", f'{LOAD}\nfor name in {names}:\n    traced(name, "digests.txt")')
            done = place.python("train.py", env={"OMP_NUM_THREADS": "1"})
            assert done.code == 0, done.err
            plain.update(digests(folder))
        return checked[name] if with_checks else plain[name]

    return of


def digests(folder):
    return dict(line.split() for line in (folder / "digests.txt").read_text(encoding="utf-8").splitlines())


@pytest.mark.timeout(900)  # a process with many trainings, on a busy machine
@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_training_is_silent(outcome, name):
    found, off, updates, _ = outcome(name)
    assert {*found.values()} <= {"note"}, found
    assert not off or name == "compiled"
    assert updates >= FEWEST


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", NAMES)
def test_a_public_training_has_the_same_bits_with_checks(outcome, name):
    assert outcome(name)[-1] == outcome(name, with_checks=False)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", UNSEEN)
def test_a_training_without_an_optimizer_is_not_checked(outcome, name):
    assert outcome(name)[:3] == ({}, {}, 0)


def test_the_page_has_the_number_of_public_trainings():
    text = PAGE.read_text(encoding="utf-8")
    assert int(re.search(r"(\d+) healthy trainings in the style of public examples", text)[1]) == len(PUBLIC)
