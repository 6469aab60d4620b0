"""Arrays of Dask have the values of the run, in chunks of the given size."""

from __future__ import annotations

import pickle
import shutil
import sys
from pathlib import Path

import dask
import ml_dtypes
import numpy as np
import pytest

import smdwidgets
from python.trials import runs
from smdwidgets import create_trial, modes
from smdwidgets._core import Catalog
from smdwidgets.dask.arrays import chunks_of
from smdwidgets.exceptions import (
    CorruptDataError,
    SMDebugError,
    SMDebugRuntimeError,
    SMDebugValueError,
    StepUnavailable,
)
from smdwidgets.trials.reader import Reopening

RNG = np.random.default_rng(11)


@pytest.fixture
def written(tmp_path: Path) -> Path:
    runs.collections(tmp_path)
    for step in range(0, 60, 5):
        mode, mode_step = (modes.TRAIN, step // 10) if step % 10 == 0 else (modes.EVAL, step // 10)
        values = {
            "w": RNG.normal(size=(40, 6)).astype(np.float32),
            "half": RNG.normal(size=(3, 4)).astype(ml_dtypes.bfloat16),
            "count": np.int64(step),
            "flags": RNG.integers(0, 2, (2, 3, 4)).astype(bool),
            "text": np.array([f"step {step}"]),
        }
        runs.step(tmp_path, step, values, mode=mode, mode_step=mode_step)
    return runs.end(tmp_path)


def stacked(tensor, **kwargs):
    return np.stack([tensor.value(step, **kwargs) for step in tensor.steps(kwargs.get("mode", modes.GLOBAL))])


def same(found, expected):
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("verify", ["record", "none"])
@pytest.mark.parametrize("chunk_bytes", [1, 24, 500, 2000, 64 << 20])
@pytest.mark.parametrize("scheduler", ["synchronous", "threads"])
@pytest.mark.slow
def test_values_are_those_of_the_tensor(written, chunk_bytes, verify, scheduler):
    trial = create_trial(written)
    for name in ("w", "half", "count", "flags"):
        tensor = trial.tensor(name)
        lazy = tensor.to_dask(chunk_bytes=chunk_bytes, verify=verify)
        row = max(1, lazy.dtype.itemsize * int(np.prod(lazy.shape[2:])))
        assert all(np.prod(chunk) * lazy.dtype.itemsize <= max(chunk_bytes, row) for chunk in _shapes(lazy))
        same(lazy.compute(scheduler=scheduler), stacked(tensor))


def _shapes(lazy):
    return [tuple(lazy.chunks[axis][place] for axis, place in enumerate(at)) for at in np.ndindex(*lazy.numblocks)]


@pytest.mark.parametrize("verify", ["record", "none"])
def test_slices_are_parts(written, verify):
    tensor = create_trial(written).tensor("w")
    lazy, whole = tensor.to_dask(chunk_bytes=300, verify=verify), stacked(tensor)
    for index in [
        np.s_[2], np.s_[2:5, 3:9], np.s_[::3, ::2, 1], np.s_[-1, -1, -1], np.s_[:, 5:5], np.s_[4:4], np.s_[::-1, ::-1],
        np.s_[[0, 3, 7]], np.s_[:, [1, 30]], np.s_[..., 2],
    ]:  # fmt: skip
        same(lazy[index].compute(scheduler="synchronous"), whole[index])
    assert float(lazy.mean().compute()) == pytest.approx(float(whole.mean()), rel=1e-6)


def test_steps_of_a_mode_and_some_steps(written):
    tensor = create_trial(written).tensor("w")
    same(tensor.to_dask(mode=modes.EVAL).compute(), stacked(tensor, mode=modes.EVAL))
    same(tensor.to_dask([10, 5]).compute(), np.stack([tensor.value(10), tensor.value(5)]))
    same(tensor.to_dask(3, "TRAIN").compute(), tensor.value(3, modes.TRAIN)[None])
    with pytest.raises(StepUnavailable):
        tensor.to_dask([10, 11])


def test_chunks_are_bounded():
    assert chunks_of((5000,), 8, 64 << 20) == ((2000, 2000, 1000),)
    assert chunks_of((3, 0, 4), 8, 100) == ((3,), (0,), (4,))
    assert chunks_of((0, 3), 8, 100) == ((0,), (3,))
    assert chunks_of((2, 5, 10), 8, 1) == ((1, 1), (1, 1, 1, 1, 1), (10,))


def test_the_repr_says_the_last_step_of_the_snapshot(tmp_path):
    root = runs.run(tmp_path, range(4), ended=False)
    trial = create_trial(root)
    lazy = trial.tensor("x").to_dask()
    assert repr(lazy).startswith("dask.array<x until step 3, shape=(4, 3)")
    runs.step(root, 4)
    assert lazy.compute().shape == (4, 3)
    assert "until step 4" in repr(trial.tensor("x").to_dask())


def test_other_shapes_and_dtypes_raise_with_the_step(tmp_path):
    runs.collections(tmp_path)
    for step in range(6):
        size = 4 if step == 3 else 3
        dtype = np.int32 if step == 4 else np.float32
        values = {
            "shape": np.ones((size, 2)),
            "dtype": np.ones(3, dtype),
            "swapped": np.ones((3, 2) if step != 5 else (2, 3)),
        }
        runs.step(tmp_path, step, values)
    trial = create_trial(runs.end(tmp_path))
    with pytest.raises(
        SMDebugValueError, match=r"'shape' has dtype float64 and shape \(4, 2\) at step 3, but .*\(3, 2\)"
    ):
        trial.tensor("shape").to_dask()
    same(trial.tensor("shape").to_dask(range(3)).compute(), np.ones((3, 3, 2)))
    # Records of equal length are compared when they are read.
    with pytest.raises(SMDebugValueError, match=r"'dtype' has dtype int32 .* at step 4, but float32"):
        trial.tensor("dtype").to_dask().compute()
    with pytest.raises(SMDebugValueError, match=r"at step 5, but float64 and \(3, 2\)"):
        trial.tensor("swapped").to_dask(chunk_bytes=1).compute()


def test_texts_and_reductions_are_no_arrays(written, tmp_path):
    trial = create_trial(written)
    with pytest.raises(SMDebugValueError, match="contains texts"):
        trial.tensor("text").to_dask()
    with pytest.raises(SMDebugValueError, match=r"verify must be one of record, none"):
        trial.tensor("w").to_dask(verify="all")
    for wrong in (0, 1.5):
        with pytest.raises(SMDebugValueError, match="chunk_bytes"):
            trial.tensor("w").to_dask(chunk_bytes=wrong)
    runs.step(tmp_path / "other", 0, {}, shapes={"s": [3]})
    runs.collections(tmp_path / "other")
    with pytest.raises(SMDebugValueError, match="'s' has no value at any"):
        create_trial(runs.end(tmp_path / "other")).tensor("s").to_dask()


def test_damage_is_found_unless_only_other_rows_are_read(written):
    tensor = create_trial(written).tensor("w")
    place = tensor.trial.reader.index.find("w", 10)
    file = written / place.event_key
    content = bytearray(file.read_bytes())
    value = tensor.value(10)
    at = content.index(value.tobytes(), place.offset) + 30 * 24
    content[at] ^= 1
    file.write_bytes(content)
    tensor = create_trial(written).tensor("w")
    for read in (tensor.to_dask(10).compute, tensor.to_dask(10, chunk_bytes=240)[0, :5].compute):
        with pytest.raises(CorruptDataError, match=place.event_key):
            read()
    same(tensor.to_dask(10, chunk_bytes=240, verify="none")[0, :30].compute(), value[:30])
    same(tensor.rows(10, 0, 30, verify="none"), value[:30])
    with pytest.raises(CorruptDataError, match=place.event_key):
        tensor.rows(10, 0, 30)


def test_rows_are_those_of_the_value(written):
    trial = create_trial(written)
    for name in ("w", "half", "flags", "text"):
        tensor = trial.tensor(name)
        for start, stop in [(0, 1), (1, 3), (0, 99), (-1, 99), (2, 1), (5, 5), (0, -1)]:
            for verify in ("record", "none"):
                same(tensor.rows(15, start, stop, verify=verify), tensor.value(15)[start:stop])
    same(trial.tensor("w").rows(1, 3, 5, modes.EVAL, "worker_0"), trial.tensor("w").value(1, modes.EVAL)[3:5])


@pytest.mark.slow
def test_rows_of_a_large_record_are_verified_in_pieces(tmp_path):
    value = RNG.integers(0, 255, (20, 1 << 20)).astype(np.uint8)
    runs.run(tmp_path, range(2), values={"large": value})
    tensor = create_trial(tmp_path).tensor("large")
    same(tensor.rows(1, 7, 9), value[7:9])
    lazy = tensor.to_dask(chunk_bytes=3 << 20)
    assert lazy.chunks == ((1, 1), (3, 3, 3, 3, 3, 3, 2), (1 << 20,))
    same(lazy.compute(scheduler="synchronous"), np.stack([value, value]))
    file = tmp_path / tensor.trial.reader.index.find("large", 1).event_key
    content = bytearray(file.read_bytes())
    content[-100] ^= 1
    file.write_bytes(content)
    with pytest.raises(CorruptDataError, match="checksum"):
        create_trial(tmp_path).tensor("large").to_dask(1, chunk_bytes=3 << 20)[0, 0].compute()


def test_shards_are_assembled(tmp_path):
    from python.trials.test_shards import slabs, write

    values = [RNG.normal(size=(8, 3)).astype(np.float32) for _ in range(3)]
    for step, value in enumerate(values):
        write(tmp_path, list(slabs(value, [3, 5])), step)
    runs.collections(tmp_path, 2)
    tensor = create_trial(runs.end(tmp_path)).tensor("w")
    for verify in ("record", "none"):
        lazy = tensor.to_dask(chunk_bytes=40, verify=verify)
        assert lazy.shape == (3, 8, 3)
        same(lazy.compute(), np.stack(values))
    same(tensor.to_dask(worker="worker_1").compute(), np.stack([value[3:] for value in values]))
    same(tensor.rows(1, 2, 5), values[1][2:5])


def test_nothing_but_the_event_files_is_read(written):
    trial = create_trial(written)
    expected = stacked(trial.tensor("w"))
    graph = pickle.dumps(trial.tensor("w").to_dask(chunk_bytes=1000))
    for folder in ("index", "collections"):
        shutil.rmtree(written / folder)
    same(pickle.loads(graph).compute(scheduler="synchronous"), expected)


def test_without_dask_the_error_says_how_to_install_it(written, monkeypatch):
    trial = create_trial(written)
    for name in [name for name in sys.modules if name.partition(".")[0] in ("dask", "xarray")]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "dask", None)
    monkeypatch.setitem(sys.modules, "xarray", None)
    for read in (trial.tensor("w").to_dask, trial.to_xarray, trial.to_dask_dataframe):
        with pytest.raises(SMDebugRuntimeError, match=r"run: pip install 'smdwidgets\[dask\]'"):
            read()


