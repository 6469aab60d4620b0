"""Diagnose Keras trainings with planted faults."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from keras_faults import FAULTS, train

import smdwidgets


@pytest.mark.parametrize("fault", FAULTS)
def test_first_finding_is_the_cause(fault, tmp_path):
    train(tmp_path / "run", fault, 0)
    diagnosis = smdwidgets.diagnose(tmp_path / "run")
    assert [one.kind for one in diagnosis][:1] == list(FAULTS[fault]), diagnosis
