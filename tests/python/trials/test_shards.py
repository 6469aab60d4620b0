"""Sharded tensors: assembled on reading, and checked before anything is allocated."""

from __future__ import annotations

import itertools
import json
import pickle
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smdwidgets import create_trial
from smdwidgets._core import StepWriter, reduce, reduction
from smdwidgets.cli.verify import check as verify
from smdwidgets.exceptions import (
    CorruptDataError,
    IncompleteShardsError,
    SMDebugError,
    TensorUnavailableForStep,
    UnsupportedDataError,
)
from smdwidgets.pictures.view import TensorView
from smdwidgets.trials.shards import Part, Sharded, combined

from . import runs

RNG = np.random.default_rng(5)
OPS = ("min", "max", "mean", "prod", "std", "sum", "variance", "l1", "l2")


def position(shape, offsets, sizes, replica=0, **more):
    return {"global_shape": list(shape), "offsets": list(offsets), "sizes": list(sizes), "replica": replica, **more}


def slabs(value, counts, axis=0):
    """Cut a tensor along an axis: for each worker, the position and the shard."""
    start = 0
    for count in counts:
        cut = [slice(None)] * value.ndim
        cut[axis] = slice(start, start + count)
        offsets, sizes = [0] * value.ndim, list(value.shape)
        offsets[axis], sizes[axis] = start, count
        yield position(value.shape, offsets, sizes), value[tuple(cut)]
        start += count


def write(root, shards, step=0, name="w", reductions=(), raw=True):
    """Write one step of each worker; `shards` are (position, value or None) by worker."""
    for rank, (where, value) in enumerate(shards):
        with StepWriter(root, step, f"worker_{rank}") as writer:
            if value is not None:
                ready = np.ascontiguousarray(value)
                writer.tensors(
                    [(name, value.dtype.name, value.shape, ready)]
                    if value.ndim
                    else [(name, value.dtype.name, (), ready.reshape(1))],
                    raw,
                    list(reductions),
                )
            writer.tensor("loss", np.float32(rank))
            if where is not None:
                writer.shard(name, where if isinstance(where, str) else json.dumps(where))


def opened(root, workers):
    runs.collections(root, workers)
    runs.end(root)
    return create_trial(root)


@pytest.fixture
def cut(tmp_path):
    """Return a function that writes shards and opens the run."""

    def of(shards, **options):
        shards = list(shards)
        write(tmp_path, shards, **options)
        return opened(tmp_path, len(shards))

    return of


def test_whole_tensor_and_each_shard(cut):
    whole = RNG.normal(size=(10, 4)).astype("f4")
    trial = cut(slabs(whole, [3, 3, 3, 1]))
    w = trial.tensor("w")
    np.testing.assert_array_equal(w.value(0), whole)
    np.testing.assert_array_equal(w.value(0, worker="worker_3"), whole[9:])
    assert (w.shape(0), w.shape(0, worker="worker_0"), w.dtype) == ((10, 4), (3, 4), np.dtype("f4"))
    assert w.workers(0) == [f"worker_{rank}" for rank in range(4)]
    assert trial.tensor("loss").value(0) == 0
    assert "(10, 4)" in repr(w)
    assert "shards" in repr(w)
    for op, absolute in itertools.product(OPS, (False, True)):
        expected = reduction(whole, op, absolute)
        found = w.reduction_value(0, op, abs=absolute)
        assert (found, found.dtype) == (expected, expected.dtype), op
    assert w.reduction_value(0, "max", worker="worker_1") == whole[3:6].max()
    # Arrays are independent of each other.
    first = w.value(0)
    first[:] = 0
    np.testing.assert_array_equal(w.value(0), whole)


