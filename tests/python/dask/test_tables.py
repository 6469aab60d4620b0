"""Data frames of Dask have the rows of `trial.statistics`."""

from __future__ import annotations

import dask
import numpy as np
import pandas as pd
import pytest

from python.trials import runs
from python.trials.test_statistics import rows_of
from smdwidgets import create_trial, modes
from smdwidgets.exceptions import CorruptDataError, SMDebugValueError, TensorUnavailable

RNG = np.random.default_rng(5)


@pytest.fixture(autouse=True)
def _plain_texts():
    with dask.config.set({"dataframe.convert-string": False}):
        yield


@pytest.fixture
def trial(tmp_path):
    runs.collections(tmp_path)
    for step in range(12):
        values = {f"layer{at}": RNG.normal(size=5 + at).astype(np.float32) for at in range(7)}
        values |= {"rare": RNG.normal(size=3)} if step % 4 == 0 else {}
        runs.step(tmp_path, step, values, mode=modes.TRAIN if step % 2 else modes.EVAL, mode_step=step // 2)
    return create_trial(runs.end(tmp_path))


def check(lazy, expected, by=None):
    found = lazy.compute(scheduler="synchronous").reset_index(drop=True)
    if by:
        found = found.sort_values(by, ignore_index=True)
        expected = expected.sort_values(by, ignore_index=True)
    pd.testing.assert_frame_equal(found, expected, check_exact=True)
    assert lazy.dtypes.equals(expected.dtypes)


@pytest.mark.parametrize("rows", [1, 30, 10_000])
@pytest.mark.parametrize("names", [None, ["rare", "layer3", "layer0"]])
@pytest.mark.parametrize("steps", [None, [3, 4, 8]])
def test_rows_are_those_of_the_statistics(trial, names, steps, rows):
    expected = trial.statistics(names, steps, cache=False).to_pandas()
    by_names = trial.to_dask_dataframe(names, steps, partition_rows=rows)
    check(by_names, expected)
    by_steps = trial.to_dask_dataframe(names, steps, by="steps", partition_rows=rows)
    check(by_steps, expected, by=["name", "step"])
    if rows == 1:
        assert by_names.npartitions == len(names or trial.tensor_names())
        assert by_steps.npartitions == len(steps or trial.steps())


def test_columns_and_modes(trial):
    columns = ["mean", "update_ratio", "flags"]
    lazy = trial.to_dask_dataframe("layer1", range(3), columns, modes.TRAIN, partition_rows=2, by="steps")
    check(lazy, trial.statistics("layer1", range(3), columns, modes.TRAIN, cache=False).to_pandas())
    assert lazy.groupby("name")["mean"].max().compute(scheduler="synchronous").index.tolist() == ["layer1"]


def test_statistics_that_the_training_wrote(tmp_path):
    runs.run(tmp_path, range(4))
    rows_of(tmp_path, "worker_0", range(40), names=("gradient", "weight", "loss"))
    trial = create_trial(tmp_path)
    expected = trial.statistics().to_pandas()
    assert (sorted(set(expected["name"])), max(expected["step"])) == (["gradient", "loss", "weight"], 39)
    check(trial.to_dask_dataframe(partition_rows=3), expected, by=["name", "step"])
    chosen = ["weight", "x"]
    check(trial.to_dask_dataframe(chosen, partition_rows=3), trial.statistics(chosen, cache=False).to_pandas())


def test_nothing_is_read_before_it_is_computed(trial, tmp_path):
    lazy = trial.to_dask_dataframe(["layer1"], columns="mean")
    place = trial.reader.run.catalog.find("layer1", 3)
    file = tmp_path / place.event_key
    content = bytearray(file.read_bytes())
    content[place.offset + place.length - 80] ^= 255
    file.write_bytes(content)
    with pytest.raises(CorruptDataError, match=place.event_key):
        lazy.compute(scheduler="synchronous")
    left = trial.to_dask_dataframe(["layer1"], columns="mean", errors="skip").compute(scheduler="synchronous")
    assert left["step"].tolist() == [step for step in range(12) if step != 3]


def test_a_growing_run_is_a_snapshot(tmp_path):
    root = runs.run(tmp_path, range(3), ended=False)
    trial = create_trial(root)
    lazy = trial.to_dask_dataframe()
    runs.step(root, 3)
    assert lazy.compute(scheduler="synchronous")["step"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("by", ["names", "steps"])
def test_steps_that_some_workers_have_not_written(golden_runs, by):
    trial = create_trial(golden_runs / "mw_running")
    assert trial.steps() != trial.steps(show_incomplete_steps=True)
    check(trial.to_dask_dataframe(by=by), trial.statistics(cache=False).to_pandas(), by=["name", "step"])


def test_wrong_arguments(trial):
    for wrong in ({"by": "rows"}, {"errors": "warn"}, {"partition_rows": 0}, {"columns": "median"}):
        with pytest.raises(SMDebugValueError):
            trial.to_dask_dataframe(**wrong)
    lazy = trial.to_dask_dataframe("nothing")  # the statistics may have it, which are not read yet
    with pytest.raises(TensorUnavailable, match="nothing"):
        lazy.compute(scheduler="synchronous")
