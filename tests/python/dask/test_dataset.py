"""Datasets of xarray have the values of the run, and coordinates of steps."""

from __future__ import annotations

import time

import numpy as np
import pytest
import xarray

from python.logs.logs import log, scalars
from python.trials import runs
from smdwidgets import create_trial, modes
from smdwidgets.exceptions import SMDebugValueError, TensorUnavailable

RNG = np.random.default_rng(3)


@pytest.fixture
def trial(tmp_path):
    runs.collections(tmp_path)
    for step in range(8):
        values = {"w": RNG.normal(size=(4, 2)).astype(np.float32), "loss": np.float64(step), "text": np.array(["a"])}
        values |= {"rare": RNG.normal(size=3)} if step % 3 == 0 else {}
        values |= {"count": np.arange(2) + step} if step != 5 else {}
        runs.step(tmp_path, step, values, mode=modes.TRAIN if step % 2 else modes.EVAL, mode_step=step // 2)
    return create_trial(runs.end(tmp_path))


def test_variables_and_coordinates(trial):
    before = time.time()
    dataset = trial.to_xarray(["w", "loss", "rare"])
    assert dict(dataset.sizes) == {"step": 8, "w_0": 4, "w_1": 2, "rare_0": 3}
    assert dataset.w.dims == ("step", "w_0", "w_1")
    assert dataset.step.values.tolist() == list(range(8))
    assert dataset["mode"].values.tolist() == ["EVAL", "TRAIN"] * 4
    assert dataset.mode_step.values.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert set(dataset.worker.values.tolist()) == {"worker_0"}
    assert dataset.attrs["last_step"] == 7
    assert dataset.attrs["ended"]
    assert dataset.attrs["run"] == trial.path
    for lazy in (dataset.w, dataset.loss, dataset.rare, dataset.wall_time):
        assert lazy.chunks is not None
    times = dataset.wall_time.compute().values
    assert (np.diff(times) >= 0).all()
    assert before - 600 < times[0] <= times[-1] <= time.time()
    for step in range(8):
        assert dataset.w.sel(step=step).values.tobytes() == trial.tensor("w").value(step).tobytes()
    assert np.isnan(dataset.rare.sel(step=[1, 2, 4, 5, 7]).values).all()
    assert (dataset.rare.sel(step=6).values == trial.tensor("rare").value(6)).all()
    assert float(dataset.loss.groupby("mode").mean().sel(mode="TRAIN")) == 4.0


def test_tensors_without_nan_have_common_steps(trial):
    dataset = trial.to_xarray(["rare", "count"])
    assert dataset.step.values.tolist() == [0, 1, 2, 3, 4, 6, 7]
    assert dataset["count"].dtype == np.int64
    assert dataset["count"].values.tolist() == [[step, step + 1] for step in (0, 1, 2, 3, 4, 6, 7)]
    everything = trial.to_xarray()
    assert set(everything) == {"w", "loss", "rare", "count"}
    times = "wall_time"  # of the record of the first tensor
    xarray.testing.assert_identical(
        everything[["rare", "count"]].compute().drop_vars(times), dataset.compute().drop_vars(times)
    )


def test_variable_without_value_at_the_common_steps_is_nan(tmp_path):
    for step in range(4):
        values = {"rare": np.ones((2, 3))} if step == 1 else {"count": np.int64(step)}
        runs.step(tmp_path, step, values)
    runs.collections(tmp_path)
    trial = create_trial(runs.end(tmp_path))
    dataset = trial.to_xarray().compute()
    assert dataset.step.values.tolist() == [0, 2, 3]
    assert dataset["rare"].shape == (3, 2, 3)
    assert np.isnan(dataset["rare"].values).all()
    whole = trial.to_xarray("rare").isel(rare_0=slice(0, 0)).compute()
    assert whole["rare"].shape == (1, 0, 3)


def test_some_steps_of_a_mode(trial):
    dataset = trial.to_xarray("w", steps=[1, 3], mode="TRAIN", chunk_bytes=16, verify="none")
    assert dataset.step.values.tolist() == [3, 7]
    assert dataset.w.values.tobytes() == np.stack([trial.tensor("w").value(step) for step in (3, 7)]).tobytes()


def test_errors_name_the_tensor(trial, tmp_path):
    with pytest.raises(TensorUnavailable, match="nothing"):
        trial.to_xarray(["nothing"])
    with pytest.raises(SMDebugValueError, match="'rare' has no value at any of the selected"):
        trial.to_xarray(["rare"], steps=[1, 2])
    with pytest.raises(SMDebugValueError, match="contains texts"):
        trial.to_xarray(["text"])
    root = tmp_path / "other"
    for step, size in enumerate((2, 3)):
        runs.step(root, step, {"w": np.ones(size), "mode": np.ones(2)})
    runs.collections(root)
    other = create_trial(runs.end(root))
    with pytest.raises(SMDebugValueError, match=r"'w' has dtype float64 and shape \(3,\) at step 1"):
        other.to_xarray("w")
    with pytest.raises(SMDebugValueError, match="'mode' has the name of a coordinate"):
        other.to_xarray("mode")


def test_logs(tmp_path):
    log(tmp_path, scalars({"loss": [1.0, 2.0, 3.0]}))
    trial = create_trial(tmp_path)
    dataset = trial.to_xarray()
    assert dataset.loss.values.tolist() == [1.0, 2.0, 3.0]
    assert dataset.wall_time.values.tolist() == [trial.wall_time("loss", step) for step in trial.steps()]


def test_the_workers_of_shards(tmp_path):
    from python.trials.test_shards import slabs, write

    value = RNG.normal(size=(4, 3)).astype(np.float32)
    write(tmp_path, list(slabs(value, [3, 1])), 0)
    runs.collections(tmp_path, 2)
    dataset = create_trial(runs.end(tmp_path)).to_xarray("w")
    assert dataset.worker.values.tolist() == ["all"]
    assert (dataset.w.values == value).all()
