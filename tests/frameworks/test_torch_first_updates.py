"""A training of a stranger prints the cause of its fault within 20 updates."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from frameworks.first_updates import FAULTS, UPDATES
from python.launch.launching import Place

FIRST = 20
#: Short trainings of one process that are recorded, however long their beginnings and ends take.
TOGETHER = 8


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """Return the lines that each training has printed on standard error."""
    place = Place(tmp_path_factory.mktemp("first"))
    script = Path(__file__).with_name("first_updates.py")
    lines, checks = {}, list(FAULTS)
    for first in range(0, len(checks), TOGETHER):
        names = checks[first : first + TOGETHER]
        done = place.run("--out", "runs", sys.executable, script, *names, env={"OMP_NUM_THREADS": "1"})
        assert done.code == 0, done.err
        for part in f"\n{done.err}".split("\ntraining ")[1:]:
            check, *printed_lines = part.splitlines()
            lines[check] = printed_lines
    return lines


@pytest.mark.parametrize("check", FAULTS)
def test_the_cause_is_printed_within_the_first_updates(printed, check):
    lines = printed[check]
    said = next((number for number, line in enumerate(lines) if line.endswith(f"(smdwidgets explain {check})")), None)
    assert said is not None, lines
    assert sum(line.startswith("update ") for line in lines[:said]) <= FIRST < UPDATES
