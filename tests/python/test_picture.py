"""Histograms, percentiles, images and windows match slow NumPy implementations."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from smdwidgets import _core

DTYPES = ["float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint32", "uint64", "bool"]


def some(name, n=5000, seed=3):
    x = np.random.default_rng(seed).normal(0, 40, n)
    x = np.abs(x) if name.startswith("u") else x
    return x > 0 if name == "bool" else x.astype(name)


# ---------------------------------------------------------------- histograms


def same_bins(x, h):
    """Assert that the counts equal those of numpy with the same edges."""
    finite = x[np.isfinite(x)].astype(np.float64)
    counts, _ = np.histogram(finite, h["edges"])
    assert h["counts"].tolist() == counts.tolist()
    assert h["under"] == (finite < h["edges"][0]).sum()
    assert h["over"] == (finite > h["edges"][-1]).sum()
    assert h["n"] == x.size
    assert h["nan"] == np.isnan(x).sum()
    assert h["pos_inf"] == np.isposinf(x).sum()
    assert h["neg_inf"] == np.isneginf(x).sum()
    assert h["zeros"] == (x == 0).sum()
    total = h["counts"].sum() + h["under"] + h["over"] + h["nan"] + h["pos_inf"] + h["neg_inf"]
    assert total == h["n"]


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("scale", ["linear", "log", "symlog", "auto"])
def test_histogram_of_every_dtype(name, scale):
    x = some(name)
    h = _core.histogram(x, 50, scale=scale)
    same_bins(x.astype(np.float64), h)
    assert len(h["edges"]) == 51
    if scale != "log":
        assert h["under"] == h["over"] == 0
        assert h["edges"][0] == x.min()
        assert h["edges"][-1] == x.max()


@given(
    hnp.arrays(np.float32, st.integers(0, 60), elements=st.floats(width=32)),
    st.integers(1, 20),
    st.sampled_from(["linear", "symlog", "log", "auto"]),
)
@settings(max_examples=200, deadline=None)
def test_histogram_of_arbitrary_values(x, bins, scale):
    h = _core.histogram(x, bins, scale=scale)
    assert np.isfinite(h["edges"]).all()
    assert (np.diff(h["edges"]) > 0).all()
    same_bins(x, h)
    if scale != "log":
        assert h["under"] == h["over"] == 0


@given(
    hnp.arrays(np.float64, st.integers(0, 60), elements=st.floats()),
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=2, max_size=12, unique=True).map(sorted),
)
@settings(max_examples=200, deadline=None)
def test_histogram_with_given_edges(x, edges):
    same_bins(x, _core.histogram(x, edges))


def test_values_on_edges():
    edges = np.linspace(-1, 1, 101)
    x = np.concatenate([edges, np.nextafter(edges, -9), np.nextafter(edges, 9)])
    same_bins(x, _core.histogram(x, edges))
    same_bins(x, _core.histogram(x, 100, range=(-1, 1)))
    for scale in ("log", "symlog"):
        edges = _core.histogram(np.array([1e-3, 1e3]), 100, scale=scale)["edges"]
        x = np.concatenate([edges, np.nextafter(edges, -9e9), np.nextafter(edges, 9e9)])
        same_bins(x, _core.histogram(x, 100, range=(1e-3, 1e3), scale=scale))


def test_scale_follows_the_elements():
    x = np.random.default_rng(0).normal(0, 1, 5000)
    assert _core.histogram(x, scale="auto")["scale"] == "linear"
    x[7] = 1e6
    h = _core.histogram(x, scale="auto")
    assert h["scale"] == "symlog"
    assert (h["counts"] > 0).sum() > 30


def test_complex_magnitudes_and_absolute_values_of_reals():
    x = np.array([3 + 4j, -5, 0j], np.complex64)
    assert _core.histogram(x, [0, 4, 6])["counts"].tolist() == [1, 2]
    assert _core.histogram(np.array([-3.0, 2.0]), [0, 2.5, 6], magnitude=True)["counts"].tolist() == [1, 1]


@pytest.mark.parametrize(
    ("bins", "options", "message"),
    [
        (0, {}, "bins 0; needs 1 to 65536"),
        (1 << 40, {}, "needs 1 to 65536"),
        ([1.0], {}, "edges 1; needs 2 to 65537"),
        ([1.0, 1.0], {}, "increasing"),
        ([0.0, np.inf], {}, "finite"),
        (5, {"range": (2, 1)}, "invalid histogram range"),
        (5, {"range": (-1, 1), "scale": "log"}, "start above 0"),
        (5, {"scale": "cubic"}, "invalid scale"),
        ([1, 2], {"range": (0, 1)}, "mutually exclusive"),
    ],
)
def test_invalid_histograms(bins, options, message):
    with pytest.raises(ValueError, match=message):
        _core.histogram(np.arange(3.0), bins, **options)


# ---------------------------------------------------------------- percentiles

Q = [0, 0.1, 5, 25, 50, 61.8, 75, 99, 99.99, 100]


@pytest.mark.parametrize("name", [n for n in DTYPES if n != "bool"])
@pytest.mark.parametrize("n", [1, 2, 1000, 40_000])
def test_percentiles_match_numpy(name, n):
    x = some(name, n).astype(name)
    theirs = np.percentile(x.astype(np.float64), Q)
    np.testing.assert_allclose(_core.percentiles(x, Q), theirs, rtol=1e-14, atol=1e-14)


def test_percentiles_ignore_nan_and_include_infinity():
    x = np.random.default_rng(0).normal(0, 1, 30_000)
    x[::7] = np.nan
    x[3::50] = np.inf
    x[5::60] = -0.0
    ours, theirs = _core.percentiles(x, Q[:-3]), np.nanpercentile(x, Q[:-3])
    np.testing.assert_allclose(ours, theirs, rtol=1e-14)
    assert _core.percentiles(x, [100])[0] == np.inf
    assert np.isnan(_core.percentiles(np.full(20_000, np.nan), [50])).all()
    assert np.isnan(_core.percentiles(np.zeros(0), [50])).all()
    with pytest.raises(ValueError, match="invalid percentile 101"):
        _core.percentiles(x, [101])


def test_many_percentiles_of_many_elements():
    x = np.random.default_rng(0).normal(0, 1, 20_001).astype(np.float32)
    q = np.linspace(0, 100, 40)
    np.testing.assert_allclose(_core.percentiles(x, q.tolist()), np.percentile(x.astype(np.float64), q), rtol=1e-14)


# ---------------------------------------------------------------- images


def image_of(x, height, width, pool):
    """Compute the same image cell by cell."""
    height, width = min(height, x.shape[0]), min(width, x.shape[1])
    out = np.zeros((height, width), np.float32)
    for i in range(height):
        for j in range(width):
            rows = slice(i * x.shape[0] // height, (i + 1) * x.shape[0] // height)
            cell = x[rows, j * x.shape[1] // width : (j + 1) * x.shape[1] // width].astype(np.float64).ravel()
            if np.isnan(cell).any():
                out[i, j] = np.nan
            elif np.isposinf(cell).any():
                out[i, j] = np.inf
            elif np.isneginf(cell).any():
                out[i, j] = -np.inf
            elif pool == "maxabs":
                out[i, j] = cell[np.abs(cell).argmax()]
            else:
                out[i, j] = {"mean": np.mean, "min": np.min, "max": np.max}[pool](cell)
    return out


@given(
    hnp.arrays(np.float32, hnp.array_shapes(min_dims=2, max_dims=2, max_side=30), elements=st.integers(-50, 50)),
    st.integers(1, 12),
    st.integers(1, 12),
    st.sampled_from(["mean", "min", "max", "maxabs"]),
    st.data(),
)
@settings(max_examples=150, deadline=None)
def test_pooled(x, height, width, pool, data):
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, x.size - 1))
        x.flat[at] = data.draw(st.sampled_from([np.nan, np.inf, -np.inf]))
    expected = image_of(x, height, width, pool)
    got = _core.pooled(x, (height, width), pool)
    if pool == "maxabs":
        np.testing.assert_array_equal(np.abs(got["image"]), np.abs(expected))
    else:
        np.testing.assert_allclose(got["image"], expected, rtol=1e-6)
    turned = _core.pooled(x, (width, height), pool, row_axis=1, column_axis=0)
    np.testing.assert_allclose(np.abs(turned["image"]), np.abs(expected.T), rtol=1e-6)
    finite = got["image"][np.isfinite(got["image"])]
    assert (got["min"], got["max"]) == (finite.min(), finite.max()) if finite.size else np.isnan(got["min"])


def test_wide_rows_are_pooled_in_pieces():
    x = np.random.default_rng(0).normal(0, 1, (3, 10_007))
    for width in (1, 2, 5, 4096):
        np.testing.assert_allclose(_core.pooled(x, (2, width))["image"], image_of(x, 2, width, "mean"), rtol=1e-5)


@pytest.mark.parametrize("name", [*DTYPES, "complex64", "complex128", "bfloat16"])
def test_pooled_of_every_dtype(name):
    x = np.arange(12).reshape(3, 4).astype(ml_dtypes.bfloat16 if name == "bfloat16" else name)
    np.testing.assert_array_equal(_core.pooled(x)["image"], np.abs(x).astype(np.float32))


def test_planes_of_any_rank():
    x = np.random.default_rng(0).normal(0, 1, (3, 4, 5, 6)).astype(np.float32)
    assert np.array_equal(_core.pooled(x)["image"], x[0, 0])
    assert np.array_equal(_core.pooled(x, fixed=[2, 3])["image"], x[2, 3])
    assert np.array_equal(_core.pooled(x, row_axis=0, column_axis=2, fixed=[1, 5])["image"], x[:, 1, :, 5])
    assert np.array_equal(_core.pooled(x, row_axis=-1, column_axis=1, fixed=[2, 4])["image"], x[2, :, 4, :].T)
    cut = _core.pooled(x, fixed=[1, 1], rows=(1, 3), columns=(4, 99))
    assert np.array_equal(cut["image"], x[1, 1, 1:3, 4:])
    assert cut["columns"] == (4, 6)
    assert np.array_equal(_core.window(x, (1, 3), (0, 2), row_axis=1, column_axis=3, fixed=[2, 0]), x[2, 1:3, 0, 0:2])
    assert _core.pooled(np.float32(7) * np.ones(()))["image"].tolist() == [[7]]
    assert _core.pooled(np.arange(4.0))["image"].tolist() == [[0, 1, 2, 3]]
    assert _core.pooled(np.arange(4.0), row_axis=0)["image"].tolist() == [[0], [1], [2], [3]]
    assert _core.pooled(np.zeros((0, 4)))["image"].size == 0
    assert _core.window(np.zeros((3, 0), np.int16)).dtype == np.int16


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"row_axis": 4}, "axis 4 is out of range"),
        ({"row_axis": 1, "column_axis": 1}, "different axes"),
        ({"fixed": [3]}, r"index 3 is out of range on axis 0"),
        ({"fixed": [0, 0]}, "2 fixed indices given"),
        ({"pool": "median"}, "invalid pool"),
        ({"size": (0, 3)}, "needs 1 to 4096 cells"),
        ({"codes": "int8"}, "invalid codes"),
        ({"shape": [5, 5]}, "24 elements do not match shape"),
        ({"shape": [1 << 40, 1 << 40]}, "24 elements do not match shape"),
    ],
)
def test_invalid_images(options, message):
    with pytest.raises(ValueError, match=message):
        _core.pooled(np.zeros((2, 3, 4)), **options)


def test_palette_codes():
    x = np.array([[0.0, 0.5, 1.0, 2.0, -1.0, np.nan, np.inf, -np.inf]])
    assert _core.pooled(x, codes="uint8", limits=(0, 1))["image"].tolist() == [[0, 126, 252, 252, 0, 255, 254, 253]]
    codes = _core.pooled(x, codes="uint16", limits=(0, 1))["image"]
    assert codes.dtype == np.uint16
    assert codes.tolist() == [[0, 32766, 65532, 65532, 0, 65535, 65534, 65533]]
    assert _core.pooled(x, codes="uint8")["limits"] == (-1, 2)
    assert _core.pooled(np.full((2, 2), 3.0), codes="uint8")["image"].tolist() == [[126, 126]] * 2


# ---------------------------------------------------------------- exact values


@pytest.mark.parametrize("name", [*DTYPES, "complex64", "complex128"])
def test_window_is_exact(name):
    x = some("float64", 35).astype(name).reshape(5, 7)
    got = _core.window(x, (1, 4), (2, 20))
    assert got.dtype == x.dtype
    assert np.array_equal(got, x[1:4, 2:])
    assert np.array_equal(_core.window(x.T), x.T)
    raw = b"\0" + x.tobytes()
    assert np.array_equal(_core.window(memoryview(raw)[1:], dtype=name, shape=[5, 7]), x)


def test_output_is_bounded():
    x = np.broadcast_to(np.zeros(1, np.int8), (1, 1 << 23))
    with pytest.raises(ValueError, match="exceeds the limit"):
        _core.window(x)
    values, stride = _core.sample(x, 100)
    assert len(values) <= 100
    assert stride * len(values) >= x.size


def test_sample():
    values, stride = _core.sample(np.arange(10, dtype=np.int16), 4)
    assert (values.tolist(), stride) == ([0, 3, 6, 9], 3)
    assert _core.sample(np.zeros(0), 4)[0].size == 0


def test_strings_are_rejected():
    text = np.array([["a", "b"]])
    for ask in (_core.histogram, _core.pooled, _core.window, _core.sample, lambda x: _core.percentiles(x, [50])):
        with pytest.raises(ValueError, match="string tensor"):
            ask(text)
