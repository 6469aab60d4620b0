"""Tensors of float8 and float4: saved bit for bit, and read by every reader."""

import ml_dtypes
import numpy as np
import pytest

import smdwidgets
from smdwidgets import _core
from smdwidgets.exceptions import RuleEvaluationConditionMet
from smdwidgets.numpy import Hook
from smdwidgets.pictures.frames import HistogramWanted, Wanted, make_frame
from smdwidgets.pictures.view import TensorView
from smdwidgets.rules import invoke_rule
from smdwidgets.rules.builtin import WeightUpdateRatio

NAMES = [
    "float8_e5m2",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e4m3b11fnuz",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
    "float4_e2m1fn",
]
STEPS = 3


def codes_of(name, step):
    """Return every code of a type, in another order at each step."""
    codes = np.arange(256, dtype=np.uint8) & (15 if name == "float4_e2m1fn" else 255)
    return np.roll(codes, 7 * step).reshape(16, 16)


def value_of(name, step):
    return codes_of(name, step).view(getattr(ml_dtypes, name))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    directory = tmp_path_factory.mktemp("run")
    with Hook(directory, save_all=True) as hook:
        for step in range(STEPS):
            for name in NAMES:
                hook.save_tensor(name, value_of(name, step))
            hook.save_tensor("e4m3.T", value_of("float8_e4m3fn", step).T)
            hook.save_tensor("number", value_of("float8_e4m3fn", 0).reshape(-1)[56])
            hook.step()
    return directory


@pytest.fixture
def trial(run):
    return smdwidgets.create_trial(run)


@pytest.mark.parametrize("name", NAMES)
def test_every_code_is_read_back(trial, name):
    for step in range(STEPS):
        value = trial.tensor(name).value(step)
        assert value.dtype == getattr(ml_dtypes, name)
        assert value.view(np.uint8).tolist() == codes_of(name, step).tolist()
    assert trial.tensor("e4m3.T").value(1).view(np.uint8).tolist() == codes_of("float8_e4m3fn", 1).T.tolist()
    assert trial.tensor("number").value(1).astype(float) == 1.0


@pytest.mark.parametrize("name", NAMES)
def test_codes_have_the_values_of_ml_dtypes(name):
    codes = codes_of(name, 0)
    ours, theirs = _core.widen(codes, name), codes.view(getattr(ml_dtypes, name)).astype(np.float32)
    np.testing.assert_array_equal(ours, theirs)
    numbers = ~np.isnan(theirs)
    assert (np.signbit(ours) == np.signbit(theirs))[numbers].all()


def test_widening_is_of_types_that_numpy_lacks():
    with pytest.raises(ValueError, match="numpy has the dtype float32"):
        _core.widen(np.ones(2, np.float32), "float32")


@pytest.mark.parametrize("name", NAMES)
def test_reductions_are_those_of_float32(trial, name):
    value = value_of(name, 1)
    wide = value.astype(np.float32)
    expected = _core.reduce(wide)
    assert {str(key): np.float32(number).tobytes() for key, number in _core.reduce(value).items()} == {
        str(key): np.float32(number).tobytes() for key, number in expected.items()
    }
    assert trial.tensor(name).reduction_value(1, "max").dtype == np.float32
    counts = _core.stats(value)
    assert (counts["n"], counts["nan"]) == (256, np.isnan(wide).sum())


def test_statistics_count_the_ends_of_the_range(trial):
    table = trial.statistics(NAMES, steps=[1], columns=["count", "nan", "saturated", "subnormal", "max", "update"])
    for row, name in enumerate(table["name"].tolist()):
        wide, before = (value_of(name, step).astype(np.float64) for step in (1, 0))
        limits = ml_dtypes.finfo(name)
        finite = np.isfinite(wide)
        assert table["nan"][row] == np.isnan(wide).sum()
        assert table["saturated"][row] == (np.abs(wide) == float(limits.max)).sum() > 0
        assert table["max"][row] == wide[finite].max()
        assert table["subnormal"][row] == ((wide != 0) & (np.abs(wide) < float(limits.smallest_normal))).sum()
        both = finite & np.isfinite(before)
        assert table["update"][row] == pytest.approx(np.linalg.norm((wide - before)[both]), rel=1e-6)
    assert "saturated" not in [*trial.statistics(NAMES[0])]


