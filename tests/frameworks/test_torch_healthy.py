"""Healthy scripts as people write them: a recording names nothing."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

import smdwidgets
from python.launch.launching import Place

TEXT = (Path(__file__).parents[1] / "diagnosis/healthy.txt").read_text(encoding="utf-8")
SCRIPTS = dict(re.findall(r"(?ms)^=== (\w+)\n(.*?)(?=^=== |\Z)", TEXT))


def test_scripts_have_different_names():
    assert len(SCRIPTS) == TEXT.count("\n=== ")


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_healthy_script_has_no_finding(tmp_path, name):
    place = Place(tmp_path)
    (tmp_path / "script.py").write_text(SCRIPTS[name], encoding="utf-8")
    done = place.run("--out", "runs", sys.executable, tmp_path / "script.py", env={"OMP_NUM_THREADS": "1"})
    assert done.code == 0, done.err
    runs = [file.parent for file in tmp_path.rglob("launch.json")]
    assert runs, done.err
    named = [(run, one.kind, one.title) for run in runs for one in smdwidgets.diagnose(run).findings]
    assert not named
    assert done.err.count("incident at step") <= 12
