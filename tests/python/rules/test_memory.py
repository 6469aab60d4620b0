"""What rules keep of a run is bounded by its bytes, however long the run; what has left is read again."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np

from python.trials import runs
from smdwidgets import create_trial
from smdwidgets.rules import RuleRunner
from smdwidgets.rules.measurements import Measurements, measurements_of
from smdwidgets.rules.selector import ALL
from smdwidgets.rules.tables import Need

STEPS = 1500
KEPT = 300_000


def long_run(root: Path, steps: int = STEPS) -> Path:
    for step in range(steps):
        runs.step(root, step, {"w": [float(step)] * 4, "loss": 1 / (step + 1)})
    return runs.end(runs.collections(root))


def test_small_tables_and_results_take_no_more_than_they_are_counted_for(tmp_path: Path) -> None:
    trial = create_trial(long_run(tmp_path))
    trial.values("w")  # has every index file read, which is not what is measured here
    kept = Measurements(trial, kept_bytes=KEPT)
    columns = ("min", "max", "mean", "size")
    steps = trial.steps()
    tracemalloc.start()
    try:
        for at, step in enumerate(steps):
            if at % 50 == 0:
                kept.prefetch([Need(ALL, columns)], steps[at : at + 50])
            assert kept.table(ALL, step, columns)["max"].max() == max(step, 1 / (step + 1))
            assert kept.kept(("twice", step), lambda step=step: np.full(3, 2.0 * step)).tolist() == [2 * step] * 3
            if at == STEPS // 2:
                half = tracemalloc.get_traced_memory()[0]
        full = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert half < 2 * KEPT
    # Of the second half of the steps nothing is left but 8 bytes for each, their names and modes, of which there are a few thousand.
    assert full - half < 0.3 * KEPT
    assert kept.table(ALL, 3, columns)["max"].tolist() == [0.25, 3.0]
    trial.close()


def test_a_rule_that_runs_anew_over_what_has_left_says_the_same(tmp_path: Path) -> None:
    trial = create_trial(long_run(tmp_path, 300))
    measurements_of(trial)._kept_bytes = 20_000  # less than what is fetched at once, too
    runner = RuleRunner(trial)
    runner.add("ExplodingTensor", tensor_regex="w")
    runner.add("LossNotDecreasing", tensor_regex="loss", use_losses_collection=False, diff_percent=30)
    runner.add("UnchangedTensor", tensor_regex="w")
    runner.start()
    assert runner.wait(60)
    first = {evaluation.name: evaluation.outcomes for evaluation in runner}
    read = measurements_of(trial).records_read
    for name in first:
        runner.rerun(name)
    assert runner.wait(60)
    assert {evaluation.name: evaluation.outcomes for evaluation in runner} == first
    assert measurements_of(trial).records_read > read
    assert measurements_of(trial)._bytes <= 20_000 + 2_000
    trial.close()