def test_bulk_queries_assemble(cut, tmp_path):
    whole = RNG.normal(size=(6, 4)).astype("f4")
    write(tmp_path, slabs(whole + 1, [2, 4]), step=1)
    trial = cut(slabs(whole, [2, 4]))
    table = trial.values({"w": None, "loss": None})
    rows = {(name, step): value for name, step, value in zip(table["name"], table["step"], table["value"], strict=True)}
    assert not table.errors
    assert set(rows) == {("w", 0), ("w", 1), ("loss", 0), ("loss", 1)}
    np.testing.assert_array_equal(rows["w", 1], whole + 1)
    assert trial.values("w")["value"].shape == (2, 6, 4)
    assert set(trial.values("w")["worker"]) == {"all"}
    assert [value.shape for value in trial.values("w", worker="*")["value"]] == [(2, 4), (4, 4)] * 2
    np.testing.assert_array_equal(trial.values("w", worker="worker_0")["value"][0], whole[:2])
    reduced = trial.reductions(["w", "loss"], counts=True)
    assert reduced["name"].tolist() == ["w", "w", "loss", "loss"]
    for row, value in enumerate([whole, whole + 1]):
        for (op, absolute), expected in reduce(value).items():
            assert reduced[f"abs_{op}" if absolute else op][row] == expected
    assert reduced["size"].tolist() == [24, 24, 1, 1]
    assert reduced["worker"].tolist() == ["all", "all", "worker_0", "worker_0"]
    assert trial.reductions("w", worker="*")["worker"].tolist() == ["worker_0", "worker_1"] * 2


def test_two_dimensions_flat_scalars_and_empty_shards(cut, tmp_path):
    whole = RNG.normal(size=(5, 6)).astype("f8")
    grid = [
        (position((5, 6), (row, column), (rows, columns)), whole[row : row + rows, column : column + columns])
        for row, rows in [(0, 3), (3, 2)]
        for column, columns in [(0, 1), (1, 5)]
    ]
    flat = [
        ({"global_shape": [5, 6], "flat": [start, stop]}, whole.reshape(-1)[start:stop])
        for start, stop in [(0, 7), (7, 30)]
    ]
    one = [(position((1,), (0,), (1,)), np.ones(1)), (position((1,), (1,), (0,)), None)]
    scalar = [(position((), (), ()), np.array(3.5)), (position((), (), (), 1), np.array(3.5))]
    none = [(position((0, 3), (0, 0), (0, 3)), np.zeros((0, 3), "i8")), (position((0, 3), (0, 0), (0, 3)), None)]
    for step, shards in enumerate([grid, flat, one, scalar, none]):
        write(tmp_path, shards, step=step)
    w = opened(tmp_path, 4).tensor("w")
    np.testing.assert_array_equal(w.value(0), whole)
    np.testing.assert_array_equal(w.value(1), whole)
    assert w.value(2).tolist() == [1]
    assert w.value(3) == 3.5
    assert w.value(3).shape == ()
    assert (w.value(4).shape, w.value(4).dtype) == ((0, 3), np.dtype("i8"))
    assert [w.shape(step) for step in range(5)] == [(5, 6), (5, 6), (1,), (), (0, 3)]
    with pytest.raises(TensorUnavailableForStep):
        w.value(2, worker="worker_1")


def test_replicas_are_read_once(cut):
    whole = np.arange(8.0)
    copies = [(where | {"replica": 1}, value + 100) for where, value in slabs(whole, [4, 4])]
    trial = cut([*copies, *slabs(whole, [4, 4])])
    np.testing.assert_array_equal(trial.tensor("w").value(0), whole)
    # A replica is used if the first copy is missing, and only then.
    two = trial.tensor("w").trial.reader.run.sharded("w", 0)
    assert list(two.select(lambda worker: True)) == ["worker_2", "worker_3"]
    assert list(two.select(lambda worker: worker != "worker_2")) == ["worker_0", "worker_3"]
    with pytest.raises(
        IncompleteShardsError, match=r"\[0:4\] missing; no shard of worker_0 and worker_2|worker_0, worker_2"
    ):
        two.select(lambda worker: worker in ("worker_1", "worker_3"))


