"""Against real S3 servers over HTTP: what is listed, what is read, what it costs, and what happens on a bad day."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from faults import campaign
from python.s3.servers import FaultyProxy
from smdwidgets.exceptions import OutsideRunError, RunIOError, RunNotFound, SMDebugError, TruncatedDataError
from smdwidgets.storage.protocol import Range
from smdwidgets.storage.s3 import S3Error, S3Storage, connect, download, prefetch
from smdwidgets.storage.s3.download import Cancelled
from smdwidgets.storage.s3.plan import Get


@pytest.fixture
def objects(raw: Any, bucket: str) -> dict[str, bytes]:
    contents = {f"run/events/{n:03}": random.Random(n).randbytes(5000 + n) for n in range(30)}
    contents["other/secret"] = b"not of this run"
    for key, content in contents.items():
        raw.put_object(Bucket=bucket, Key=key, Body=content)
    return contents


@pytest.fixture
def storage(raw: Any, bucket: str, objects: dict[str, bytes]) -> Any:
    store = S3Storage(bucket, "run", client=raw)
    yield store
    store.close()


def test_a_listing_begins_after_the_given_key(storage: S3Storage) -> None:
    assert list(storage.list("events/", start_after="events/027")) == ["events/028", "events/029"]
    assert storage.requests.lists == 1
    assert len(list(storage.list("events/"))) == 30
    assert next(iter(storage.listing("events/"))).size == 5000


def test_ranges_of_one_object_are_one_request_and_are_then_remembered(
    storage: S3Storage, objects: dict[str, bytes]
) -> None:
    wanted = [Range("events/007", at, 100) for at in range(0, 5000, 200)] + [Range("events/008", 0, 0)]
    before = storage.requests
    answers = storage.read_ranges(wanted)
    assert [bytes(a) for a in answers] == [objects[f"run/{r.key}"][r.offset : r.offset + r.length] for r in wanted]
    assert (storage.requests - before).gets == 1
    again = storage.requests
    storage.read_ranges(wanted[:-1])
    assert (storage.requests - again).gets == 0
    assert storage.cache_info().hits == 25


def test_many_objects_arrive_whole_and_the_missing_are_left_out(storage: S3Storage, objects: dict[str, bytes]) -> None:
    keys = [f"events/{n:03}" for n in range(30)]
    assert dict(storage.read_many([*keys, "events/missing"])) == {k: objects[f"run/{k}"] for k in keys}
    assert storage.requests.gets == 31


def test_what_two_threads_want_at_once_is_fetched_once(
    endpoint: str, bucket: str, objects: dict[str, bytes], client_for: Callable[[str], Any]
) -> None:
    with FaultyProxy(endpoint, latency=0.1) as proxy:
        store = S3Storage(bucket, "run", client=client_for(proxy.endpoint))
        wanted = Range("events/003", 10, 50)
        store.prefetch([wanted])
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: bytes(store.read_ranges([wanted])[0]), range(8)))
        assert answers == [objects["run/events/003"][10:60]] * 8
        assert proxy.seen["GET"] == 1
        store.close()


def test_existence_is_of_exactly_that_key(storage: S3Storage) -> None:
    assert storage.exists("events/001")
    assert not storage.exists("events/00")


@pytest.mark.parametrize("key", ["../other/secret", "events/../../other/secret", "./events/001"])
def test_a_key_reads_no_other_key(storage: S3Storage, key: str) -> None:
    with pytest.raises(OutsideRunError, match="leads out of the run"):
        storage.read(key)


@pytest.mark.parametrize("key", ["events/ü€😀", "events/a b+c%20d&e", "events/quote'\"<b>"])
def test_keys_are_data(raw: Any, bucket: str, storage: S3Storage, key: str) -> None:
    storage.put(key, key.encode())
    assert storage.read(key) == key.encode()
    assert key in storage.list("events/")
    assert raw.get_object(Bucket=bucket, Key=f"run/{key}")["Body"].read() == key.encode()


def test_a_range_past_the_end_is_an_error_and_not_a_shorter_value(storage: S3Storage) -> None:
    with pytest.raises(
        TruncatedDataError, match=r"events/000', byte 4000: truncated data: expected 2000 bytes, got 1000"
    ):
        storage.read_ranges([Range("events/000", 4000, 2000)])
    with pytest.raises(SMDebugError, match="events/001"):
        storage.read_ranges([Range("events/001", 9_000_000, 10)])


def test_an_object_too_large_to_be_held_is_refused_before_it_comes(
    endpoint: str, bucket: str, objects: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [f"events/{n:03}" for n in range(12)]
    for module in (download, prefetch):
        monkeypatch.setattr(module, "LARGEST_WHOLE", 5010)
    store = S3Storage(bucket, "run", client=connect(endpoint_url=endpoint), owns_client=True)
    try:
        for reading in (lambda: store.read("events/011"), lambda: dict(store.read_many(keys))):
            with pytest.raises(RunIOError, match=r"events/011.* larger than 1 GiB"):
                reading()
        assert len(dict(store.read_many(keys[:10]))) == 10
    finally:
        store.close()


def test_no_such_bucket_says_so(raw: Any) -> None:
    store = S3Storage("no-such-bucket-at-all", "run", client=raw)
    with pytest.raises(RunNotFound, match=r"no-such-bucket-at-all.*no such bucket"):
        list(store.list("index/"))
    store.close()


def test_large_objects_go_up_in_parts_and_come_back(storage: S3Storage, tmp_path: Path) -> None:
    content = random.Random(1).randbytes(33 << 20)
    storage.put("events/large", content)
    assert storage.read("events/large") == content
    (tmp_path / "file").write_bytes(content[: 17 << 20])
    storage.put("events/file", tmp_path / "file")
    assert storage.read("events/file") == content[: 17 << 20]


def read_everything(store: S3Storage, objects: dict[str, bytes]) -> None:
    keys = [key.removeprefix("run/") for key in objects if key.startswith("run/")]
    for key, data in store.read_many(keys):
        assert data == objects[f"run/{key}"]
    wanted = [Range(key, 100, 4000) for key in keys]
    assert [bytes(a) for a in store.read_ranges(wanted)] == [
        objects[f"run/{r.key}"][r.offset : r.offset + r.length] for r in wanted
    ]
    assert list(store.list("events/")) == keys


def test_faults_change_no_byte(
    endpoint: str, bucket: str, objects: dict[str, bytes], hasty_client: Callable[[str], Any]
) -> None:
    faults = campaign.size(200, 1000)
    with FaultyProxy(endpoint, seed=7, share=0.25, faults=faults) as proxy:
        store = S3Storage(bucket, "run", client=hasty_client(proxy.endpoint), cache_bytes=0)
        rounds = 0
        while proxy.faults_left and rounds < 200:
            rounds += 1
            read_everything(store, objects)
        assert sum(proxy.played.values()) == faults
        assert set(proxy.played) == {"slow_down", "internal_error", "reset_before", "reset_in_body", "short_body"}
        assert store.requests.retries > 0
        store.close()


def test_the_client_that_we_make_survives_a_bad_hour(
    endpoint: str, bucket: str, objects: dict[str, bytes], client_for: Callable[[str], Any]
) -> None:
    with FaultyProxy(endpoint, seed=1, share=0.05, faults=5) as proxy:
        store = S3Storage(bucket, "run", client=client_for(proxy.endpoint), cache_bytes=0)
        read_everything(store, objects)
        read_everything(store, objects)
        assert sum(proxy.played.values()) == 5
        store.close()


@pytest.mark.parametrize(
    ("status", "code", "says"),
    [
        (403, "AccessDenied", "s3:GetObject"),
        (400, "ExpiredToken", "credentials have expired"),
        (404, "NoSuchKey", "no such object"),
        (403, "InvalidAccessKeyId", "not accepted"),
    ],
)
def test_what_no_retry_can_cure_is_one_clear_error(
    endpoint: str,
    bucket: str,
    objects: dict[str, bytes],
    client_for: Callable[[str], Any],
    status: int,
    code: str,
    says: str,
) -> None:
    with FaultyProxy(endpoint) as proxy:
        store = S3Storage(bucket, "run", client=client_for(proxy.endpoint))
        proxy.always = (status, code)
        with pytest.raises(S3Error, match=says) as caught:
            store.read("events/001")
        assert (caught.value.bucket, caught.value.key, caught.value.code) == (bucket, "run/events/001", code)
        assert proxy.seen["GET"] == 1, "asked again in vain"
        store.close()


def test_closing_ends_a_reading_that_waits(
    endpoint: str, bucket: str, objects: dict[str, bytes], client_for: Callable[[str], Any]
) -> None:
    with FaultyProxy(endpoint, latency=0.2) as proxy:
        store = S3Storage(bucket, "run", client=client_for(proxy.endpoint), concurrency=1)
        arriving = store.read_many([f"events/{n:03}" for n in range(30)])
        next(arriving)
        arriving.close()  # type: ignore[attr-defined]
        store.close()
        assert proxy.seen["GET"] < 10
    assert threading.active_count() < 50


def test_who_gives_up_takes_nobody_along(
    endpoint: str, bucket: str, objects: dict[str, bytes], client_for: Callable[[str], Any]
) -> None:
    with FaultyProxy(endpoint, latency=0.3) as proxy, ThreadPoolExecutor(2) as pool:
        store = S3Storage(bucket, "run", client=client_for(proxy.endpoint))
        get, stop = Get("events/003", 10, 50, (0,)), threading.Event()
        given_up = pool.submit(store._fetch, get, stop)
        while not store._in_flight:
            pass
        waiting = pool.submit(store._fetch, get, threading.Event())
        stop.set()
        with pytest.raises(Cancelled, match="read cancelled"):
            given_up.result()
        assert waiting.result() == objects["run/events/003"][10:60]
        store.close()


def test_no_attempt_is_made_after_a_long_silence(
    endpoint: str,
    bucket: str,
    objects: dict[str, bytes],
    hasty_client: Callable[[str], Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("smdwidgets.storage.s3.download._LONGEST_SILENCE", -1.0)
    with FaultyProxy(endpoint) as proxy:
        store = S3Storage(bucket, "run", client=hasty_client(proxy.endpoint))
        proxy.always = (500, "InternalError")
        with pytest.raises(S3Error, match="failed in all retries"):
            store.read("events/001")
        assert proxy.seen["GET"] == 8, "those of boto3 alone"
        store.close()


@pytest.mark.parametrize("token", ["again", None])
def test_a_listing_that_does_not_go_on_is_an_error(token: str | None) -> None:
    page = {"Contents": [{"Key": "run/a", "Size": 1}], "IsTruncated": True, "NextContinuationToken": token}
    store = S3Storage("b", "run", client=SimpleNamespace(list_objects_v2=lambda **_: page))
    with pytest.raises(S3Error, match="invalid continuation token"):
        list(store.list(""))


def test_what_was_written_again_is_not_taken_from_the_disk(raw: Any, bucket: str, tmp_path: Path) -> None:
    for content in (b"first", b"later"):
        raw.put_object(Bucket=bucket, Key="run/train/events.out.tfevents.1", Body=content)
        for _ in range(2):
            store = S3Storage(bucket, "run", client=raw, cache_dir=tmp_path)
            [key] = store.list("")
            assert bytes(store.read_ranges([Range(key, 0, 5)])[0]) == content
            store.close()
        assert store.requests.gets == 0, "the second time it is"
