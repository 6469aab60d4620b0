"""Casts to formats of 4 and 8 bits, compared with ml_dtypes."""

import ml_dtypes
import numpy as np
import pytest

import smdwidgets
from smdwidgets import _core
from smdwidgets.numpy import Hook
from smdwidgets.trials.precision import precision_of

TYPES = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2, "e2m1": ml_dtypes.float4_e2m1fn}


def cast(values, name):
    return np.frombuffer(_core.precision_cast(values, name), np.uint8)


@pytest.mark.parametrize("name", TYPES)
def test_casts_are_bit_equal_to_those_of_ml_dtypes(name):
    rng = np.random.default_rng(0)
    every = np.arange(1 << 16, dtype=np.uint32) << 16
    near = every[:, None] + np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)
    bits = np.concatenate([near.ravel(), rng.integers(0, 1 << 32, 200_000, dtype=np.uint32)])
    values = bits.view(np.float32)
    with np.errstate(all="ignore"):
        expected = values.astype(TYPES[name]).view(np.uint8)
    np.testing.assert_array_equal(cast(values, name), expected)


def reference(values, name):
    """Return which values are flushed, which saturate, and what they become."""
    x = values.astype(np.float64)
    element, largest, size = {
        "E4M3": ("e4m3", 448.0, None),
        "E5M2": ("e5m2", 57344.0, None),
        "MXFP8": ("e4m3", 448.0, 32),
        "NVFP4": ("e2m1", 6.0, 16),
    }[name]
    most = np.abs(x).max()
    if size is None:
        scale = np.full(x.shape, np.float32(most) / np.float32(largest))
    else:
        blocks = np.abs(x).reshape(-1, size).max(axis=1)
        if name == "MXFP8":
            scale = 2.0 ** (np.floor(np.log2(blocks)) - 8)
        else:
            tensor = np.float32(most) / np.float32(6 * 448)
            wanted = blocks.astype(np.float32) / np.float32(6) / tensor
            scale = wanted.astype(TYPES["e4m3"]).astype(np.float32) * tensor
        scale = np.repeat(scale, size)
    scaled = (values * (np.float32(1) / scale.astype(np.float32))).astype(np.float32)
    clipped = np.clip(scaled, -largest, largest)
    return clipped.astype(TYPES[element]).astype(np.float64) * scale


@pytest.mark.parametrize("name", ["E4M3", "E5M2", "MXFP8", "NVFP4"])
@pytest.mark.parametrize("spread", [0.5, 3.0])
def test_shares_and_errors_are_those_of_exact_casts(name, spread):
    rng = np.random.default_rng(1)
    values = (rng.lognormal(0, spread, 1 << 16) * rng.choice([-1, 1], 1 << 16)).astype(np.float32)
    exact = reference(values, name)
    row = next(one for one in precision_of(values) if one.format == name)
    assert row.flushed == pytest.approx(np.mean(exact == 0), abs=1e-9)
    error = np.sqrt(np.square(exact - values).sum() / np.square(values.astype(np.float64)).sum())
    assert row.error == pytest.approx(error, rel=1e-5)


def test_many_values_are_the_sum_of_their_parts():
    values = np.random.default_rng(2).normal(size=3 << 20).astype(np.float32)
    whole = _core.precision_loss(values, "mxfp8")
    parts = [_core.precision_loss(part, "mxfp8") for part in np.split(values, 3)]
    for key in ("nonzero", "zeros", "flushed", "saturated"):
        assert whole[key] == sum(part[key] for part in parts)


def test_without_a_scale_large_values_saturate_and_zeros_are_apart():
    values = np.array([0.0, -0.0, 1e9, -1e-9, np.nan, np.inf, 1e-42], np.float32)
    table = precision_of(values, scaled=False)
    assert (table.zeros, table.not_finite) == (2, 2)
    assert (table[0].flushed, table[0].saturated) == (2 / 3, 1 / 3)


@pytest.mark.parametrize("values", [np.empty(0, np.float32), np.zeros(5, np.float32), np.full(5, np.nan, np.float32)])
def test_odd_arrays_have_no_loss(values):
    assert all((one.flushed, one.saturated, one.error) == (0, 0, 0) for one in precision_of(values))


def test_a_saved_tensor_has_a_table_of_formats(tmp_path):
    with Hook(tmp_path / "run") as hook:
        for dtype in (np.float32, np.float64, np.int32):
            hook.save_tensor(f"w_{np.dtype(dtype).name}", np.arange(-50, 50).astype(dtype), "weights")
        hook.step()
    trial = smdwidgets.create_trial(tmp_path / "run")
    for name in ("w_float32", "w_float64", "w_int32"):
        table = trial.tensor(name).precision()
        assert [one.format for one in table] == ["E4M3", "E5M2", "MXFP8", "NVFP4"]
        assert table.zeros == 1
        assert 0.01 < table[0].error < table[3].error < 0.2
    assert "NVFP4" in repr(trial.tensor("w_float32").precision(0))


@pytest.mark.parametrize("call", [lambda x: _core.precision_loss(x, "fp6"), lambda x: _core.precision_cast(x, "mxfp8")])
def test_other_formats_are_refused(call):
    with pytest.raises(ValueError, match="choose from"):
        call(np.ones(3, np.float32))


def test_other_dtypes_are_refused():
    with pytest.raises(ValueError, match="float32"):
        _core.precision_cast(np.ones(3), "e4m3")