@pytest.mark.parametrize(
    ("op", "expected"), [("sum", [3, 3]), ("avg", [1.5, 1.5]), ("min", [1, -1]), ("max", [2, 4]), ("product", [2, -4])]
)
def test_parts_are_combined(cut, op, expected):
    parts = [np.array([1.0, 4.0]), np.array([2.0, -1.0])]
    trial = cut(
        (position((2,), (0,), (2,), partial={"op": op, "part": at, "parts": 2}), value)
        for at, value in enumerate(parts)
    )
    assert trial.tensor("w").value(0).tolist() == expected


def test_unknown_partial_operation(cut):
    trial = cut(
        (position((2,), (0,), (2,), partial={"op": "norm", "part": at, "parts": 2}), np.ones(2)) for at in (0, 1)
    )
    with pytest.raises(UnsupportedDataError, match="unknown operation 'norm'; pass worker="):
        trial.tensor("w").value(0)
    assert trial.tensor("w").value(0, worker="worker_1").tolist() == [1, 1]


def part_of_norm(at, parts, elements, of):
    return position((), (), (), partial={"op": "l2", "part": at, "parts": parts, "elements": elements, "of": of})


def test_parts_of_a_norm(cut, tmp_path):
    gradients = RNG.normal(size=30).astype("f4")
    norms = [np.linalg.norm(part).astype("f4") for part in (gradients[:20], gradients[20:29], gradients[29:])]
    positions = [part_of_norm(at, 4, elements, 30) for at, elements in enumerate([20, 9, 1])]
    shards = [(where, np.asarray(norm)) for where, norm in zip(positions, norms, strict=True)]
    # Worker 1 saved nothing at step 1. Part 3 has no elements, and no worker saves it.
    write(tmp_path, [shards[0], (None, None), shards[2]], step=1, name="norm")
    special = [np.float32("inf"), np.float32("nan"), np.float32(1)]
    write(
        tmp_path, [(where, np.asarray(one)) for where, one in zip(positions, special, strict=True)], step=2, name="norm"
    )
    large = [np.float32(3e38), np.float32(4e37), np.float32(0)]
    write(
        tmp_path, [(where, np.asarray(one)) for where, one in zip(positions, large, strict=True)], step=3, name="norm"
    )
    norm = cut(shards, name="norm").tensor("norm")
    exact = np.float32(np.sqrt(np.sum(np.square(np.array(norms, "f8")))))
    assert norm.value(0) == exact
    assert (norm.value(0).dtype, norm.value(0).shape, norm.coverage(0)) == (np.float32, (), 1)
    assert norm.value(0, worker="worker_1") == norms[1]
    assert np.isnan(norm.value(2))
    assert norm.value(3) == np.float32(np.hypot(np.float64(large[0]), np.float64(large[1])))
    with pytest.raises(IncompleteShardsError, match="shards missing; no shard of worker_1") as error:
        norm.value(1)
    assert error.value.coverage == norm.coverage(1) == 21 / 30
    table = norm.trial.reductions("norm", [0, 1], reductions=["mean"], coverage=True)
    assert (table["step"].tolist(), table["coverage"].tolist(), table.errors) == ([0, 1], [1, 0.7], [])
    assert table["mean"][0] == exact
    assert table["mean"][1] == np.float32(np.hypot(norms[0].astype("f8"), norms[2].astype("f8")))
    assert [failure.step for failure in norm.trial.reductions("norm", [0, 1]).errors] == [1]


@pytest.mark.parametrize("raw", [True, False])
def test_reductions_of_what_was_saved_state_their_coverage(cut, raw):
    whole = RNG.normal(size=(10, 4)).astype("f8")
    shards = list(slabs(whole, [5, 2, 3]))
    shards[1] = (None, None)
    trial = cut(shards, reductions=[(op, False) for op in ("min", "mean", "l2", "std")], raw=raw)
    w, saved = trial.tensor("w"), np.concatenate([whole[:5], whole[7:]])
    assert w.coverage(0) == 0.8
    assert trial.tensor("loss").coverage(0) == 1
    # Without the column, part of a tensor is never a number.
    assert trial.reductions("w", reductions=["min"])["min"].tolist() == (
        [] if raw else pytest.approx([np.nan], nan_ok=True)
    )
    table = trial.reductions(["w", "loss"], reductions=["min", "mean", "l2", "std"], counts=True, coverage=True)
    assert (table["coverage"].tolist(), table["worker"].tolist(), table.errors) == ([0.8, 1], ["all", "worker_0"], [])
    assert table["min"][0] == saved.min()
    for op, expected in {"mean": saved.mean(), "l2": np.linalg.norm(saved), "std": saved.std()}.items():
        np.testing.assert_allclose(table[op][0], expected, rtol=1e-12)
    assert table["size"][0] == (32 if raw else -1)
    assert trial.reductions("w", reductions=["min"], worker="worker_0", coverage=True)["coverage"].tolist() == [1]


