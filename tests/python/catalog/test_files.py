"""Values of event files: memory, caching, verification and rejected files."""

from __future__ import annotations

import gc
import json
import os
import pickle
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from smdwidgets import _core
from smdwidgets.exceptions import (
    CorruptDataError,
    OutsideRunError,
    RunIOError,
    SMDebugError,
    TruncatedDataError,
)

LARGE = 5000
EVENTS = "events/{0:012d}/{0:012d}_worker_0.tfevents"
INDEX = "index/000000000/{:012d}_worker_0.json"


def edit(run: Path, step: int, change) -> None:
    """Change an index file's content."""
    path = run / INDEX.format(step)
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


@pytest.mark.parametrize("size", [0, 1, 7, 1024, LARGE])
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64", "float16", "float32", "complex128"])
def test_values_equal_what_was_saved(run, write, catalog_of, dtype, size):
    value = np.arange(size).astype(dtype)
    write(3, {"other": np.zeros(1), "w": value})
    catalog, files = catalog_of(run), _core.Files(run)
    for _ in range(3):
        for got in (
            files.get(catalog, "w", 3),
            files.value(catalog.find("w", 3)),
            files.get(catalog, "w", 3, "worker_0"),
        ):
            assert got.dtype == value.dtype
            assert got.shape == value.shape
            np.testing.assert_array_equal(got, value)
            assert got.flags.writeable
    assert files.head(catalog.find("w", 3)) == (dtype, (size,))


@pytest.mark.parametrize("shape", [(), (1,), (2, 3), (1, 0, 4), (3, 1, 1, 2, 1, 1)])
def test_shapes_equal_what_was_saved(run, write, catalog_of, shape):
    write(0, {"w": np.zeros(shape, "f4")})
    catalog, files = catalog_of(run), _core.Files(run)
    for _ in range(2):
        got = files.get(catalog, "w", 0)
        assert isinstance(got, np.ndarray)
        assert got.shape == shape


@pytest.mark.parametrize("size", [3, LARGE])
def test_values_outlive_all_other_objects(run, write, catalog_of, size):
    value = np.arange(size, dtype="f4")
    write(0, {"w": value})
    catalog, files = catalog_of(run), _core.Files(run)
    kept = [files.get(catalog, "w", 0), files.get(catalog, "w", 0)[1:][::2]]
    files.release()
    (run / EVENTS.format(0)).unlink()
    del catalog, files
    gc.collect()
    np.testing.assert_array_equal(kept[0], value)
    np.testing.assert_array_equal(kept[1], value[1:][::2])
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(kept[0])), value)


@pytest.mark.parametrize("size", [3, 1025, LARGE, (1 << 13) + 1])
def test_every_call_returns_separate_memory(run, write, catalog_of, size):
    """Values of both cache classes, and values larger than the 64 KiB limit."""
    write(0, {"w": np.arange(size, dtype="f8")})
    catalog, files = catalog_of(run), _core.Files(run)
    asks = (
        lambda: files.get(catalog, "w", 0),
        lambda: files.get(catalog, "w", 0, cache=False),
        lambda: files.value(catalog.find("w", 0)),
    )
    given = []
    for ask in asks * 3:
        value = ask()
        assert value.tolist() == list(range(size))
        assert not any(np.shares_memory(value, earlier) for earlier in given)
        value += 1
        value.shape = (1, size)
        given.append(value)


def test_small_values_are_cached_up_to_a_limit(run, write, catalog_of):
    """Values of up to 64 KiB are cached, 16 MB in total.

    Reading a run does not fill the memory.
    """
    steps = range(400)
    for step in steps:
        write(step, {"w": np.full(1 << 13, step, "f8"), **({} if step else {"large": np.zeros((1 << 13) + 1)})})
    catalog, files = catalog_of(run), _core.Files(run)
    assert files.get(catalog, "large", 0).size == (1 << 13) + 1
    for step in steps:
        files.get(catalog, "w", step)
    for step in steps:
        os.truncate(run / EVENTS.format(step), 0)

    def cached(name, step):
        try:
            return bool((files.get(catalog, name, step) == step).all())
        except TruncatedDataError:
            return False

    # Newest first: reading a cached value keeps it in the cache.
    found = [step for step in reversed(steps) if cached("w", step)]
    assert found == list(reversed(steps))[: len(found)]
    assert (8 << 20) // (1 << 16) - 2 <= len(found) <= (16 << 20) // (1 << 16)
    assert not cached("large", 0)
    files.release()
    assert not cached("w", found[0])


def test_get_reads_the_index_of_its_step(run, write):
    for step in range(10):
        write(step, {"w": np.full(2, step)})
    catalog, files = _core.Catalog(), _core.Files(run)
    catalog.list_local(run)
    assert files.get(catalog, "w", 7).tolist() == [7, 7]
    assert len(catalog.unread()) == 9
    assert files.get(catalog, "w", 99) is None
    assert files.get(catalog, "v", 7) is None
    assert files.get(catalog, "w", 7, "worker_9") is None
    assert files.get(catalog, "w", -7) is None