def test_equal_arrays_have_equal_names(written):
    tensor = create_trial(written).tensor("w")
    assert tensor.to_dask().name == create_trial(written).tensor("w").to_dask().name
    others = [tensor.to_dask(range(0, 30, 5)), tensor.to_dask(chunk_bytes=100), tensor.to_dask(verify="none")]
    assert len({lazy.name for lazy in [tensor.to_dask(), *others]}) == 4
    assert dask.is_dask_collection(tensor.to_dask())


def test_columns_of_a_catalog_are_checked(written):
    catalog = create_trial(written).reader.run.catalog
    again = Catalog.from_columns(catalog.to_columns())
    assert (again.names(), again.steps(), again.modes()) == (catalog.names(), catalog.steps(), catalog.modes())
    for wrong in (b"", b"SMDCAT\x01\n", catalog.to_columns()[:-1], catalog.to_columns() + b"\0"):
        with pytest.raises(CorruptDataError, match="invalid catalog"):
            Catalog.from_columns(wrong)


def test_trials_that_cannot_be_sent_say_so(written):
    trial = create_trial(written)
    trial.reader.reopening = lambda: Reopening(lambda: None, (), {}, True)
    with pytest.raises(SMDebugError, match="cannot send the trial"):
        trial.tensor("w").to_dask()
    assert smdwidgets.trials.shipping.pack(create_trial(written).reader).size < 10_000
