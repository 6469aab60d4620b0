"""Diagnose PyTorch trainings with planted faults.

They use convolutions, attention and bfloat16 autocast.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from torch_faults import FAULTS, train

import smdwidgets

#: Faults that the network with layer normalization and AdamW survives: a note is right.
SURVIVED = {("attention", "inputs not scaled"), ("attention", "decay")}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize(("kind", "autocast"), [("conv", False), ("conv", True), ("attention", False)])
def test_first_finding_is_the_cause(kind, autocast, fault, tmp_path):
    train(tmp_path, kind, fault, 0, every=10, steps=300, autocast=autocast)
    diagnosis = smdwidgets.diagnose(tmp_path)
    if (kind, fault) in SURVIVED:
        assert set(FAULTS[fault]) & {one.kind for one in (*diagnosis.findings, *diagnosis.notes)}
    else:
        assert [one.kind for one in diagnosis][:1] == list(FAULTS[fault])
