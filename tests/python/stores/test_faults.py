"""Faults of servers and networks change no byte, and every wait ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import pairwise

import pytest

from faults import campaign
from python.stores.places import Place, Places
from servers import FAULTS, FaultyProxy
from smdwidgets._core import ObjectStore, StoreError

pytestmark = pytest.mark.slow

OBJECTS, SIZE = 40, 3000
LIMIT = 1 << 20


def content(n: int) -> bytes:
    return bytes((n * 31 + at * 7) % 251 for at in range(SIZE))


@pytest.fixture
def filled(place: Place) -> Place:
    """A bucket of objects with different contents."""
    for n in range(OBJECTS):
        place.put(f"run/{n:03}", content(n))
    return place


def opened(place: Place, endpoint: str = "", **options: str) -> closing[ObjectStore]:
    url, known = place.core(endpoint)
    return closing(ObjectStore(url, {**known, **options}))


def read_everything(store: ObjectStore, *, listing: bool = True) -> int:
    """Read all objects in each way; return the number of wrong results."""
    keys = [f"run/{n:03}" for n in range(OBJECTS)]
    wrong = 0
    if listing:
        wrong += [key for key, *_ in store.list("run/")] != keys
        wrong += [key for key, *_ in store.list("run/", start_after=keys[9])] != keys[10:]
    wrong += dict(store.get_many(keys, LIMIT)) != {key: content(n) for n, key in enumerate(keys)}
    ranges = [(key, n * 10 % 2000, 500) for n, key in enumerate(keys)]
    parts = store.get_ranges(ranges)
    expected = [content(n)[offset : offset + 500] for n, (_, offset, _) in enumerate(ranges)]
    wrong += [None if isinstance(part, StoreError) else part[0] for part in parts] != expected
    wrong += store.get(keys[3], LIMIT)[0] != content(3)
    wrong += (store.head(keys[4]) or (0,))[0] != SIZE
    return wrong


def test_faults_change_no_value(filled: Place) -> None:
    """Of each store, a fifth of the campaign: 200 faults in all, or 1,000."""
    faults = campaign.size(40, 200)
    with (
        campaign.tally(f"store {filled.kind}") as counts,
        FaultyProxy(filled.endpoint, seed=campaign.SEED, share=0.25, faults=faults, dialect=filled.scheme) as proxy,
        opened(filled, proxy.endpoint) as store,
    ):
        wrong = rounds = 0
        while proxy.faults_left and rounds < 50:
            wrong += read_everything(store, listing=filled.kind != "web")
            rounds += 1
        counts.update(faults=sum(proxy.played.values()), wrong=wrong)
        assert (wrong, proxy.faults_left) == (0, 0), proxy.played
        assert set(proxy.played) == set(FAULTS)


def test_faults_lose_no_upload(bucket: Place) -> None:
    faults = campaign.size(10, 50)
    with (
        FaultyProxy(bucket.endpoint, seed=campaign.SEED, share=0.3, faults=faults, dialect=bucket.scheme) as proxy,
        opened(bucket, proxy.endpoint) as store,
    ):
        number = 0
        while proxy.faults_left and number < 500:
            store.put(f"run/{number:03}", content(number))
            number += 1
    with opened(bucket) as store:
        assert dict(store.get_many([f"run/{n:03}" for n in range(number)], LIMIT)) == {
            f"run/{n:03}": content(n) for n in range(number)
        }


def test_request_that_is_never_answered_is_repeated(filled: Place) -> None:
    """The wait is bounded by `read_timeout`, which is 10 s by default.

    The first requests are not answered. A few operations are in flight, so that a busy machine answers the others in
    time.
    """
    key, other = "run/003", "run/004"
    with (
        FaultyProxy(filled.endpoint, kinds=("silent",), share=1.0, faults=4, dialect=filled.scheme) as proxy,
        opened(filled, proxy.endpoint, read_timeout="2") as store,
        ThreadPoolExecutor(4) as pool,
    ):
        whole = pool.submit(store.get, key, LIMIT)
        many = pool.submit(lambda: dict(store.get_many([key, other], LIMIT)))
        ranges = pool.submit(store.get_ranges, [(key, 10, 500), (other, 20, 500)])
        about = pool.submit(store.head, other)
        assert whole.result()[0] == content(3)
        assert many.result() == {key: content(3), other: content(4)}
        parts = [part if isinstance(part, StoreError) else part[0] for part in ranges.result()]
        assert parts == [content(3)[10:510], content(4)[20:520]]
        assert (about.result() or (0,))[0] == SIZE
        assert proxy.held == 4


def test_server_that_never_answers_is_an_error(filled: Place) -> None:
    """The wait for one operation has two bounds.

    They are the number of attempts, and `timeout`, which is 120 s by default.
    """
    with FaultyProxy(filled.endpoint, dialect=filled.scheme) as proxy:
        proxy.hanging = True
        for options in ({"read_timeout": "0.3"}, {"read_timeout": "600", "timeout": "1"}):
            with opened(filled, proxy.endpoint, **options) as store, pytest.raises(StoreError) as raised:
                store.get("run/000", LIMIT)
            assert raised.value.args[:2] == ("run/000", "timeout")
        assert proxy.held > 1, "it was repeated"


def test_stale_listing_is_passed_on_and_hides_no_object_for_good(bucket: Place) -> None:
    bucket.put("run/000", b"0")
    with FaultyProxy(bucket.endpoint, dialect=bucket.scheme) as proxy, opened(bucket, proxy.endpoint) as store:
        assert [key for key, *_ in store.list("run/")] == ["run/000"]
        bucket.put("run/001", b"1")
        proxy.stale = True
        assert [key for key, *_ in store.list("run/")] == ["run/000"]
        assert store.get("run/001", LIMIT)[0] == b"1"
        proxy.stale = False
        assert [key for key, *_ in store.list("run/")] == ["run/000", "run/001"]


def wait_until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition never held"
        time.sleep(0.02)


@pytest.fixture
def readers(stores: Places) -> Iterator[tuple[FaultyProxy, list[BaseException]]]:
    """A proxy to which 64 threads send requests, and what they raised."""
    place = stores.new("moto")
    place.put("w", b"0123456789")
    ended, problems = threading.Event(), list[BaseException]()
    with FaultyProxy(place.endpoint) as proxy, opened(place, proxy.endpoint) as store:

        def read() -> None:
            while not ended.is_set():
                try:
                    assert store.get_range("w", 2, 3)[0] == b"234"
                except BaseException as error:
                    problems.append(error)

        # An answer takes 0.1 s, so that the number in flight, and not this machine, limits the rate.
        proxy.latency = 0.1
        with ThreadPoolExecutor(64) as pool:
            for _ in range(64):
                pool.submit(read)
            yield proxy, problems
            ended.set()


def rate(times: list[float], begin: float, end: float) -> float:
    return sum(begin <= at < end for at in times) / (end - begin)


def test_slow_down_reduces_requests_until_the_server_recovers(
    readers: tuple[FaultyProxy, list[BaseException]],
) -> None:
    """A server that answers SlowDown gets a fifth of the requests or fewer."""
    proxy, problems = readers
    wait_until(lambda: len(proxy.times) > 300)
    before = rate(list(proxy.times), proxy.times[100], time.monotonic())
    proxy.always = (503, "SlowDown")
    began = time.monotonic()

    def now(seconds: float) -> float:
        end = time.monotonic()
        return rate(list(proxy.times), end - seconds, end)

    wait_until(lambda: time.monotonic() > began + 2 and now(2) <= before / 5)
    proxy.always = None
    assert not problems
    # Many requests are in flight again: no bound on the time, because other work slows the machine too.
    wait_until(lambda: now(1) > before / 2)
    assert not problems


def test_pauses_between_repeats_grow(stores: Places) -> None:
    place = stores.new("moto")
    place.put("w", b"0")
    with FaultyProxy(place.endpoint) as proxy, opened(place, proxy.endpoint) as store, ThreadPoolExecutor(1) as pool:
        proxy.always = (503, "SlowDown")
        waiting = pool.submit(store.get, "w", LIMIT)
        wait_until(lambda: len(proxy.times) >= 5)
        proxy.always = None
        assert waiting.result()[0] == b"0"
        pauses = [later - earlier for earlier, later in pairwise(proxy.times)]
        # Each is between a half and the whole of 0.1 s, 0.2 s, 0.4 s ..., and a busy machine adds to it.
        assert all(pause >= 0.05 * 2**at for at, pause in enumerate(pauses)), pauses


def test_server_that_stays_busy_is_an_error(stores: Places) -> None:
    place = stores.new("moto")
    with FaultyProxy(place.endpoint) as proxy, opened(place, proxy.endpoint, timeout="2") as store:
        proxy.always = (503, "SlowDown")
        with pytest.raises(StoreError) as raised:
            store.get("w", LIMIT)
        assert raised.value.args[:2] == ("w", "busy")