def test_the_explorer_draws_them_as_float32(trial):
    for name in NAMES:
        view = TensorView(trial, name)
        frame = make_frame(
            view, 1, Wanted(histogram=HistogramWanted("linear", 20), percentiles=True, update=True), previous=0
        )
        wide = value_of(name, 1).astype(np.float32)
        assert frame.error is None
        assert frame.hist.sum() == np.isfinite(wide).sum()
        assert frame.counts[0] == 256
        assert view.sample() == (name, (16, 16))
    smdwidgets.explore(trial, tensor="float8_e4m3fn").close()


def test_differences(trial):
    difference = trial.tensor("float8_e4m3fn").difference(1, 0)
    expected = value_of("float8_e4m3fn", 1).astype(np.float64) - value_of("float8_e4m3fn", 0).astype(np.float64)
    np.testing.assert_array_equal(difference.value(), expected)
    assert {"saturated", "subnormal", "update"}.isdisjoint(difference.statistics)


def test_exports_widen_them(trial, tmp_path):
    trial.export("npz", tmp_path / "run.npz")
    with np.load(tmp_path / "run.npz") as archive:
        for name in NAMES:
            [value] = [
                archive[member] for member in archive.files if member.startswith(f"{name}/") and "0001." in member
            ]
            assert value.dtype == np.float32
            np.testing.assert_array_equal(value, value_of(name, 1).astype(np.float32))
    parquet = pytest.importorskip("pyarrow.parquet")
    trial.export("parquet", tmp_path / "run.parquet")
    rows = parquet.read_table(tmp_path / "run.parquet").to_pylist()
    [row] = [row for row in rows if row["tensor"] == "float8_e5m2" and row["step"] == 1]
    assert row["dtype"] == "float8_e5m2"
    np.testing.assert_array_equal(row["values"], value_of("float8_e5m2", 1).astype(np.float64).reshape(-1))


def test_lazy_arrays_have_their_type(trial):
    pytest.importorskip("dask")
    for name in NAMES:
        lazy = trial.tensor(name).to_dask()
        assert lazy.dtype == getattr(ml_dtypes, name)
        assert lazy.compute()[2].view(np.uint8).tolist() == codes_of(name, 2).tolist()


@pytest.mark.parametrize("name", ["float8_e5m2", "float8_e4m3fn", "bfloat16"])
def test_rules_compute_in_float32(name, tmp_path):
    with Hook(tmp_path) as hook:
        for step in range(4):
            # In float8 arithmetic, a sum of these overflows.
            value = np.full((32, 32), 384.0 if step < 2 else 128.0)
            hook.save_tensor("fc.weight", value.astype(getattr(ml_dtypes, name)), "weights")
            hook.step()
    rule = WeightUpdateRatio(smdwidgets.create_trial(tmp_path), large_threshold=0.5, small_threshold=0.0)
    with pytest.raises(RuleEvaluationConditionMet, match="fired at step 2"):
        invoke_rule(rule, raise_eval_cond=True, end_step=4)


def test_without_ml_dtypes_the_rest_of_a_run_is_read(run, run_python):
    output = run_python(f"""
import sys
sys.modules["ml_dtypes"] = None
import smdwidgets
trial = smdwidgets.create_trial({str(run)!r})
try:
    trial.tensor("float8_e4m3fn").value(1)
except smdwidgets.exceptions.UnsupportedDataError as error:
    print(error)
print(trial.statistics("float8_e4m3fn", steps=[1], columns=["saturated", "max"])["saturated"][0])
""")
    assert "float8_e4m3fn tensors require ml_dtypes" in output
    assert output.split()[-1] == "2"