def test_parts_of_a_sum_have_no_result_alone(cut):
    where = position((2,), (0,), (2,), partial={"op": "sum", "part": 0, "parts": 2})
    trial = cut([(where, np.ones(2)), (None, None)])
    assert trial.tensor("w").coverage(0) == 0.5
    [failure] = trial.reductions("w", reductions=["max"], coverage=True).errors
    assert isinstance(failure.error, IncompleteShardsError)


def test_missing_shard_names_worker_and_range(cut):
    whole = np.arange(40.0).reshape(10, 4)
    shards = list(slabs(whole, [5, 2, 3]))
    shards[1] = (None, None)
    trial = cut(shards)
    w = trial.tensor("w")
    with pytest.raises(
        IncompleteShardsError, match=r"'w' at step 0.*\[5:7, 0:4\] missing; no shard of worker_1"
    ) as error:
        w.value(0)
    assert (error.value.workers, error.value.ranges) == (["worker_1"], ["[5:7, 0:4]"])
    assert str(pickle.loads(pickle.dumps(error.value))) == str(error.value)
    with pytest.raises(IncompleteShardsError):
        w.reduction_value(0, "mean")
    np.testing.assert_array_equal(w.value(0, worker="worker_2"), whole[7:])
    assert w.shape(0) == (10, 4)
    assert trial.tensor("loss").value(0) == 0
    table = trial.values(["w", "loss"])
    assert table["name"].tolist() == ["loss"]
    assert isinstance(table.errors[0].error, IncompleteShardsError)
    reduced = trial.reductions(["w", "loss"])
    assert reduced["name"].tolist() == ["loss"]
    assert isinstance(reduced.errors[0].error, IncompleteShardsError)


def test_shard_that_is_written_later_is_found(tmp_path):
    whole = np.arange(4.0)
    runs.collections(tmp_path, 2)
    write(tmp_path, list(slabs(whole, [2, 2]))[:1])
    trial = create_trial(tmp_path)
    w = trial.tensor("w")
    with pytest.raises(IncompleteShardsError):
        w.value(0)
    where, value = list(slabs(whole, [2, 2]))[1]
    write(tmp_path, [next(iter(slabs(whole, [2, 2]))), (where, value)])
    np.testing.assert_array_equal(w.value(0), whole)


HUGE = 1 << 40
BAD = {
    "not an object": "[1]",
    "deep": "[" * 5000 + "]" * 5000,
    "no shape": {"offsets": [0], "sizes": [2]},
    "negative offset": position((4,), (-2,), (2,)),
    "negative size": position((4,), (2,), (-2,)),
    "too large": position((4,), (3,), (2,)),
    "boolean": position((4,), (True,), (2,)),
    "fraction": position((4,), (2.5,), (2,)),
    "dimensions": position((4,), (2, 0), (2, 1)),
    "many dimensions": position((1,) * 65, (0,) * 65, (1,) * 65),
    "other shape": position((5,), (2,), (2,)),
    "overlap": position((4,), (1,), (3,)),
    "other size": position((4,), (1,), (2,)),
    "huge shape": position((HUGE, HUGE), (0, 0), (2, 2)),
    "flat range": {"global_shape": [4], "flat": [2, 5]},
    "flat of three": {"global_shape": [4], "flat": [2, 3, 4]},
    "replica": position((4,), (2,), (2,), -1),
    "partial": position((4,), (2,), (2,), partial={"op": "sum", "part": 2, "parts": 2}),
    "more elements": part_of_norm(1, 2, 3, 2) | {"global_shape": [4], "offsets": [2], "sizes": [2]},
    "partial text": position((4,), (2,), (2,), partial="sum"),
}


