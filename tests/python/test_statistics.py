"""Statistics of tensors: against NumPy, and combined over parts."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from smdwidgets import _core

COUNTS = ["count", "nan", "neg_inf", "pos_inf", "zeros", "saturated", "subnormal"]
NUMBERS = ["min", "max", "mean", "std", "l1", "l2", "abs_max", "update"]
DTYPES = ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?", "c8", "c16"]
#: Types of 8 and 4 bits.
SMALL = [
    "float8_e5m2", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e4m3b11fnuz", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn"
]  # fmt: skip


def oracle(array: NDArray[Any], previous: NDArray[Any] | None = None) -> dict[str, float]:
    """Return the statistics as NumPy computes them in float64."""
    flat = array.reshape(-1)
    wide = flat.astype("c16" if flat.dtype.kind == "c" else "f8")
    kept = np.isfinite(wide)
    sizes = np.abs(wide[kept]) if flat.dtype.kind == "c" else wide[kept]
    found: dict[str, float] = {
        "count": flat.size,
        "nan": int(np.isnan(wide).sum()),
        "neg_inf": 0 if flat.dtype.kind == "c" else int(np.isneginf(wide).sum()),
        "zeros": int((wide == 0).sum()),
        "saturated": 0,
        "subnormal": 0,
    }
    if flat.dtype.name in SMALL:
        limits = ml_dtypes.finfo(flat.dtype)
        found["saturated"] = int((np.abs(wide) == float(limits.max)).sum())
        found["subnormal"] = int(((wide != 0) & (np.abs(wide) < float(limits.smallest_normal))).sum())
    found["pos_inf"] = int((~kept).sum()) - found["nan"] - found["neg_inf"]
    some = sizes.size > 0
    found |= {
        "min": sizes.min() if some else np.nan,
        "max": sizes.max() if some else np.nan,
        "mean": sizes.mean() if some else np.nan,
        "std": sizes.std() if some else np.nan,
        "l1": np.abs(sizes).sum(),
        "l2": np.sqrt((np.abs(sizes) ** 2).sum()),
        "abs_max": np.abs(sizes).max() if some else np.nan,
        "update": np.nan,
    }
    if previous is not None:
        change = wide - previous.reshape(-1).astype(wide.dtype)
        found["update"] = np.sqrt((np.abs(change[np.isfinite(change)]) ** 2).sum())
    return found


def arrays() -> list[NDArray[Any]]:
    """Return tensors of every dtype, with NaN and infinities where it has them."""
    rng = np.random.default_rng(0)
    made: list[NDArray[Any]] = []
    for dtype in DTYPES:
        for shape in [(), (0,), (1,), (33,), (64, 129)]:
            values = rng.normal(0, 20, shape)
            if np.dtype(dtype).kind == "c":
                values = values + 1j * rng.normal(0, 20, shape)
            if np.dtype(dtype).kind == "u":
                values = np.abs(values)
            array = np.asarray(values).astype(dtype)
            if array.size > 30 and array.dtype.kind in "fc":
                array.flat[[0, 17, 20, -1]] = [np.nan, np.inf, 0, -np.inf]
            made.append(array)
    for dtype in SMALL:
        codes = np.arange(16 if dtype == "float4_e2m1fn" else 256, dtype=np.uint8)
        finite = codes[np.isfinite(codes.view(getattr(ml_dtypes, dtype)).astype("f4"))]
        many = rng.permutation(np.resize(codes, 9000)).reshape(90, 100)
        made.extend(some.view(getattr(ml_dtypes, dtype)) for some in (codes, finite, many))
    return made


@pytest.mark.parametrize("array", arrays(), ids=lambda array: f"{array.dtype}-{array.shape}")
def test_statistics_equal_those_of_numpy(array: NDArray[Any]) -> None:
    previous = np.roll(array, 1)
    with np.errstate(invalid="ignore"):
        expected = oracle(array, previous)
    found = _core.tensor_statistics(array, previous)
    assert list(found) == COUNTS + NUMBERS
    assert {name: found[name] for name in COUNTS} == {name: expected[name] for name in COUNTS}
    for name in NUMBERS:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-12, atol=1e-12, err_msg=name)


def test_columns_have_one_row_per_array_with_any_number_of_threads() -> None:
    given = arrays()
    singles = [_core.tensor_statistics(array) for array in given]
    for threads in (1, 3):
        columns = _core.statistics_of(given, threads=threads)
        for name in COUNTS + NUMBERS:
            assert columns[name].dtype == (np.int64 if name in COUNTS else np.float64)
            np.testing.assert_array_equal(columns[name], [single[name] for single in singles])


def test_bytes_of_bfloat16_count_as_floats() -> None:
    values = np.array([1.0, -2.0, np.nan, 0.5], np.float32)
    upper = np.ascontiguousarray(values.view(np.uint16)[1::2])
    columns = _core.statistics_of([upper.view(np.uint8)], dtypes=["bfloat16"])
    assert (columns["count"][0], columns["nan"][0], columns["min"][0], columns["l1"][0]) == (4, 1, -2.0, 3.5)


def test_strided_and_big_endian_arrays_are_converted() -> None:
    array = np.arange(24.0).reshape(4, 6)
    for view in (array.T, array[::2, 1:], array.astype(">f8")):
        assert _core.tensor_statistics(view) == pytest.approx(oracle(view), nan_ok=True)


def test_previous_array_must_match_in_dtype_and_shape() -> None:
    now = np.ones((2, 3), np.float32)
    for previous in (np.ones((3, 2), np.float32), np.ones((2, 3), np.int32), np.ones(5, np.float32)):
        with pytest.raises(ValueError, match="previous array is"):
            _core.tensor_statistics(now, previous)
    with pytest.raises(ValueError, match="previous has 2 elements for 1 arrays"):
        _core.statistics_of([now], [now, now])
    with pytest.raises(ValueError, match="string"):
        _core.tensor_statistics(np.array(["a"]))


def test_shards_combine_to_the_statistics_of_the_whole() -> None:
    rng = np.random.default_rng(1)
    wholes = [rng.normal(5, 0.1, 1000), rng.normal(0, 1, 77), np.zeros(9)]
    before = [whole * 0.9 for whole in wholes]
    wholes[1][3] = np.nan
    cuts = [[0, 100, 999, 1000], [0, 0, 40, 77], [0, 9]]
    parts, previous, numbers = [], [], []
    for at, (whole, ends) in enumerate(zip(wholes, cuts, strict=True)):
        for start, stop in itertools.pairwise(ends):
            parts.append(whole[start:stop])
            previous.append(before[at][start:stop])
            numbers.append(at)
    combined = _core.combine_statistics(_core.statistics_of(parts, previous), numbers)
    expected = _core.statistics_of(wholes, before)
    for name in [*COUNTS, "min", "max", "abs_max"]:
        np.testing.assert_array_equal(combined[name], expected[name])
    for name in ["mean", "std", "l1", "l2", "update"]:
        np.testing.assert_allclose(combined[name], expected[name], rtol=1e-13, atol=1e-15)


def test_missing_update_of_one_part_leaves_that_of_the_whole_unknown() -> None:
    array = np.arange(6.0)
    columns = _core.statistics_of([array[:3], array[3:]], [array[:3] + 1, None])
    assert np.isnan(_core.combine_statistics(columns)["update"][0])


def test_norm_and_largest_magnitude_are_derived_where_they_are_not_stored() -> None:
    columns = _core.statistics_of([np.array([3.0, -4.0]), np.array([12.0])])
    del columns["l2"], columns["abs_max"]
    whole = _core.combine_statistics(columns)
    np.testing.assert_allclose([whole["l2"][0], whole["abs_max"][0]], [13.0, 12.0], rtol=1e-15)
    with pytest.raises(KeyError, match="mean"):
        _core.combine_statistics({name: columns[name] for name in columns if name != "mean"})
