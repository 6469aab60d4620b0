"""The S3 storage against real servers: listing, reading, cost and faults."""

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


def test_listing_starts_after_the_given_key(storage: S3Storage) -> None:
    assert list(storage.list("events/", start_after="events/027")) == ["events/028", "events/029"]
    assert storage.requests.lists == 1
    assert len(list(storage.list("events/"))) == 30
    assert next(iter(storage.listing("events/"))).size == 5000


def test_ranges_of_one_object_are_one_request_and_are_cached(storage: S3Storage, objects: dict[str, bytes]) -> None:
    wanted = [Range("events/007", at, 100) for at in range(0, 5000, 200)] + [Range("events/008", 0, 0)]
    before = storage.requests
    answers = storage.read_ranges(wanted)
    assert [bytes(a) for a in answers] == [objects[f"run/{r.key}"][r.offset : r.offset + r.length] for r in wanted]
    assert (storage.requests - before).gets == 1
    again = storage.requests
    storage.read_ranges(wanted[:-1])
    assert (storage.requests - again).gets == 0
    assert storage.cache_info().hits == 25


def test_bulk_read_returns_existing_objects_only(storage: S3Storage, objects: dict[str, bytes]) -> None:
    keys = [f"events/{n:03}" for n in range(30)]
    assert dict(storage.read_many([*keys, "events/missing"])) == {k: objects[f"run/{k}"] for k in keys}
    assert storage.requests.gets == 31


def test_concurrent_reads_of_one_object_share_a_request(
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


def test_exists_matches_the_exact_key(storage: S3Storage) -> None:
    assert storage.exists("events/001")
    assert not storage.exists("events/00")


@pytest.mark.parametrize("key", ["../other/secret", "events/../../other/secret", "./events/001"])
def test_dot_segments_are_rejected(storage: S3Storage, key: str) -> None:
    with pytest.raises(OutsideRunError, match="points outside the run"):
        storage.read(key)


@pytest.mark.parametrize("key", ["events/ü€😀", "events/a b+c%20d&e", "events/quote'\"<b>"])
def test_special_characters_in_keys(raw: Any, bucket: str, storage: S3Storage, key: str) -> None:
    storage.put(key, key.encode())
    assert storage.read(key) == key.encode()
    assert key in storage.list("events/")
    assert raw.get_object(Bucket=bucket, Key=f"run/{key}")["Body"].read() == key.encode()


def test_range_past_the_end_is_an_error(storage: S3Storage) -> None:
    with pytest.raises(
        TruncatedDataError, match=r"events/000', byte 4000: truncated data: expected 2000 bytes, got 1000"
    ):
        storage.read_ranges([Range("events/000", 4000, 2000)])
    with pytest.raises(SMDebugError, match="events/001"):
        storage.read_ranges([Range("events/001", 9_000_000, 10)])


def test_too_large_object_is_rejected_before_download(
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


def test_missing_bucket_is_named_in_the_error(raw: Any) -> None:
    store = S3Storage("no-such-bucket-at-all", "run", client=raw)
    with pytest.raises(RunNotFound, match=r"no-such-bucket-at-all.*no such bucket"):
        list(store.list("index/"))
    store.close()


def test_multipart_upload_of_large_objects(storage: S3Storage, tmp_path: Path) -> None:
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


def test_package_client_recovers_from_long_outage(
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
def test_permanent_error_is_reported_once(
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


def test_close_cancels_a_waiting_read(
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


def test_cancelled_read_does_not_cancel_others(
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


def test_no_retry_after_a_long_timeout(
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
def test_listing_without_progress_is_an_error(token: str | None) -> None:
    page = {"Contents": [{"Key": "run/a", "Size": 1}], "IsTruncated": True, "NextContinuationToken": token}
    store = S3Storage("b", "run", client=SimpleNamespace(list_objects_v2=lambda **_: page))
    with pytest.raises(S3Error, match="invalid continuation token"):
        list(store.list(""))


def test_rewritten_object_is_not_read_from_the_disk_cache(raw: Any, bucket: str, tmp_path: Path) -> None:
    for content in (b"first", b"later"):
        raw.put_object(Bucket=bucket, Key="run/train/events.out.tfevents.1", Body=content)
        for _ in range(2):
            store = S3Storage(bucket, "run", client=raw, cache_dir=tmp_path)
            [key] = store.list("")
            assert bytes(store.read_ranges([Range(key, 0, 5)])[0]) == content
            store.close()
        assert store.requests.gets == 0, "the second time it is"
