"""The map of very many tensors, from a pyramid beside the statistics."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import smdwidgets
from benchmarks.bench_large_map import write_run
from e2e.jupyter import Jupyter
from e2e.large_map import look

TENSORS, STEPS = 5000, 420


@pytest.mark.slow
def test_a_nan_of_one_step_among_thousands_of_tensors_is_one_click_away(lab: Jupyter, tmp_path: Path) -> None:
    run = tmp_path / "run"
    write_run(run, TENSORS, STEPS, planted=1)
    [(step, name, is_nan)] = json.loads((run / "planted.json").read_text())
    assert is_nan
    assert smdwidgets.compact(run).pyramids > 0
    figures = look(lab, run, name, step, "large-map")
    assert f"NaN at step {step}" in figures.sentence
