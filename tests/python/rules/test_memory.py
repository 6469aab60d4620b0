"""The cache of measurements is bounded in bytes; evicted entries are read again."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np

from python.rules.memory_trial import MemoryTrial
from python.trials import runs
from smdwidgets import create_trial
from smdwidgets.rules import RuleRunner
from smdwidgets.rules.measurements import Measurements, measurements_of
from smdwidgets.rules.selector import ALL, Selector
from smdwidgets.rules.tables import Need

STEPS = 1500
KEPT = 300_000


def long_run(root: Path, steps: int = STEPS) -> Path:
    for step in range(steps):
        runs.step(root, step, {"w": [float(step)] * 4, "loss": 1 / (step + 1)})
    return runs.end(runs.collections(root))


def test_cache_size_includes_the_overhead_of_small_entries(tmp_path: Path) -> None:
    trial = create_trial(long_run(tmp_path))
    trial.values("w")  # reads every index file, whose memory is not measured here
    cached = Measurements(trial, cache_bytes=KEPT)
    columns = ("min", "max", "mean", "size")
    steps = trial.steps()
    tracemalloc.start()
    try:
        for at, step in enumerate(steps):
            if at % 50 == 0:
                cached.prefetch([Need(ALL, columns)], steps[at : at + 50])
            assert cached.table(ALL, step, columns)["max"].max() == max(step, 1 / (step + 1))
            assert cached.cached(("twice", step), lambda step=step: np.full(3, 2.0 * step)).tolist() == [2 * step] * 3
            if at == STEPS // 2:
                half = tracemalloc.get_traced_memory()[0]
        full = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert half < 2 * KEPT
    # The second half adds only 8 bytes per step, and names and modes, which are cached for a few thousand steps.
    assert full - half < 0.3 * KEPT
    assert cached.table(ALL, 3, columns)["max"].tolist() == [0.25, 3.0]
    trial.close()


def test_columns_of_a_step_without_tensors() -> None:
    trial = MemoryTrial()
    trial.put(0, "w", np.ones(2))
    measurements = Measurements(trial)  # type: ignore[arg-type]
    gradients = Selector(("gradients",))
    for column in ("abs_mean", "l2"):
        assert len(measurements.table(gradients, 0, (column,))[column]) == 0


def test_rerun_after_eviction_has_the_same_outcomes(tmp_path: Path) -> None:
    trial = create_trial(long_run(tmp_path, 300))
    measurements_of(trial)._cache_bytes = 20_000  # less than one prefetch
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
