"""Every operation of the core's object stores against a real server of each kind."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from python.stores.places import TOKEN, Place, Places
from servers import FaultyProxy, plain_web_server
from smdwidgets._core import ObjectStore, StoreError

#: Keys that servers, signatures and URLs treat differently.
KEYS = ("a/0", "a/1 b", "a/2+c", "a/3%20d", "a/4é", "a/5#f?g", "a/6&h=i;j", "a/7'k(l)m", "a/8~n,o@p:q", "ab", "b/0")
LIMIT = 1 << 20


@pytest.fixture
def store(place: Place) -> Iterator[ObjectStore]:
    with closing(ObjectStore(*place.core())) as made:
        yield made


def code(error: pytest.ExceptionInfo[StoreError]) -> tuple[str, str]:
    key, name, _ = error.value.args
    return key, name


def test_every_key_is_read_as_it_was_written(place: Place, store: ObjectStore) -> None:
    for key in KEYS:
        place.put(key, key.encode())
    for key in KEYS:
        assert store.get(key, LIMIT)[0] == key.encode()
        size, modified, _ = store.head(key) or (0, 0.0, "")
        assert size == len(key.encode())
        assert modified > 1e9
    assert {key: bytes(content) for key, content in store.get_many(KEYS, LIMIT)} == {key: key.encode() for key in KEYS}


def test_own_writing_is_read_and_deleted(bucket: Place) -> None:
    with closing(ObjectStore(*bucket.core())) as store:
        for key in KEYS:
            store.put(key, key.encode())
        assert {key: store.get(key, LIMIT)[0] for key in KEYS} == {key: key.encode() for key in KEYS}
        assert sorted(key for key, *_ in store.list("")) == sorted(KEYS)
        store.delete([*KEYS[1:], "a/none"])
        assert [key for key, *_ in store.list("")] == ["a/0"]


@pytest.mark.slow
def test_listings_have_pages_and_a_start(bucket: Place) -> None:
    keys = [f"run/{n:05}" for n in range(1203)]
    with closing(ObjectStore(*bucket.core())) as store:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda key: store.put(key, b"x" * 3), keys))
        store.put("run.old/0", b"")
        pages = list(store.pages("run/"))
        assert [key for page in pages for key, *_ in page] == keys
        assert max(map(len, pages)) <= 1000
        listed = store.list("run/", start_after="run/00600")
        assert [key for key, *_ in listed] == keys[601:]
        assert {size for _, size, *_ in listed} == {3}
        assert [key for key, *_ in store.list("run/0000", limit=4)] == keys[:4]
        assert store.list("nothing/") == []


def test_ranges(place: Place, store: ObjectStore) -> None:
    content = os.urandom(200_000)
    place.put("big", content)
    place.put("small", b"0123456789")
    asked = [
        ("big", 10, 100),
        ("small", 2, 3),
        ("big", 150_000, 50_000),
        ("big", 10, 100),
        ("none", 0, 1),
        ("small", 9, 1),
    ]
    read = store.get_ranges(asked)
    for (key, offset, length), part in zip(asked, read, strict=True):
        if key == "none":
            assert isinstance(part, StoreError)
            assert part.args[1] == "missing"
        else:
            whole = content if key == "big" else b"0123456789"
            assert not isinstance(part, StoreError)
            assert part[0] == whole[offset : offset + length]
    assert store.get_range("big", 7, 9)[0] == content[7:16]
    with pytest.raises(StoreError) as raised:
        store.get_range("small", 1000, 5)
    assert code(raised) == ("small", "range")


def test_changed_object_is_an_error(place: Place, store: ObjectStore) -> None:
    place.put("w", b"0123456789")
    content, etag = store.get_range("w", 0, 4)
    assert (content, store.get_range("w", 4, 4, etag)[0]) == (b"0123", b"4567")
    # A web server's tag contains its file's time: another size differs in any case.
    place.put("w", b"9876543210!")
    if etag:
        with pytest.raises(StoreError) as raised:
            store.get_range("w", 4, 4, etag)
        assert code(raised) == ("w", "changed")


def test_missing_and_too_large_objects(place: Place, store: ObjectStore) -> None:
    place.put("large", b"x" * 2000)
    with pytest.raises(StoreError) as raised:
        store.get("none", LIMIT)
    assert code(raised) == ("none", "missing")
    assert store.head("none") is None
    with pytest.raises(StoreError) as raised:
        store.get("large", 1999)
    assert code(raised) == ("large", "too_large")
    assert store.get("large", 2000)[0] == b"x" * 2000


def test_missing_bucket(bucket: Place) -> None:
    url, options = bucket.core()
    with closing(ObjectStore(url + "-none", options)) as store, pytest.raises(StoreError) as raised:
        store.list("run/")
    assert raised.value.args[1] in {"no_bucket", "missing"}


def test_conditional_writes(bucket: Place) -> None:
    if bucket.kind in {"rclone"}:
        pytest.skip("rclone ignores conditions of uploads")
    with closing(ObjectStore(*bucket.core())) as store:
        first = store.put("w", b"1", if_match="")
        with pytest.raises(StoreError) as raised:
            store.put("w", b"2", if_match="")
        assert code(raised) == ("w", "changed")
        second = store.put("w", b"2", if_match=first)
        with pytest.raises(StoreError) as raised:
            store.put("w", b"3", if_match=first)
        assert code(raised) == ("w", "changed")
        assert store.get("w", LIMIT)[0] == b"2"
        assert first != second


@pytest.mark.slow
def test_large_file_is_uploaded_in_parts_through_faults(bucket: Place, tmp_path: Path) -> None:
    content = os.urandom(21 << 20)
    (tmp_path / "file").write_bytes(content)
    with (
        FaultyProxy(bucket.endpoint, dialect=bucket.scheme, seed=3, share=1.0, faults=3) as proxy,
        closing(ObjectStore(*bucket.core(proxy.endpoint))) as store,
    ):
        store.put_file("parts", str(tmp_path / "file"))
        assert sum(proxy.played.values()) == 3
        assert proxy.seen["PUT"] > 1, "in more than one part"
    with closing(ObjectStore(*bucket.core())) as store:
        assert store.get("parts", 1 << 30)[0] == content


def test_web_server_without_ranges(tmp_path: Path) -> None:
    (tmp_path / "w").write_bytes(bytes(range(200)))
    with (
        plain_web_server(tmp_path) as endpoint,
        closing(ObjectStore(f"{endpoint}/", {"allow_http": "true"})) as store,
    ):
        assert store.get("w", LIMIT)[0] == bytes(range(200))
        assert store.get_range("w", 10, 5)[0] == bytes(range(10, 15))


def test_google_answers_only_with_the_token(stores: Places) -> None:
    place = stores.new("google")
    url, options = place.core()
    with closing(ObjectStore(url, {**options, "google_bearer_token": "another"})) as store:
        with pytest.raises(StoreError) as raised:
            store.list("")
        assert raised.value.args[1] in {"denied", "expired", "credentials"}
        assert TOKEN not in str(raised.value)