def test_number_of_open_files_is_limited(run, write, catalog_of):
    for step in range(60):
        write(step, {"w": np.full(LARGE, step)})
    catalog, files, opened = catalog_of(run), _core.Files(run, max_open=5), Path("/proc/self/fd")

    def descriptors() -> int:
        return sum(1 for _ in opened.iterdir()) if opened.is_dir() else 0

    before = descriptors()
    for step in range(60):
        assert files.get(catalog, "w", step)[0] == step
    assert descriptors() <= before + 5
    assert "5 open" in repr(files)
    files.release()
    assert "0 open" in repr(files)


FEW_FILES = """
import resource, sys
from smdwidgets import _core

resource.setrlimit(resource.RLIMIT_NOFILE, (160, 160))
catalog = _core.Catalog()
catalog.list_local(sys.argv[1])
catalog.load_local(sys.argv[1])
caches = [_core.Files(sys.argv[1]) for _ in range(2)]
for files in caches:
    assert all(files.get(catalog, "w", step)[0] == step for step in range(150))
print(*caches, sep="\\n")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="the limit is set with setrlimit")
def test_all_caches_together_leave_most_of_the_files_to_the_process(run, write):
    for step in range(150):
        write(step, {"w": np.full(4, step)})
    done = subprocess.run([sys.executable, "-c", FEW_FILES, str(run)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    opened = [int(line.split()[-2]) for line in done.stdout.splitlines()]
    # A quarter of 160 together, but at least 32 each.
    assert opened == [40, 32]


@pytest.mark.parametrize("size", [3, LARGE])
def test_flipped_bit_is_detected_by_the_checksum_of_the_index(run, write, catalog_of, size):
    write(0, {"v": np.zeros(size), "w": np.zeros(size)})
    catalog = catalog_of(run)
    entry = catalog.find("w", 0)
    path = run / EVENTS.format(0)
    content = bytearray(path.read_bytes())
    content[entry.offset + entry.length // 2] ^= 4
    path.write_bytes(content)
    files = _core.Files(run)
    for ask in (
        lambda: files.value(entry),
        lambda: files.get(catalog, "w", 0),
        lambda: entry.decode(bytes(content)[entry.offset :][: entry.length]),
    ):
        with pytest.raises(
            CorruptDataError, match=r"tfevents, byte \d+: record checksum mismatch: .* in the index file"
        ):
            ask()
    assert not files.get(catalog, "v", 0).any()
    # Without a checksum in the index only smdebug's constant is left, which verifies nothing.
    edit(run, 0, lambda index: [place.pop("crc32c") for place in index["tensor_payload"]])
    assert files.get(catalog_of(run), "w", 0).any()


def test_file_truncated_while_open_is_an_error(run, write, catalog_of):
    write(0, {"v": np.zeros(LARGE), "w": np.ones(LARGE)})
    catalog, files = catalog_of(run), _core.Files(run)
    value = files.get(catalog, "w", 0)
    os.truncate(run / EVENTS.format(0), 100)
    with pytest.raises(TruncatedDataError, match=r"tfevents, byte \d+: truncated data"):
        files.get(catalog, "v", 0)
    assert (value == 1).all()
    assert (files.get(catalog, "w", 0) == 1).all()
    with pytest.raises(TruncatedDataError):
        _core.Files(run).get(catalog, "w", 0)


def test_arrays_are_unaffected_by_overwriting_the_file(run, write, catalog_of):
    write(0, {"w": np.ones(LARGE)})
    catalog, files = catalog_of(run), _core.Files(run)
    value = files.get(catalog, "w", 0)
    path = run / EVENTS.format(0)
    with path.open("r+b") as file:
        file.write(bytes(path.stat().st_size))
    assert (value == 1).all()


@pytest.mark.parametrize("what", ["step", "mode", "mode_step"])
def test_file_of_another_step_is_rejected(run, write, catalog_of, what):
    """Files of the same tensors have records at the same offsets."""
    write(3, {"w": np.zeros(5)}, mode=1, mode_step=3)
    other = {"step": (4, 1, 3), "mode": (3, 2, 3), "mode_step": (3, 1, 2)}[what]
    write(3, {"w": np.zeros(5)}, mode=1, mode_step=3)
    right = json.loads((run / INDEX.format(3)).read_text())
    write(other[0], {"w": np.ones(5)}, mode=other[1], mode_step=other[2])
    wrong = json.loads((run / INDEX.format(other[0])).read_text())
    (run / EVENTS.format(other[0])).rename(run / EVENTS.format(3))
    right["tensor_payload"] = wrong["tensor_payload"]
    (run / INDEX.format(3)).write_text(json.dumps(right))
    catalog, files = catalog_of(run), _core.Files(run)
    with pytest.raises(CorruptDataError, match=r"step mismatch: .*3 in the index file"):
        files.get(catalog, "w", 3)


@pytest.mark.parametrize("key", [EVENTS.format(4), EVENTS.format(3).replace("worker_0", "worker_1")])
def test_index_file_with_the_event_file_of_another_is_rejected(run, write, key):
    write(3, {"w": np.zeros(5)})
    edit(run, 3, lambda index: index["meta"].update(event_file_name=key))
    catalog = _core.Catalog()
    catalog.list_local(run)
    catalog.load_local(run)
    [(where, what)] = catalog.problems()
    assert where == INDEX.format(3)
    assert "it refers to the event file of step" in what
    assert catalog.names() == []


def test_missing_event_file_is_named(run, write, catalog_of):
    write(0, {"w": np.zeros(3)})
    catalog, files = catalog_of(run), _core.Files(run)
    entry = catalog.find("w", 0)
    assert files.exists(entry)
    (run / EVENTS.format(0)).unlink()
    assert not files.exists(entry)
    for ask in (files.value, files.head):
        with pytest.raises(RunIOError, match="tfevents") as caught:
            ask(entry)
        assert isinstance(caught.value, OSError)
        assert caught.value.errno == 2


@pytest.mark.parametrize(
    "key",
    [
        "../secret",
        "/etc/passwd",
        "events/../../secret",
        "C:/secret",
        "events\\..\\..\\secret",
        "events/link",
        "away/secret",
        "events",
        "events/pipe",
    ],
)
def test_nothing_outside_the_run_is_opened(run, write, catalog_of, tmp_path, key):
    write(0, {"w": np.zeros(3)})
    record = (run / EVENTS.format(0)).read_bytes()
    (tmp_path / "secret").write_bytes(record)
    (run / "events" / "link").symlink_to(tmp_path / "secret")
    (run / "away").symlink_to(tmp_path)
    os.mkfifo(run / "events" / "pipe")
    edit(run, 0, lambda index: index["meta"].update(event_file_name=key))
    catalog, files = catalog_of(run), _core.Files(run)
    assert catalog.find("w", 0).event_key == key
    with pytest.raises(OutsideRunError, match="points outside the run"):
        files.get(catalog, "w", 0)
    with pytest.raises(OutsideRunError):
        files.head(catalog.find("w", 0))
    columns = _core.sweep(catalog, files, ["w"], reductions=["sum"])
    assert [type(error) for _, error in columns["error"]] == [OutsideRunError]


@pytest.mark.parametrize(
    "lie",
    [
        {"start_idx": 2**53},
        {"length": 2**53},
        {"length": 1},
        {"length": 0},
        {"start_idx": 1},
        {"start_idx": 10**9, "length": 10**9},
        {"tensorname": "other"},
    ],
)
def test_false_index_entries_are_detected(run, write, catalog_of, lie):
    write(0, {"w": np.arange(50.0)})
    edit(run, 0, lambda index: index["tensor_payload"][0].update(lie))
    catalog, files = catalog_of(run), _core.Files(run)
    (name,) = catalog.names()
    for ask in (
        lambda: files.get(catalog, name, 0),
        lambda: files.value(catalog.find(name, 0)),
        lambda: files.head(catalog.find(name, 0)),
    ):
        with pytest.raises(SMDebugError, match=r"tfevents, byte \d+"):
            ask()
    columns = _core.sweep(catalog, files, [name], reductions=["sum"])
    assert len(columns["error"]) == 1


def test_true_footer_is_verified(run, write, catalog_of, golden_runs):
    golden = golden_runs / "full_crc_events" / "run"
    catalog, files = catalog_of(golden), _core.Files(golden)
    (name,) = catalog.names()
    value = files.get(catalog, name, catalog.steps()[0])
    entry = catalog.find(name, catalog.steps()[0])
    record = bytearray((golden / entry.event_key).read_bytes()[entry.offset :][: entry.length])
    np.testing.assert_array_equal(entry.decode(bytes(record)), value)
    record[40] ^= 1
    with pytest.raises(CorruptDataError, match=r"mismatch: .* in the footer"):
        entry.decode(bytes(record))


def test_entry_has_the_location_of_its_record(run, write, catalog_of):
    write(5, {"v": np.zeros(2), "w": np.arange(4.0)}, mode=2, mode_step=1)
    entry = catalog_of(run).find("w", 5)
    assert (entry.name, entry.step, entry.worker, entry.mode, entry.mode_step) == ("w", 5, "worker_0", 2, 1)
    assert entry.event_key == EVENTS.format(5)
    assert entry.index_key == INDEX.format(5)
    record = (run / entry.event_key).read_bytes()[entry.offset : entry.offset + entry.length]
    assert struct.unpack("<Q", record[:8])[0] == entry.length - 16
    assert entry.crc == _core.crc32c(record[12:-4])
    assert entry.decode(record).tolist() == [0, 1, 2, 3]
    assert entry.decode(record).flags.writeable
    with pytest.raises(TruncatedDataError):
        entry.decode(record[:-1])


def test_strings_of_any_rank(run, write, catalog_of):
    text = np.array([["a", "é"], ["", "日本"]])
    write(0, {"t": text})
    catalog, files = catalog_of(run), _core.Files(run)
    for _ in range(2):
        got = files.get(catalog, "t", 0)
        np.testing.assert_array_equal(got, text)
        assert got.flags.writeable
    assert files.head(catalog.find("t", 0)) == ("str", (2, 2))
