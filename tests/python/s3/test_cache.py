"""The caches return what was stored, respect their limit and reject damaged data."""

from __future__ import annotations

import random
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from smdwidgets.storage.cache import DiskCache, MemoryCache
from smdwidgets.storage.protocol import Range

CONTENT = {key: random.Random(key).randbytes(2000) for key in "ab"}
places = st.tuples(st.sampled_from("ab"), st.integers(0, 1900), st.integers(0, 100))


@given(st.lists(st.tuples(st.booleans(), places)), st.integers(0, 800))
def test_results_equal_the_content_of_the_object(steps: list[tuple[bool, tuple[str, int, int]]], limit: int) -> None:
    cache = MemoryCache(limit)
    for is_put, (key, offset, length) in steps:
        truth = CONTENT[key][offset : offset + length]
        if is_put:
            cache.put(key, offset, truth)
        else:
            answer = cache.get(Range(key, offset, length))
            assert answer is None or bytes(answer) == truth
        assert cache.info().size <= limit


def test_least_recently_used_piece_is_evicted_first() -> None:
    cache = MemoryCache(200)
    cache.put("a", 0, b"x" * 100)
    cache.put("b", 0, b"y" * 100)
    assert cache.get(Range("a", 10, 5)) == b"xxxxx"
    cache.put("c", 0, b"z" * 100)
    assert cache.get(Range("b", 0, 1)) is None
    assert cache.get(Range("a", 0, 1)) == b"x"
    assert repr(cache.info()).startswith("67 % of 3 reads from the cache")


def test_changed_object_is_removed_from_the_cache() -> None:
    cache = MemoryCache(1000)
    cache.put("a", 0, b"old")
    cache.drop("a")
    assert cache.get(Range("a", 0, 3)) is None
    assert cache.info().size == 0


def test_damaged_or_deleted_piece_on_disk_is_ignored(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "cache", limit=1 << 20)
    wanted = Range("../../etc/passwd", 5, 4)
    cache.put("run", wanted, b"good")
    assert cache.get("run", wanted) == b"good"
    assert cache.get("other run", wanted) is None
    (piece,) = (tmp_path / "cache").glob("*/*")
    assert piece.is_relative_to(tmp_path / "cache")
    for damaged in (b"", piece.read_bytes()[:-1], piece.read_bytes()[:-1] + b"?"):
        piece.write_bytes(damaged)
        assert cache.get("run", wanted) is None
    piece.unlink()
    assert cache.get("run", wanted) is None


def test_directory_is_pruned_to_its_limit(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, limit=1000)
    cache._PRUNE_EVERY = 500
    for n in range(50):
        cache.put("run", Range(str(n), 0, 100), bytes(100))
    assert sum(path.stat().st_size for path in tmp_path.glob("*/*")) <= 1000 + 500 + 104


def test_unwritable_directory_disables_the_cache(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    cache = DiskCache(tmp_path / "file" / "cache", limit=1000)
    cache.put("run", Range("k", 0, 1), b"x")
    assert cache.get("run", Range("k", 0, 1)) is None
