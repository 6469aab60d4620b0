"""Tensors of 8 and 4 bits beyond the range of their type, and within it."""

import ml_dtypes
import numpy as np
import pytest

import smdwidgets
from smdwidgets.numpy import Hook

E4M3, E5M2, E2M1 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.float4_e2m1fn
STEPS = 60


def findings(directory, make):
    """Return the findings of a run with the tensors that ``make`` returns for a step."""
    rng = np.random.default_rng(0)
    with Hook(directory) as hook:
        for step in range(STEPS):
            for name, value in make(step, rng).items():
                hook.save_tensor(name, value, "outputs")
            hook.save_scalar("loss", 0.3 + 2 * np.exp(-step / 40))
            hook.step()
    return [one for one in smdwidgets.diagnose(smdwidgets.create_trial(directory)).listed if one.kind == "beyond_range"]


def scaled(values, dtype, blocks=None):
    """Cast values by a scale for the tensor, or for each block."""
    rows = values.reshape(-1, blocks or values.size)
    scale = np.abs(rows).max(1, keepdims=True) / float(ml_dtypes.finfo(dtype).max)
    return (rows / scale).astype(dtype).reshape(values.shape)


def clipped(values, dtype):
    most = float(ml_dtypes.finfo(dtype).max)
    return np.clip(values, -most, most).astype(dtype)


@pytest.mark.parametrize("dtype", [E4M3, E5M2])
def test_saturated_values_are_found_since_their_step(dtype, tmp_path):
    most = float(ml_dtypes.finfo(dtype).max)

    def make(step, rng):
        values = rng.normal(size=(64, 64)) * most * (0.2 if step < 30 else 1.0)
        return {"a_output_0": clipped(values, dtype), "b_output_0": scaled(values, dtype)}

    [finding] = findings(tmp_path, make)
    assert (finding.first, finding.subject, finding.others) == (30, "a_output_0", ())
    share = int(finding.title.partition(" %")[0].partition("%")[0])
    assert 28 < share < 38  # a third of normal values are beyond one standard deviation
    assert f"±{most:g}" in finding.title
    assert "since step 30" in finding.title


def test_subnormal_values_are_found(tmp_path):
    def make(step, rng):
        return {"a_output_0": (rng.normal(size=(64, 64)) * 2.0**-8).astype(E4M3)}

    [finding] = findings(tmp_path, make)
    assert finding.first == 0
    assert "least normal number" in finding.title


def test_several_tensors_are_one_finding(tmp_path):
    def make(step, rng):
        late = rng.normal(size=(64, 64)) * (100 if step < 40 else 900)
        return {"late_output_0": clipped(late, E4M3), "early_output_0": clipped(late * 9, E4M3)}

    [finding] = findings(tmp_path, make)
    assert (finding.subject, finding.others) == (
        "early_output_0",
        ("late_output_0",),
    )
    assert "1 other tensor" in finding.title


HEALTHY = {
    "scaled e4m3": lambda rng: scaled(rng.normal(size=(64, 64)), E4M3),
    "scaled e5m2": lambda rng: scaled(rng.normal(size=(64, 64)), E5M2),
    "uniform e5m2": lambda rng: scaled(rng.uniform(-1, 1, (64, 64)), E5M2),
    "uniform e5m2 in blocks of 32": lambda rng: scaled(rng.uniform(-1, 1, (64, 64)), E5M2, 32),
    "heavy tails": lambda rng: scaled(rng.standard_t(3, size=(64, 64)), E5M2),
    "float4 in blocks of 16": lambda rng: scaled(rng.normal(size=(64, 64)), E2M1, 16),
    "uniform float4 in blocks of 16": lambda rng: scaled(rng.uniform(-1, 1, (64, 64)), E2M1, 16),
    "float8 in blocks of 32": lambda rng: scaled(rng.normal(size=(64, 64)), E4M3, 32),
    "ones": lambda rng: scaled(np.ones((64, 64)), E4M3),
    "zeros": lambda rng: np.zeros((64, 64), E4M3),
    "NaN": lambda rng: np.full((64, 64), np.nan, E4M3),
    "after ReLU": lambda rng: scaled(np.maximum(rng.normal(size=(64, 64)), 0), E4M3),
    "float16": lambda rng: np.full((64, 64), 65504, np.float16),
    "bytes": lambda rng: np.full((64, 64), 0x7E, np.uint8),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_scaled_values_are_no_finding(name, tmp_path):
    assert findings(tmp_path, lambda step, rng: {"a_output_0": HEALTHY[name](rng)}) == []


def test_a_short_stretch_is_no_finding(tmp_path):
    def make(step, rng):
        return {"a_output_0": clipped(rng.normal(size=(64, 64)) * (900 if 20 <= step < 40 else 90), E4M3)}

    assert findings(tmp_path, make) == []