@pytest.mark.parametrize("bad", BAD)
def test_wrong_position_is_an_error_with_the_file(cut, bad):
    trial = cut([(position((4,), (0,), (2,)), np.ones(2)), (BAD[bad], np.ones(2))])
    w = trial.tensor("w")
    for query in (lambda: w.value(0), lambda: w.reduction_value(0, "max")):
        with pytest.raises(
            CorruptDataError, match=r"index/000000000/000000000000_worker_1.json: invalid position .* 'w'"
        ):
            query()
    # Everything else can be read.
    assert w.value(0, worker="worker_1").tolist() == [1, 1]
    assert trial.tensor("loss").value(0) == 0
    assert [failure.name for failure in trial.values().errors] == ["w"]
    assert trial.values()["name"].tolist() == ["loss"]
    assert [failure.name for failure in trial.reductions().errors] == ["w"]
    assert repr(w)


@pytest.mark.parametrize(
    "positions",
    [
        [position((HUGE,), (0,), (2,)), position((HUGE,), (2,), (2,))],
        [position((HUGE,), (0,), (HUGE,)), position((HUGE,), (0,), (HUGE,), 1)],
        [position((HUGE,), (0,), (HUGE // 2,)), position((HUGE,), (HUGE // 2,), (HUGE // 2,))],
        [{"global_shape": [HUGE], "flat": [0, HUGE // 2]}, {"global_shape": [HUGE], "flat": [HUGE // 2, HUGE]}],
        [position((0,), (0,), (0,), partial={"op": "sum", "part": 0, "parts": HUGE})] * 2,
    ],
)
def test_huge_shape_allocates_nothing(cut, positions):
    trial = cut((where, np.ones(2)) for where in positions)
    tracemalloc.start()
    try:
        with pytest.raises(SMDebugError):
            trial.tensor("w").value(0)
        assert tracemalloc.get_traced_memory()[1] < 4_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "c8"])
def test_saved_reductions_of_shards_are_combined(cut, dtype):
    numbers = RNG.normal(size=(50, 3))
    whole = (numbers * 10 if dtype == "i4" else numbers * 0.1 + 1).astype(dtype)
    wanted = list(itertools.product(OPS, (False, True)))
    trial = cut(slabs(whole, [10, 25, 15]), reductions=wanted, raw=False)
    w = trial.tensor("w")
    with pytest.raises(TensorUnavailableForStep):
        w.value(0)
    exact = reduce(whole)
    table = trial.reductions("w")
    saved = w.reduction_values(0)
    for op, absolute in wanted:
        expected, found = exact[op, absolute], w.reduction_value(0, op, abs=absolute)
        if op in ("min", "max") or (dtype == "i4" and op in ("sum", "l1")):
            assert found == expected
        else:
            np.testing.assert_allclose(found, expected, rtol=2e-5)
        assert found.dtype == expected.dtype
        assert saved[op, absolute] == found == table[f"abs_{op}" if absolute else op][0]


def test_reductions_that_cannot_be_combined(cut):
    whole = np.arange(6.0)
    trial = cut(slabs(whole, [3, 3]), reductions=[("std", False), ("max", False)], raw=False)
    w = trial.tensor("w")
    assert w.reduction_value(0, "max") == 5
    with pytest.raises(TensorUnavailableForStep, match="cannot be combined to std"):
        w.reduction_value(0, "std")
    assert list(w.reduction_values(0)) == [("max", False)]
    assert np.isnan(trial.reductions("w")["std"]).all()


def test_special_values_in_combined_reductions():
    nan, inf = np.float32("nan"), np.float32("inf")
    assert combined("l2", [(1, {"l2": np.float32(3)}), (1, {"l2": np.float32(4)})]) == 5
    assert combined("l2", [(1, {"l2": 1e300}), (1, {"l2": 1e300})]) == pytest.approx(2**0.5 * 1e300)
    assert combined("l2", [(1, {"l2": inf}), (1, {"l2": np.float32(4)})]) == inf
    for op in ("l2", "sum", "min", "max", "mean"):
        assert np.isnan(combined(op, [(1, {op: inf}), (1, {op: nan})]))
    assert np.isnan(combined("sum", [(1, {"sum": inf}), (1, {"sum": -inf})]))


@given(st.data())
def test_any_grid_is_assembled(data):
    """Any cut of any tensor gives the tensor back; without one shard it is incomplete."""
    shape = data.draw(st.lists(st.integers(0, 6), min_size=1, max_size=3).map(tuple))
    whole = np.arange(np.prod(shape), dtype="i8").reshape(shape)
    cuts = [sorted({0, length, *data.draw(st.lists(st.integers(0, length), max_size=3))}) for length in shape]
    boxes = list(itertools.product(*(list(itertools.pairwise(cut)) or [(0, 0)] for cut in cuts)))
    boxes = data.draw(st.permutations(boxes))
    values = {f"worker_{at}": whole[tuple(slice(*range_) for range_ in box)] for at, box in enumerate(boxes)}
    parts = [
        Part(f"worker_{at}", "", json.dumps(position(shape, [a for a, _ in box], [b - a for a, b in box])))
        for at, box in enumerate(boxes)
    ]
    np.testing.assert_array_equal(Sharded("w", 0, parts).assemble(values.__getitem__), whole)
    if whole.size and len(parts) > 1:
        lost = data.draw(st.sampled_from([part for part in parts if values[part.worker].size]))
        rest = [part for part in parts if part is not lost]
        with pytest.raises(IncompleteShardsError) as error:
            Sharded("w", 0, rest, values).assemble(values.__getitem__)
        assert lost.worker in error.value.workers
        assert error.value.ranges


@pytest.mark.parametrize("to", ["npz", "parquet"])
def test_export_writes_whole_tensors(cut, tmp_path, to):
    whole = RNG.normal(size=(6, 4)).astype("f4")
    trial = cut(slabs(whole, [2, 4]))
    out = tmp_path / f"out.{to}"
    assert trial.export(to, out, tensors="^w$").records == 1
    assert trial.export(to, tmp_path / f"two.{to}", tensors="^w$", workers=["worker_0", "worker_1"]).records == 2
    if to == "npz":
        with np.load(out) as arrays:
            np.testing.assert_array_equal(arrays["w/000000000000.all"], whole)


def test_verify_reports_missing_shards_and_differing_replicas(cut, tmp_path):
    whole = np.arange(8.0)
    copies = [(where | {"replica": 1}, value + (where["offsets"] == [4])) for where, value in slabs(whole, [4, 4])]
    write(tmp_path, [*slabs(whole, [4, 4])][:1], step=1)
    cut([*slabs(whole, [4, 4]), *copies])
    found = verify(str(tmp_path), None, None)
    messages = [(fault["step"], fault["message"].partition(":")[0]) for fault in found["faults"]]
    assert messages == [(0, "replicas differ"), (1, "tensor 'w' at step 1 is sharded and not complete")]
    assert "worker_1 and worker_3" in found["faults"][0]["message"]


def test_pictures_show_the_whole_tensor(cut):
    whole = RNG.normal(size=(6, 4)).astype("f4")
    trial = cut(slabs(whole, [2, 4]))
    view = TensorView(trial, "w")
    np.testing.assert_array_equal(view.value(0), whole)
    assert (view.sample(), view.shape(0), view.workers()) == (("float32", (6, 4)), (6, 4), ["worker_0", "worker_1"])
    assert view.reductions([0], ["max"])["max"].tolist() == [whole.max()]
    np.testing.assert_array_equal(TensorView(trial, "w", "worker_1").value(0), whole[2:])
