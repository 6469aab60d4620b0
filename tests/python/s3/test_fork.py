"""A process forks with an open run; parent and child use separate connections."""

from __future__ import annotations

import json
import os
import select
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest

from servers import relay
from smdwidgets.storage import Connection, RemoteStorage
from smdwidgets.storage.protocol import Range

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system"),
    pytest.mark.filterwarnings("ignore:This process:DeprecationWarning"),
]


def in_child(work: Callable[[], Any], meanwhile: Callable[[], Any], seconds: float = 60) -> tuple[Any, Any]:
    """Return what ``work`` returns in a forked process, and ``meanwhile`` in this one."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            said = json.dumps(work())
        except BaseException as error:
            said = json.dumps(repr(error))
        os.write(write, said.encode())
        os._exit(0)
    os.close(write)
    try:
        here = meanwhile()
        ready, _, _ = select.select([read], [], [], seconds)
        return json.loads(os.read(read, 1 << 16)) if ready else "nothing, the child hangs", here
    finally:
        os.close(read)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@pytest.fixture
def store(endpoint: str, bucket: str, raw: Any) -> Any:
    for n in range(20):
        raw.put_object(Bucket=bucket, Key=f"run/a/{n:02}", Body=bytes([n] * 100))
        raw.put_object(Bucket=bucket, Key=f"run/b/{n:02}", Body=bytes([100 + n] * 100))
    with relay(endpoint, 0.005) as far, closing(Connection(endpoint_url=far).storage(f"s3://{bucket}/run")) as opened:
        yield opened


def use(store: RemoteStorage, folder: str) -> list[int]:
    """Make all kinds of requests in a few rounds.

    Return wrong results and their number.
    """
    found = []
    keys = [f"{folder}/{n:02}" for n in range(20)]
    first = 0 if folder == "a" else 100
    for round_ in range(8):
        assert list(store.list(folder + "/")) == keys
        got = dict(store.read_many(keys))
        assert [got[key][0] for key in keys] == [first + n for n in range(20)]
        assert store.exists(f"{folder}/03")
        parts = store.read_ranges([Range(key, round_ * 10, 10) for key in keys])
        found += [bytes(part)[0] - first for part in parts]
        store.prefetch([Range(key, 90, 10) for key in keys])
    return found


@pytest.mark.slow
def test_no_response_goes_to_the_other_process(store: RemoteStorage) -> None:
    use(store, "a")
    # Open boto3 connections for several threads, some of them in use.
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: store.exists(f"a/{n:02}"), range(20)))
    there, here = in_child(lambda: use(store, "b"), lambda: use(store, "a"))
    assert there == here == list(range(20)) * 8
