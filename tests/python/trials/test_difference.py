"""The difference of two values, compared with NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import smdwidgets
from python.trials import runs
from python.trials.test_shards import opened, slabs, write
from smdwidgets import _core
from smdwidgets.exceptions import (
    IncompleteShardsError,
    InvalidWorker,
    SMDebugTypeError,
    SMDebugValueError,
    StepUnavailable,
    TensorUnavailable,
    TensorUnavailableForStep,
)

DTYPES = [
    *(np.dtype(name) for name in ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?", "c8", "c16")),
    np.dtype(ml_dtypes.bfloat16),
]


def random(dtype: np.dtype[Any], shape: tuple[int, ...], seed: int) -> Any:
    rng = np.random.default_rng(seed)
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    real = rng.normal(size=shape)
    return (real + 1j * rng.normal(size=shape)).astype(dtype) if dtype.kind == "c" else real.astype(dtype)


def expected(a: Any, b: Any) -> Any:
    """Return the difference, each element rounded once."""
    if a.dtype.kind in "biu" and b.dtype.kind in "biu":
        pairs = zip(a.reshape(-1).tolist(), b.reshape(-1).tolist(), strict=True)
        return np.array([float(x - y) for x, y in pairs]).reshape(a.shape)
    wide = np.complex128 if "c" in (a.dtype.kind, b.dtype.kind) else np.float64
    with np.errstate(invalid="ignore"):
        return a.astype(wide) - b.astype(wide)


def order(a: Any, b: Any) -> list[int]:
    """Return the positions of changed elements, the largest change first."""
    apart = np.abs(expected(a, b)).reshape(-1)
    wide = np.complex128 if "c" in (a.dtype.kind, b.dtype.kind) else np.float64
    x, y = a.astype(wide).reshape(-1), b.astype(wide).reshape(-1)

    def equal(x: Any, y: Any) -> Any:
        return (x == y) | (np.isnan(x) & np.isnan(y))

    same = equal(x.real, y.real) & equal(x.imag, y.imag) if wide is np.complex128 else equal(x, y)
    if a.dtype.kind in "biu" and b.dtype.kind in "biu":
        same = apart == 0
    change = np.where(same, 0, np.where(np.isfinite(apart), apart, np.inf))
    return [at for at in np.lexsort((np.arange(len(change)), -change)) if change[at] > 0]


@pytest.mark.parametrize("second", DTYPES, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("first", DTYPES, ids=lambda dtype: dtype.name)
def test_differences_equal_numpys(first: np.dtype[Any], second: np.dtype[Any]) -> None:
    a, b = random(first, (37, 5), 0), random(second, (37, 5), 1)
    a.flat[7] = b.flat[7] = 1
    for array, value in ((a, np.nan), (b, np.inf)):
        if array.dtype.kind in "fcV":
            array.flat[11] = value
            array.flat[23] = value
    found = _core.difference(a, b, 64)
    np.testing.assert_array_equal(found["value"], expected(a, b))
    wanted = order(a, b)
    assert found["top"].tolist() == wanted[:64]
    assert found["changed"] == len(wanted)


@pytest.mark.parametrize("shape", [(), (0,), (0, 8), (1,), (4097,), (3, 5, 7)])
def test_differences_of_any_shape_and_layout(shape: tuple[int, ...]) -> None:
    a, b = random(np.dtype("f4"), shape, 2), random(np.dtype("f4"), shape, 3)
    a, b = np.asarray(a), np.asarray(b)
    for x, y in ((a, b), (a.T, b.T.copy("F")), (a.astype(">f4"), b)):
        found = _core.difference(x, y, 8)
        np.testing.assert_array_equal(found["value"], expected(x, y))
        assert found["top"].tolist() == order(np.ascontiguousarray(x), np.ascontiguousarray(y))[:8]


def test_ascending_and_equal_changes() -> None:
    a = np.arange(100_000, dtype=np.float32)
    assert _core.difference(a, np.zeros_like(a), 3)["top"].tolist() == [99_999, 99_998, 99_997]
    ones = np.ones((300, 300))
    assert _core.difference(ones, ones * 0, 5)["top"].tolist() == [0, 1, 2, 3, 4]


def test_a_tensor_at_two_steps(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    values = [rng.normal(size=(12, 8)).astype(np.float32) for _ in range(3)]
    values[2][3, 4] = np.nan
    runs.collections(tmp_path)
    for step, value in enumerate(values):
        runs.step(tmp_path, step * 10, {"w": value, "half": value.astype(np.float16)})
    trial = smdwidgets.create_trial(runs.end(tmp_path))
    difference = trial.tensor("w").difference(20, 10)
    wanted = values[2].astype(np.float64) - values[1]
    np.testing.assert_array_equal(difference.value(), wanted)
    assert difference.shape == (12, 8)
    statistics = difference.statistics
    finite = wanted[np.isfinite(wanted)]
    assert (statistics["count"], statistics["changed"], statistics["nan"]) == (96, 96, 1)
    assert statistics["mean"] == pytest.approx(finite.mean())
    assert statistics["l2"] == pytest.approx(np.linalg.norm(finite))
    flat = order(values[2], values[1])
    changed = difference.changed()
    assert changed["index"].tolist() == [np.unravel_index(at, (12, 8)) for at in flat[:12]]
    assert changed["index"][0] == (3, 4)
    np.testing.assert_array_equal(changed["a"], values[2].reshape(-1)[flat[:12]])
    np.testing.assert_array_equal(changed["b"], values[1].reshape(-1)[flat[:12]])
    np.testing.assert_array_equal(changed["difference"], wanted.reshape(-1)[flat[:12]])
    assert difference.changed(96).num_rows == 96
    assert difference.changed(0).num_rows == 0
    frame = difference.to_pandas(5)
    assert list(frame.columns) == ["index", "a", "b", "difference"]
    assert frame["index"][0] == (3, 4)
    text = repr(difference)
    assert text.startswith("'w' at step 20 − step 10\nfloat32, 12 × 8; 96 elements, 96 changed, 1 not finite\n")
    assert "(3, 4)" in text
    assert "(3, 4)" in difference._repr_html_()

    # The same, by names and tuples; of two tensors; of the same step.
    np.testing.assert_array_equal(trial.difference(("w", 20), 10).value(), wanted)
    np.testing.assert_array_equal(trial.difference(("w", 20), (trial.tensor("w"), 10)).value(), wanted)
    halves = trial.tensor("w").difference(10, 10, trial.tensor("half"))
    np.testing.assert_array_equal(halves.value(), values[1].astype(np.float64) - values[1].astype(np.float16))
    same = trial.tensor("w").difference(20, 20)
    assert same.statistics["changed"] == 0
    assert same.changed().num_rows == 0
    assert "0 changed" in repr(same)


def test_two_runs_workers_and_modes(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in "ab"]
    for number, path in enumerate(paths):
        runs.collections(path, workers=2)
        for worker in range(2):
            value = np.full((2, 2), 10.0 * number + worker)
            runs.step(path, 4, {"w": value}, f"worker_{worker}", smdwidgets.modes.EVAL, 1)
        runs.end(path)
    first, second = (smdwidgets.create_trial(path) for path in paths)
    found = first.difference(("w", 1, "worker_1"), (second.tensor("w"), 1), mode="EVAL")
    np.testing.assert_array_equal(found.value(), np.full((2, 2), -9.0))
    assert repr(found).startswith("'w' at step 1 of EVAL of worker_1 − 'w' at step 1 of EVAL")
    tensor = first.tensor("w")
    assert tensor.difference(4, 4, worker="worker_1").statistics["changed"] == 0
    assert tensor.difference(4, 4, worker="worker_1", other_worker="worker_0").value().max() == 1
    with pytest.raises(InvalidWorker, match="worker_7"):
        tensor.difference(4, 4, worker="worker_7")


def test_errors_say_what_is_wrong(tmp_path: Path) -> None:
    runs.collections(tmp_path)
    runs.step(tmp_path, 0, {"w": np.zeros((4, 2)), "words": np.array(["a", "b"]), "gone": np.zeros(3)})
    runs.step(tmp_path, 1, {"w": np.zeros((2, 4)), "words": np.array(["a", "b"])})
    with _core.StepWriter(tmp_path, 2, "worker_0", 4) as writer:
        writer.tensor(_core.reduction_name("mean", False, "w"), np.float32(0.5))
    trial = smdwidgets.create_trial(runs.end(tmp_path))
    with pytest.raises(SMDebugValueError, match=r"cannot subtract 'w' at step 0 from 'w' at step 1: shapes \(4, 2\)"):
        trial.tensor("w").difference(1, 0)
    with pytest.raises(SMDebugTypeError, match="cannot subtract text: 'words' at step 1 is not numeric"):
        trial.tensor("words").difference(1, 0)
    with pytest.raises(TensorUnavailableForStep, match="gone"):
        trial.tensor("gone").difference(1, 0)
    with pytest.raises(TensorUnavailableForStep, match="reductions"):
        trial.tensor("w").difference(2, 0)
    with pytest.raises(StepUnavailable, match="7"):
        trial.tensor("w").difference(7, 0)
    with pytest.raises(TensorUnavailable, match="Did you mean"):
        trial.difference(("word", 0), 1)
    with pytest.raises(SMDebugTypeError, match="a must be"):
        trial.difference("w", 1)  # type: ignore[arg-type]
    with pytest.raises(SMDebugTypeError, match="b must be"):
        trial.difference(("w", 1), "w")  # type: ignore[arg-type]
    with pytest.raises(SMDebugTypeError, match="other must be a Tensor, got str"):
        trial.tensor("w").difference(1, 0, "w")  # type: ignore[arg-type]
    for wrong in (-1, 1.5, True):
        with pytest.raises(SMDebugValueError, match="k must be"):
            trial.tensor("w").difference(0, 0).changed(wrong)  # type: ignore[arg-type]


def test_a_sharded_tensor_is_assembled_or_incomplete(tmp_path: Path) -> None:
    whole = np.arange(24, dtype=np.float32).reshape(6, 4)
    write(tmp_path, slabs(whole, [2, 4]), step=0)
    write(tmp_path, slabs(whole * 2, [4, 2]), step=1)
    write(tmp_path, [next(slabs(whole, [2, 4]))], step=2)
    trial = opened(tmp_path, 2)
    np.testing.assert_array_equal(trial.tensor("w").difference(1, 0).value(), whole)
    with pytest.raises(IncompleteShardsError):
        trial.tensor("w").difference(2, 0)
