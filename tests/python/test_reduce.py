"""Reductions are compared with exact arithmetic.

The error is at most that of NumPy, or one unit in the last place of the result's dtype.
"""

import warnings
from fractions import Fraction
from math import isqrt, prod

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from smdwidgets import _core

NAMES = ["min", "max", "mean", "prod", "std", "sum", "variance", "l1", "l2"]
ALL = [(name, abs_) for name in NAMES for abs_ in (False, True)]
FLOATS = ["float16", "bfloat16", "float32", "float64"]
INTS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
COMPLEX = ["complex64", "complex128"]
DTYPES = [*FLOATS, *INTS, "bool", *COMPLEX]


def dtype_of(name):
    return np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)


def by_numpy(x, name, abs_):
    """The NumPy equivalent: std and variance over n, norms over all elements."""
    x = np.abs(x) if abs_ else x
    flat = np.ascontiguousarray(x).reshape(-1)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        if name in ("l1", "l2"):
            return np.linalg.norm(flat, ord=int(name[1]))
        if flat.dtype == ml_dtypes.bfloat16 and name in ("std", "variance"):
            return flat.dtype.type({"std": np.std, "variance": np.var}[name](flat.astype(np.float32)))
        return {"variance": np.var}.get(name, getattr(np, name, None))(flat)


