"""smdebug reads a run with a compacted index as if it were not there."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from conformance.conftest import output
from smdwidgets import compact
from smdwidgets.trials.smdebug.manifest import MANIFEST_PREFIX


def test_smdebug_ignores_the_compacted_index(smdebug_python: Path, runs: Path, tmp_path: Path) -> None:
    first = next(run for run in sorted(runs.iterdir()) if any(run.glob("index/*/*.json")))
    for name in ("plain", "compacted"):
        shutil.copytree(first, tmp_path / name)
    done = compact(tmp_path / "compacted")
    assert done.files > 0
    assert len(list((tmp_path / "compacted" / MANIFEST_PREFIX).iterdir())) == done.folders + 1
    ask = Path(__file__).with_name("ask.py")
    answers = json.loads(output(smdebug_python, ask, "smdebug", "plain", "compacted", cwd=tmp_path))
    for answer in answers.values():
        del answer["trial.name "]
    assert answers["compacted"] == answers["plain"]
    assert answers["plain"]
