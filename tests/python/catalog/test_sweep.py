"""Many records at once: columns of reductions, stacked values, dtypes and shapes."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from smdwidgets import _core
from smdwidgets.exceptions import CorruptDataError

EVENTS = "events/{0:012d}/{0:012d}_worker_0.tfevents"


@pytest.fixture
def fetched(run):
    """Bytes of the run as read from a bucket."""

    def fetch(key: str, offset: int, length: int) -> bytes:
        with (run / key).open("rb") as file:
            file.seek(offset)
            return file.read(length)

    return _core.Fetched(fetch)


@pytest.fixture(params=["files", "fetched"])
def source(request, run, fetched):
    """The run's bytes from files, or from a function."""
    return _core.Files(run) if request.param == "files" else fetched


def test_columns_match_numpy(run, write, catalog_of, source):
    rng = np.random.default_rng(5)
    values = {(name, step): rng.normal(size=(4, 5)).astype("f4") for name in ("a", "b") for step in range(6)}
    for step in range(6):
        write(step, {name: values[name, step] for name in ("a", "b")}, mode=1 + step % 2, mode_step=step // 2)
    catalog = catalog_of(run)
    columns = _core.sweep(catalog, source, ["b", "a"], [4, 1], counts=True)
    assert columns["name"].tolist() == ["b", "b", "a", "a"]
    assert columns["step"].tolist() == [4, 1, 4, 1]
    assert columns["mode"].tolist() == [1, 2, 1, 2]
    assert columns["mode_step"].tolist() == [2, 0, 2, 0]
    assert columns["worker"].tolist() == ["worker_0"] * 4
    assert columns["size"].tolist() == [20] * 4
    assert columns["nan"].tolist() == [0] * 4
    assert columns["error"] == []
    of = [values[name, step] for name, step in zip(columns["name"], columns["step"], strict=True)]
    for op in ("min", "max", "mean", "prod", "std", "sum"):
        for prefix, change in (("", np.asarray), ("abs_", np.abs)):
            column = columns[prefix + op]
            assert column.dtype == np.float32
            np.testing.assert_allclose(column, [getattr(np, op)(change(x).astype("f8")) for x in of], rtol=1e-6)
    np.testing.assert_allclose(columns["variance"], [np.var(x, dtype="f8") for x in of], rtol=1e-6)
    np.testing.assert_allclose(columns["l2"], [np.sqrt(np.sum(x.astype("f8") ** 2)) for x in of], rtol=1e-6)
    assert len(_core.sweep(catalog, source, ["a"])["step"]) == 6


def test_reductions_have_the_names_of_configurations(run, write, catalog_of):
    write(0, {"a": np.array([3.0, -4.0])})
    columns = _core.sweep(catalog_of(run), _core.Files(run), ["a"], reductions=["l2_norm", "abs_min", "abs_l1_norm"])
    assert (columns["l2_norm"], columns["abs_min"], columns["abs_l1_norm"]) == (5, 3, 7)
    with pytest.raises(ValueError, match='invalid reduction "median"; choose from min, max'):
        _core.sweep(_core.Catalog(), _core.Files(run), [], reductions=["median"])


def test_column_of_several_dtypes_has_a_common_dtype(run, write, catalog_of):
    write(0, {"f": np.ones(2, "f4"), "i": np.full(2, 2**60), "u": np.ones(2, "u1"), "c": np.full(2, 1 + 2j)})

    def sweep(*names: str) -> np.ndarray:
        return _core.sweep(catalog_of(run), _core.Files(run), names, reductions=["sum"])["sum"]

    assert sweep("f").dtype == np.float32
    assert sweep("i").tolist() == [2**61]
    assert sweep("u").dtype == np.uint64
    assert sweep("f", "i").dtype == np.float64
    assert sweep("c", "f").tolist() == [2 + 4j, 2]


def test_first_named_or_all_workers(run, write, catalog_of, source):
    for worker in (1, 0, 10):
        write(0, {"a": np.full(2, worker)}, worker=f"worker_{worker}")
    catalog = catalog_of(run)

    def sweep(workers: list[str] | None) -> dict:
        return _core.sweep(catalog, source, ["a"], workers=workers, reductions=["max"])

    assert sweep(None)["max"].tolist() == [0]
    assert sweep([])["worker"].tolist() == ["worker_0", "worker_1", "worker_10"]
    assert sweep([])["max"].tolist() == [0, 1, 10]
    assert sweep(["worker_10", "worker_1", "nobody"])["max"].tolist() == [10, 1]


def test_stored_reductions_are_returned_as_stored(run, write, catalog_of, source):
    write(0, {"a": np.array([1.0, 2.0]), "smdebug/reductions/sum/a": np.array(99.0)})
    write(1, {"smdebug/reductions/sum/a": np.array(98.0)})
    catalog = catalog_of(run)
    columns = _core.sweep(catalog, source, ["a"], reductions=["sum", "max"], counts=True)
    assert columns["sum"].tolist() == [99, 98]
    np.testing.assert_array_equal(columns["max"], [2, np.nan])
    assert columns["size"].tolist() == [2, -1]
    assert _core.sweep(catalog, source, ["a"], reductions=["sum"], recompute=True)["sum"].tolist() == [3, 98]


def test_bad_record_is_one_error(run, write, catalog_of, source):
    for step in range(4):
        write(step, {"a": np.full(100, step, "f4"), "b": np.ones(2)})
    path = run / EVENTS.format(2)
    content = bytearray(path.read_bytes())
    content[200] ^= 1
    path.write_bytes(content)
    (run / EVENTS.format(3)).unlink()
    catalog = catalog_of(run)
    columns = _core.sweep(catalog, source, ["a"], reductions=["sum"])
    np.testing.assert_array_equal(columns["sum"], [0, 100, np.nan, np.nan])
    (bad, error), (missing, gone) = columns["error"]
    assert (bad, missing) == (2, 3)
    assert isinstance(error, CorruptDataError)
    assert EVENTS.format(2) in str(error)
    assert isinstance(gone, OSError)
    found, errors = _core.values(catalog, source, [("a", step, None) for step in range(5)])
    assert [None if value is None else value[0] for value in found] == [0, 1, None, None, None]
    assert [row for row, _ in errors] == [2, 3]
    verified = _core.verify(catalog, source)
    assert (verified["records"], verified["index_crc"], verified["unverifiable"]) == (5, 5, 0)
    assert [(name, step, worker) for name, step, worker, _ in verified["errors"]] == [
        ("a", 2, "worker_0"), ("a", 3, "worker_0"), ("b", 3, "worker_0"),
    ]  # fmt: skip


@pytest.mark.parametrize("shape", [(), (1,), (3, 2), (40, 50)])
def test_values_of_equal_shape_are_one_array(run, write, catalog_of, source, shape):
    values = [np.full(shape, step, "i4") for step in range(7)]
    for step, value in enumerate(values):
        write(step, {"a": value})
    stacked, errors = _core.values(catalog_of(run), source, [("a", step, None) for step in range(7)])
    assert isinstance(stacked, np.ndarray)
    assert stacked.shape == (7, *shape)
    assert stacked.flags.writeable
    np.testing.assert_array_equal(stacked, np.stack(values))
    assert errors == []


def test_values_of_different_shapes_are_a_list(run, write, catalog_of, source):
    values = [
        np.zeros(2, "f4"),
        np.ones(3, "f4"),
        np.ones(2),
        np.array(["x", "yz"]),
        np.zeros(0),
        np.float32(3) + np.zeros(()),
    ]
    for step, value in enumerate(values):
        write(step, {"a": value})
    found, errors = _core.values(catalog_of(run), source, [("a", step, None) for step in range(8)])
    assert errors == []
    for got, value in zip(found, values, strict=False):
        assert got.dtype == value.dtype
        assert got.flags.writeable
        np.testing.assert_array_equal(got, value)
    assert list(found[6:]) == [None, None]
    assert _core.values(catalog_of(run), source, [])[0] == []


def test_heads_return_dtypes_and_shapes(run, write, catalog_of, source):
    write(0, {"a": np.zeros((3, 4), "f2"), "n" * 3000: np.zeros(9000, "u1"), "t": np.array(["x"])})
    rows = [("a", 0, None), ("n" * 3000, 0, "worker_0"), ("b", 0, None), ("t", 0, None)]
    heads, errors = _core.heads(catalog_of(run), source, rows)
    assert heads == [("float16", (3, 4)), ("uint8", (9000,)), None, ("str", (1,))]
    assert errors == []


def test_golden_runs_give_the_same_from_both_sources(golden_runs, catalog_of):
    for golden in filter(Path.is_dir, sorted(golden_runs.glob("*/run*"))):
        catalog, files = catalog_of(golden), _core.Files(golden)

        def fetch(key: str, offset: int, length: int, golden=golden) -> bytes:
            return (golden / key).read_bytes()[offset : offset + length]

        local, remote = (
            _core.sweep(catalog, source, catalog.names(), workers=[], counts=True)
            for source in (files, _core.Fetched(fetch))
        )
        assert local.keys() == remote.keys()
        for name in local.keys() - {"error"}:
            np.testing.assert_array_equal(local[name], remote[name])
        assert [row for row, _ in local["error"]] == [row for row, _ in remote["error"]]


def test_progress_is_called_in_the_calling_thread(run, write, catalog_of):
    for step in range(30):
        write(step, {"a": np.zeros(10)})
    calls = []
    _core.sweep(
        catalog_of(run),
        _core.Files(run),
        ["a"],
        progress=lambda done, all: calls.append((done, all, threading.current_thread())),
    )
    assert calls[-1][0] == calls[-1][1] > 0
    assert {thread for _, _, thread in calls} == {threading.current_thread()}


@pytest.fixture
def slow(run, write):
    """A run with slow reads that counts the fetches."""
    for step in range(60):
        write(step, {"a": np.zeros(10)})
    fetches = []

    def fetch(key: str, offset: int, length: int) -> bytes:
        fetches.append(key)
        time.sleep(0.02)
        return (run / key).read_bytes()[offset : offset + length]

    return _core.Fetched(fetch), fetches


def test_sweep_can_be_cancelled_by_another_thread(run, slow, catalog_of):
    source, fetches = slow
    cancel = _core.Cancel()
    threading.Timer(0.1, cancel.set).start()
    with pytest.raises(KeyboardInterrupt):
        _core.sweep(catalog_of(run), source, ["a"], threads=1, cancel=cancel)
    assert cancel.is_set()
    assert len(fetches) < 60


def test_ctrl_c_ends_a_sweep(run, slow, catalog_of):
    source, fetches = slow
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        _core.sweep(catalog_of(run), source, ["a"], threads=1)
    assert len(fetches) < 60


def test_exception_in_progress_ends_the_sweep(run, slow, catalog_of):
    source, fetches = slow

    def progress(done: int, all: int) -> None:
        raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        _core.sweep(catalog_of(run), source, ["a"], threads=1, progress=progress)
    assert len(fetches) < 60


def test_exception_in_fetch_is_the_error_of_its_rows(run, write, catalog_of):
    for step in range(3):
        write(step, {"a": np.zeros(2)})
    throttled = LookupError("throttled")

    def fetch(key: str, offset: int, length: int) -> bytes:
        if "000000000001" in key:
            raise throttled
        return (run / key).read_bytes()[offset : offset + length]

    columns = _core.sweep(catalog_of(run), _core.Fetched(fetch), ["a"], reductions=["sum"])
    assert columns["error"] == [(1, throttled)]
    with pytest.raises(TypeError, match="must be callable"):
        _core.Fetched(3)
    with pytest.raises(TypeError):
        _core.sweep(catalog_of(run), "here", ["a"])


def test_adjacent_records_are_fetched_together(run, write, catalog_of):
    write(0, {f"t{at}": np.zeros(20) for at in range(50)})
    fetches = []

    def fetch(key: str, offset: int, length: int) -> bytes:
        fetches.append((key, offset, length))
        return (run / key).read_bytes()[offset : offset + length]

    catalog = catalog_of(run)
    _core.sweep(catalog, _core.Fetched(fetch), catalog.names(), reductions=["sum"])
    assert fetches == [(EVENTS.format(0), 0, (run / EVENTS.format(0)).stat().st_size)]


def test_many_threads_sweep_one_run(run, write, catalog_of):
    for step in range(20):
        write(step, {"a": np.full(1000, step)})
    catalog, files, wrong = catalog_of(run), _core.Files(run), []

    def sweep() -> None:
        columns = _core.sweep(catalog, files, ["a"], reductions=["max"], threads=2)
        if columns["max"].tolist() != list(range(20)):
            wrong.append(columns)

    threads = [threading.Thread(target=sweep) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
