"""smdebug reads a run with statistics files as if they were not there."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np

from conformance.conftest import output
from smdwidgets import _core


def test_smdebug_ignores_statistics_files(smdebug_python: Path, runs: Path, tmp_path: Path) -> None:
    plain = min(folder.name for folder in runs.iterdir())
    for name in ("plain", "with statistics"):
        shutil.copytree(runs / plain, tmp_path / name)
    with _core.StatisticsWriter(tmp_path / "with statistics") as writer:
        for step in range(100):
            writer.append(step, [writer.add("weight")], _core.statistics_of([np.ones(3)]))
    assert len(list((tmp_path / "with statistics" / "statistics").rglob("*.arrows"))) == 1
    ask = Path(__file__).with_name("ask.py")
    answers = json.loads(output(smdebug_python, ask, "smdebug", "plain", "with statistics", cwd=tmp_path))
    assert answers["with statistics"] == answers["plain"]
    assert answers["plain"]