def root(square: Fraction) -> Fraction:
    """A square root accurate to about 300 bits."""
    if square == 0:
        return Fraction(0)
    shift = max(0, 320 - square.numerator.bit_length() + square.denominator.bit_length())
    shift += shift % 2
    return Fraction(isqrt((square.numerator << (2 * shift)) // square.denominator), 1 << shift)


def exactly(x, name, abs_):
    """Return the exact result for finite elements: a Fraction, or two if complex."""
    x = np.abs(x) if abs_ and x.dtype.kind in "iub" else x
    if x.dtype.kind == "c":
        values = [(Fraction(float(z.real)), Fraction(float(z.imag))) for z in x.reshape(-1)]
        sizes = [root(re * re + im * im) for re, im in values]
        n = len(values)
        if name in ("sum", "mean") and not abs_:
            values = values or [(Fraction(0), Fraction(0))]
            by = n if name == "mean" else 1
            return tuple(sum(part, Fraction(0)) / by for part in zip(*values, strict=True))
        if name in ("std", "variance") and not abs_:
            means = [sum(part) / n for part in zip(*values, strict=True)]
            variance = sum((re - means[0]) ** 2 + (im - means[1]) ** 2 for re, im in values) / n
            return variance if name == "variance" else root(variance)
        if name == "l2":
            return root(sum((re * re + im * im for re, im in values), Fraction(0)))
        if name == "prod" and not abs_:
            product = (Fraction(1), Fraction(0))
            for re, im in values:
                product = (product[0] * re - product[1] * im, product[0] * im + product[1] * re)
            return product
        values = sizes
    elif x.dtype.kind in "iub":
        values = [Fraction(int(v)) for v in x.reshape(-1)]
    else:
        values = [Fraction(float(v)) for v in x.reshape(-1)]
        values = [abs(v) for v in values] if abs_ else values
    return by_integers(values, name)


def by_integers(values, name):
    """Compute the exact result of dyadic fractions over a common denominator.

    This is fast, because it computes no greatest common divisors.
    """
    n, unit = len(values), max((v.denominator for v in values), default=1)
    whole = [v.numerator * (unit // v.denominator) for v in values]
    total, squares = sum(whole), sum(i * i for i in whole)
    spread = Fraction(n * squares - total * total, n * n * unit * unit) if n else None
    if name == "prod":
        return Fraction(multiplied([v.numerator for v in values]), prod(v.denominator for v in values))
    return {
        "sum": lambda: Fraction(total, unit),
        "mean": lambda: Fraction(total, unit * n),
        "variance": lambda: spread,
        "std": lambda: root(spread),
        "l1": lambda: Fraction(sum(map(abs, whole)), unit),
        "l2": lambda: root(Fraction(squares, unit * unit)),
    }[name]()


def multiplied(numbers):
    """Compute a product by halves, so that few integers are long."""
    if len(numbers) < 3:
        return prod(numbers)
    half = len(numbers) // 2
    return multiplied(numbers[:half]) * multiplied(numbers[half:])


def info(dtype):
    return ml_dtypes.finfo(dtype) if dtype == ml_dtypes.bfloat16 else np.finfo(dtype)


def step(exact: Fraction, dtype) -> Fraction:
    """The spacing of a float dtype at a value."""
    limits = info(dtype)
    lowest = Fraction(float(limits.smallest_subnormal))
    precision = limits.nmant
    magnitude = abs(exact)
    if magnitude == 0:
        return lowest
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if Fraction(2) ** exponent > magnitude:
        exponent -= 1
    return max(lowest, Fraction(2) ** (exponent - precision))


def largest(dtype) -> Fraction:
    limits = info(dtype)
    return Fraction(float(limits.max)) if dtype != np.float64 else Fraction(np.finfo(np.float64).max)


def check_part(ours, theirs, exact, dtype, steps, what):
    limit = largest(dtype)
    if abs(exact) > limit:
        # Results beyond the largest float are infinite, with a tolerance of one unit in the last place.
        assert np.isinf(ours) or limit - abs(Fraction(float(ours))) <= step(limit, dtype), what
        return
    if np.isinf(ours):
        assert limit - abs(exact) < steps * step(limit, dtype), what
        return
    assert not np.isnan(ours), what
    # numpy overflows in intermediate results; there only the unit in the last place counts.
    numpys = abs(Fraction(float(theirs)) - exact) if np.isfinite(theirs) else Fraction(0)
    assert abs(Fraction(float(ours)) - exact) <= max(numpys, steps * step(exact, dtype)), what


def check(x, results):
    """Assert that each result has numpy's dtype and is as close to the exact result."""
    for name, abs_ in ALL:
        ours = results[name, abs_]
        if x.size == 0 and name in ("min", "max"):
            assert ours is None
            continue
        theirs = by_numpy(x, name, abs_)
        what = f"{name} abs={abs_} of {x.dtype} {x.tolist()[:40]}: ours {ours!r}, numpy {theirs!r}"
        # ml_dtypes computes norms of bfloat16 in float32.
        expected = x.dtype if x.dtype == ml_dtypes.bfloat16 else theirs.dtype
        assert type(ours) is expected.type, what
        if x.size == 0 and name in ("mean", "std", "variance"):
            assert np.isnan(ours), what
        elif (x.dtype.kind in "iub" and name in ("min", "max", "sum", "prod")) or (
            name in ("min", "max") and not (abs_ and x.dtype.kind == "c")
        ):
            assert ours == theirs, what
        elif name in ("min", "max"):
            # Neither rounds the magnitude of a complex number exactly: they may be off to different sides.
            units = 2 if x.dtype.kind == "c" else 1
            assert abs(float(ours) - float(theirs)) <= units * float(step(Fraction(float(theirs)), ours.dtype)), what
        else:
            exact = exactly(x, name, abs_)
            # Magnitudes of complex128 are rounded before they are added, as in numpy.
            steps = 2 if x.dtype == np.complex128 and (abs_ or name == "l1") else 1
            if name == "prod" and x.dtype == np.complex128 and abs_:
                steps = 2 + x.size
            if isinstance(exact, tuple):
                dtype = np.dtype(ours.real.dtype)
                # Each part of a complex product is as accurate as the last bits of the whole allow.
                slack = max(step(part, dtype) for part in exact) if name == "prod" else 0
                if name == "prod" and max(map(abs, exact)) > largest(dtype):
                    # Beyond the largest float; the smaller part has no significant digits.
                    assert np.isinf([ours.real, ours.imag]).any(), what
                    continue
                for part, mine, its in zip(exact, (ours.real, ours.imag), (theirs.real, theirs.imag), strict=True):
                    steps = max(1, Fraction(slack) / step(part, dtype)) if name == "prod" else 1
                    check_part(mine, its, part, dtype, steps, what)
            else:
                if x.dtype == np.complex128 and abs_ and name in ("std", "variance") and exact:
                    spread = exactly(x, "std", abs_)
                    blur = 4 * step(Fraction(float(np.abs(x).max())), ours.dtype)
                    slack = blur if name == "std" else 2 * blur * spread + blur * blur
                    if np.isfinite(ours) and abs(Fraction(float(ours)) - exact) <= slack:
                        # Also where the exact result is beyond the largest float: the last bits of magnitudes are not.
                        continue
                    steps = max(steps, slack / step(exact, ours.dtype) + 1)
                check_part(ours, theirs, exact, ours.dtype, steps, what)


def arrays(name, max_size=24):
    dtype = dtype_of(name)
    if name == "bfloat16":
        finite = st.integers(0, 0xFFFF).filter(lambda bits: bits & 0x7F80 != 0x7F80)
        return st.lists(finite, max_size=max_size).map(lambda bits: np.array(bits, np.uint16).view(ml_dtypes.bfloat16))
    kwargs = {} if dtype.kind in "iub" else {"allow_nan": False, "allow_infinity": False}
    if name == "complex128":
        # A larger magnitude of two finite parts is infinite and has no exact value.
        kwargs["max_magnitude"] = 1.2e308
    return hnp.arrays(dtype, st.integers(0, max_size), elements=hnp.from_dtype(dtype, **kwargs))


@pytest.mark.parametrize("name", DTYPES)
def test_small_random_arrays(name):
    @given(arrays(name))
    @settings(max_examples=40, deadline=None)
    def run(x):
        check(x, _core.reduce(x))

    run()


def test_magnitudes_that_differ_in_their_last_bit():
    # The square of that bit is beyond the largest float, while another rounding of the magnitudes has no spread at all.
    x = np.array([3.843848616348006e258 + 4.050152633300727e250j, 3.8438486163480065e258])
    check(x, _core.reduce(x))


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("shift", [0, 1, 3])
def test_any_alignment_and_bytes(name, shift):
    x = np.random.default_rng(5).normal(0, 50, 100).astype(dtype_of(name))
    raw = b"\0" * shift + x.tobytes()
    assert _core.reduce(memoryview(raw)[shift:], name) == _core.reduce(x)


SETS = {
    "normal": lambda r, n: r.normal(0, 1, n),
    "far from zero": lambda r, n: r.normal(1e5, 0.1, n),
    "two clusters": lambda r, n: r.choice([-1e5, 1e5], n) + r.normal(0, 0.1, n),
    "outlier first": lambda r, n: np.concatenate([[1e10], r.normal(0, 1, n - 1)]),
    "outlier last": lambda r, n: np.concatenate([r.normal(1, 1e-6, n - 1), [-3e9]]),
    "rectified": lambda r, n: np.maximum(r.normal(0, 1, n), 0),
    "cancels": lambda r, n: np.concatenate([half := r.normal(0, 1e3, n // 2), -half[::-1]]),
    "constant": lambda r, n: np.full(n, 0.1),
    "constant magnitude": lambda r, n: r.choice([-0.1, 0.1], n),
    "all sizes": lambda r, n: r.normal(0, 1, n) * 10.0 ** r.uniform(-30, 30, n),
    "small": lambda r, n: r.normal(0, 1, n) * 1e-40,
    "negative": lambda r, n: -r.uniform(1, 2, n),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", SETS)
@pytest.mark.slow
def test_many_elements(kind, dtype):
    x = SETS[kind](np.random.default_rng(1), 4_001).astype(dtype)
    ours = _core.reduce(x)
    for name, abs_ in ALL:
        if name in ("min", "max"):
            assert ours[name, abs_] == by_numpy(x, name, abs_)
        else:
            theirs = by_numpy(x, name, abs_)
            check_part(ours[name, abs_], theirs, exactly(x, name, abs_), x.dtype, 1, f"{name} {abs_} {kind}")


@pytest.mark.parametrize("scale", [1e-310, 1e-200, 1e150, 1e250, 1e307])
def test_float64_squares_out_of_range(scale):
    with np.errstate(all="ignore"):
        x = np.random.default_rng(2).normal(0, 1, 300) * scale
    check(x, _core.reduce(x))


def test_complex_parts_with_a_large_constant_part():
    x = np.array([4.5e161j, 1 + 4.5e161j])
    assert _core.reduction(x, "std") == 0.5
    assert _core.reduction(x, "variance") == 0.25


def test_complex_product_with_parts_of_different_magnitude():
    assert _core.reduction(np.full(3, 1 + 2.5e294j), "prod") == complex(-np.inf, -np.inf)


def test_results_whose_intermediate_results_overflow_in_numpy():
    assert _core.reduce(np.array([60000, 0], np.float16))["std", False] == 30000
    assert _core.reduce(np.array([300, 300], np.float16))["l2", False] == np.float16(424.264)
    assert _core.reduce(np.full(4, 2e19, np.float32))["l2", False] == np.float32(4e19)
    assert _core.reduce(np.array([1e-30, 1e-30, 1e30, 1e30], np.float32))["prod", False] == pytest.approx(1)
    assert _core.reduce(np.full(2, 1.5e308))["mean", False] == 1.5e308


SPECIAL = [0.0, -0.0, 1.0, -2.0, np.inf, -np.inf, np.nan]


@pytest.mark.parametrize("name", ["float16", "float32", "float64"])
def test_nan_and_infinity_as_in_numpy(name):
    @given(st.lists(st.sampled_from(SPECIAL), min_size=1, max_size=6))
    @settings(max_examples=100, deadline=None)
    def run(values):
        x = np.array(values, name)
        ours = _core.reduce(x)
        stats = _core.stats(x)
        assert stats["n"] == len(values)
        assert stats["nan"] == np.isnan(x).sum()
        assert stats["pos_inf"] == np.isposinf(x).sum()
        assert stats["neg_inf"] == np.isneginf(x).sum()
        assert stats["zeros"] == (x == 0).sum()
        if np.isfinite(x).all():
            check(x, ours)
            return
        for key, value in ours.items():
            theirs = by_numpy(x, *key)
            assert np.array_equal(value, theirs, equal_nan=True), (key, x, value, theirs)

    run()


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_with_non_finite_parts(name):
    for values in ([complex(np.nan, 1), 1j], [complex(np.inf, 0), 1 + 1j], [complex(1, -np.inf)]):
        x = np.array(values, name)
        ours = _core.reduce(x)
        for key in [("min", False), ("sum", False), ("std", False), ("l1", False), ("l2", True)]:
            assert np.array_equal(ours[key], by_numpy(x, *key), equal_nan=True), (key, x, ours[key], by_numpy(x, *key))


@pytest.mark.parametrize("name", DTYPES)
def test_empty_arrays(name):
    x = np.zeros((0, 3), dtype_of(name))
    check(x, _core.reduce(x))
    with pytest.raises(ValueError, match=r"min of an empty tensor \(shape \[0, 3\]\) is undefined"):
        _core.reduction(x, "min")
    assert _core.reduction(x, "prod") == 1


def test_layouts():
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    for view in (x.T, x[::2, ::-1], x[1:3, 2:4], x.astype(">f4")):
        assert _core.reduce(view)["sum", False] == view.sum()
        assert _core.reduce(view)["variance", True] == pytest.approx(view.var())


def test_only_requested_reductions():
    x = np.arange(5.0)
    assert _core.reduce(x, names=[("l2", True), ("max", False)]) == {("l2", True): np.sqrt(30), ("max", False): 4}
    assert _core.reduction(x, "mean") == 2
    with pytest.raises(ValueError, match='invalid reduction "median"; choose from min, max'):
        _core.reduction(x, "median")


def test_invalid_input():
    with pytest.raises(ValueError, match="7 bytes are not a multiple of the 4 bytes of a float32"):
        _core.reduce(b"1234567", "float32")
    with pytest.raises(ValueError, match="string"):
        _core.reduce(np.array(["a"]))
    with pytest.raises(ValueError, match='unknown dtype "float99"'):
        _core.reduce(b"", "float99")
    with pytest.raises(TypeError, match="dtype"):
        _core.reduce(b"1234")
