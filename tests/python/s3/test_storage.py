"""The S3 storage against real servers: listing, reading, cost and faults."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from faults import campaign
from servers import FAULTS, FaultyProxy
from smdwidgets.exceptions import OutsideRunError, RunIOError, RunNotFound, SMDebugError, TruncatedDataError
from smdwidgets.storage import Connection, RemoteStorage, StoreError, remote
from smdwidgets.storage.errors import Cancelled
from smdwidgets.storage.protocol import Range


@pytest.fixture
def objects(raw: Any, bucket: str) -> dict[str, bytes]:
    contents = {f"run/events/{n:03}": random.Random(n).randbytes(5000 + n) for n in range(30)}
    contents["other/secret"] = b"not of this run"
    for key, content in contents.items():
        raw.put_object(Bucket=bucket, Key=key, Body=content)
    return contents


@contextmanager
def opened(bucket: str, prefix: str = "run", **settings: Any) -> Iterator[RemoteStorage]:
    with closing(Connection(**settings).storage(f"s3://{bucket}/{prefix}")) as store:
        yield store


@pytest.fixture
def storage(endpoint: str, bucket: str, objects: dict[str, bytes]) -> Any:
    with opened(bucket, endpoint_url=endpoint) as store:
        yield store


def test_listing_starts_after_the_given_key(storage: RemoteStorage) -> None:
    assert list(storage.list("events/", start_after="events/027")) == ["events/028", "events/029"]
    assert storage.requests.lists == 1
    assert len(list(storage.list("events/"))) == 30
    assert next(iter(storage.listing("events/"))).size == 5000


def test_ranges_of_one_object_are_one_request_and_are_cached(storage: RemoteStorage, objects: dict[str, bytes]) -> None:
    wanted = [Range("events/007", at, 100) for at in range(0, 5000, 200)] + [Range("events/008", 0, 0)]
    before = storage.requests
    answers = storage.read_ranges(wanted)
    assert [bytes(a) for a in answers] == [objects[f"run/{r.key}"][r.offset : r.offset + r.length] for r in wanted]
    assert (storage.requests - before).gets == 1
    again = storage.requests
    storage.read_ranges(wanted[:-1])
    assert (storage.requests - again).gets == 0
    assert storage.cache_info().hits == 25


def test_bulk_read_returns_existing_objects_only(storage: RemoteStorage, objects: dict[str, bytes]) -> None:
    keys = [f"events/{n:03}" for n in range(30)]
    assert dict(storage.read_many([*keys, "events/missing"])) == {k: objects[f"run/{k}"] for k in keys}
    assert storage.requests.gets == 31


def test_concurrent_reads_of_one_object_share_a_request(endpoint: str, bucket: str, objects: dict[str, bytes]) -> None:
    with FaultyProxy(endpoint, latency=0.1) as proxy, opened(bucket, endpoint_url=proxy.endpoint) as store:
        wanted = Range("events/003", 10, 50)
        store.prefetch([wanted])
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: bytes(store.read_ranges([wanted])[0]), range(8)))
        assert answers == [objects["run/events/003"][10:60]] * 8
        assert proxy.seen["GET"] == 1


def test_exists_matches_the_exact_key(storage: RemoteStorage) -> None:
    assert storage.exists("events/001")
    assert not storage.exists("events/00")


@pytest.mark.parametrize("key", ["../other/secret", "events/../../other/secret", "./events/001"])
def test_dot_segments_are_rejected(storage: RemoteStorage, key: str) -> None:
    with pytest.raises(OutsideRunError, match="points outside the run"):
        storage.read(key)


@pytest.mark.parametrize("key", ["events/ü€😀", "events/a b+c%20d&e", "events/quote'\"<b>"])
def test_special_characters_in_keys(raw: Any, bucket: str, storage: RemoteStorage, key: str) -> None:
    storage.put(key, key.encode())
    assert storage.read(key) == key.encode()
    assert key in storage.list("events/")
    assert raw.get_object(Bucket=bucket, Key=f"run/{key}")["Body"].read() == key.encode()


def test_range_past_the_end_is_an_error(storage: RemoteStorage) -> None:
    with pytest.raises(
        TruncatedDataError, match=r"events/000', byte 4000: truncated data: expected 2000 bytes, got 1000"
    ):
        storage.read_ranges([Range("events/000", 4000, 2000)])
    with pytest.raises(SMDebugError, match="events/001"):
        storage.read_ranges([Range("events/001", 9_000_000, 10)])


def test_too_large_object_is_rejected_before_download(
    storage: RemoteStorage, objects: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [f"events/{n:03}" for n in range(12)]
    monkeypatch.setattr(remote, "LARGEST_WHOLE", 5010)
    for reading in (lambda: storage.read("events/011"), lambda: dict(storage.read_many(keys))):
        with pytest.raises(RunIOError, match=r"events/011.* larger than 1 GiB"):
            reading()
    assert len(dict(storage.read_many(keys[:10]))) == 10


def test_missing_bucket_is_named_in_the_error(endpoint: str) -> None:
    with (
        opened("no-such-bucket-at-all", endpoint_url=endpoint) as store,
        pytest.raises(RunNotFound, match=r"no-such-bucket-at-all.*no such bucket"),
    ):
        list(store.list("index/"))


@pytest.mark.slow
def test_multipart_upload_of_large_objects(storage: RemoteStorage, tmp_path: Path) -> None:
    content = random.Random(1).randbytes(33 << 20)
    storage.put("events/large", content)
    assert storage.read("events/large") == content
    (tmp_path / "file").write_bytes(content[: 17 << 20])
    storage.put("events/file", tmp_path / "file")
    assert storage.read("events/file") == content[: 17 << 20]


def read_everything(store: RemoteStorage, objects: dict[str, bytes]) -> None:
    keys = [key.removeprefix("run/") for key in objects if key.startswith("run/")]
    for key, data in store.read_many(keys):
        assert data == objects[f"run/{key}"]
    wanted = [Range(key, 100, 4000) for key in keys]
    assert [bytes(a) for a in store.read_ranges(wanted)] == [
        objects[f"run/{r.key}"][r.offset : r.offset + r.length] for r in wanted
    ]
    assert list(store.list("events/")) == keys


@pytest.mark.slow
def test_faults_change_no_byte(endpoint: str, bucket: str, objects: dict[str, bytes]) -> None:
    faults = campaign.size(200, 1000)
    with FaultyProxy(endpoint, seed=7, share=0.25, faults=faults) as proxy:
        rounds = 0
        with opened(bucket, cache_bytes=0, endpoint_url=proxy.endpoint) as store:
            while proxy.faults_left and rounds < 200:
                rounds += 1
                read_everything(store, objects)
            assert sum(proxy.played.values()) == faults
            assert set(proxy.played) == set(FAULTS)
            assert store.requests.retries > 0


def test_few_faults_cost_few_retries(endpoint: str, bucket: str, objects: dict[str, bytes]) -> None:
    with (
        FaultyProxy(endpoint, seed=1, share=0.05, faults=5) as proxy,
        opened(bucket, cache_bytes=0, endpoint_url=proxy.endpoint) as store,
    ):
        read_everything(store, objects)
        read_everything(store, objects)
        assert sum(proxy.played.values()) == 5


@pytest.mark.parametrize(
    ("status", "code", "kind", "says"),
    [
        (403, "AccessDenied", "denied", "s3:GetObject"),
        (404, "NoSuchKey", "missing", "no such object"),
    ],
)
def test_permanent_error_is_reported_once(
    endpoint: str,
    bucket: str,
    objects: dict[str, bytes],
    status: int,
    code: str,
    kind: str,
    says: str,
) -> None:
    with FaultyProxy(endpoint) as proxy, opened(bucket, endpoint_url=proxy.endpoint) as store:
        proxy.always = (status, code)
        with pytest.raises(StoreError, match=says) as caught:
            store.read("events/001")
        assert (caught.value.bucket, caught.value.key, caught.value.code) == (bucket, "run/events/001", kind)
        assert code in str(caught.value)
        assert proxy.seen["GET"] == 1, "asked again in vain"


@pytest.mark.parametrize(
    ("status", "code", "says"),
    [(400, "ExpiredToken", "credentials have expired"), (403, "InvalidAccessKeyId", "not accepted")],
)
def test_refused_credentials_are_renewed_at_most_once(
    endpoint: str,
    bucket: str,
    objects: dict[str, bytes],
    status: int,
    code: str,
    says: str,
) -> None:
    with FaultyProxy(endpoint) as proxy, opened(bucket, endpoint_url=proxy.endpoint) as store:
        proxy.always = (status, code)
        with pytest.raises(StoreError, match=says):
            store.read("events/001")
        assert proxy.seen["GET"] <= 2


@pytest.mark.slow
def test_close_cancels_a_waiting_read(endpoint: str, bucket: str, objects: dict[str, bytes]) -> None:
    before = threading.active_count()  # those of earlier tests
    with (
        FaultyProxy(endpoint, latency=0.2) as proxy,
        opened(bucket, concurrency=1, endpoint_url=proxy.endpoint) as store,
    ):
        arriving = store.read_many([f"events/{n:03}" for n in range(30)])
        next(arriving)
        arriving.close()  # type: ignore[attr-defined]
        store.close()
        assert proxy.seen["GET"] < 10
    assert threading.active_count() < before + 10


def test_closing_ends_a_read_of_another_thread(endpoint: str, bucket: str, objects: dict[str, bytes]) -> None:
    with (
        FaultyProxy(endpoint, latency=60) as proxy,
        opened(bucket, endpoint_url=proxy.endpoint) as store,
        ThreadPoolExecutor(1) as pool,
    ):
        waiting = pool.submit(store.read, "events/001")
        while not proxy.seen["GET"]:
            time.sleep(0.01)
        store.close()
        with pytest.raises(Cancelled, match="read cancelled"):
            waiting.result(30)
        proxy.latency = 0


def test_interrupted_read_does_not_interrupt_others(
    endpoint: str, bucket: str, objects: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One thread is interrupted while another waits for the same range."""
    with opened(bucket, endpoint_url=endpoint) as store, ThreadPoolExecutor(2) as pool:
        asked, interrupted = threading.Event(), threading.Event()
        real = store._ask

        def first(request: Any) -> Any:
            monkeypatch.setattr(store, "_ask", real)
            asked.set()
            interrupted.wait(30)
            raise KeyboardInterrupt

        monkeypatch.setattr(store, "_ask", first)
        wanted = [Range("events/003", 10, 50)]
        given_up = pool.submit(store.read_ranges, wanted)
        assert asked.wait(30)
        waiting = pool.submit(store.read_ranges, wanted)
        interrupted.set()
        with pytest.raises(KeyboardInterrupt):
            given_up.result(30)
        assert bytes(waiting.result(30)[0]) == objects["run/events/003"][10:60]


def test_rewritten_object_is_not_read_from_the_disk_cache(endpoint: str, raw: Any, bucket: str, tmp_path: Path) -> None:
    for content in (b"first", b"later"):
        raw.put_object(Bucket=bucket, Key="run/train/events.out.tfevents.1", Body=content)
        for _ in range(2):
            with opened(bucket, cache_dir=tmp_path, endpoint_url=endpoint) as store:
                [key] = store.list("")
                assert bytes(store.read_ranges([Range(key, 0, 5)])[0]) == content
                gets = store.requests.gets
        assert gets == 0, "the second time it is"


def test_pieces_of_an_overwritten_object_leave_the_cache(storage: RemoteStorage, raw: Any, bucket: str) -> None:
    assert bytes(storage.read_ranges([Range("events/000", 0, 10)])[0])
    raw.put_object(Bucket=bucket, Key="run/events/000", Body=b"x" * 100)
    assert bytes(storage.read_ranges([Range("events/000", 20, 10)])[0]) == b"x" * 10
    assert bytes(storage.read_ranges([Range("events/000", 0, 10)])[0]) == b"x" * 10
