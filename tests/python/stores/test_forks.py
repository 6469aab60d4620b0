"""Forked processes read what their parents read, while both go on."""

from __future__ import annotations

import os
import select
import signal
import threading
from collections.abc import Callable
from contextlib import closing

import pytest

from faults import campaign
from python.stores.places import Place
from servers import relay
from smdwidgets._core import ObjectStore

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system"),
    pytest.mark.filterwarnings("ignore:This process:DeprecationWarning"),
]
OBJECTS = 30


def in_child(work: Callable[[], str], seconds: float = 60) -> str:
    """Return what a forked process returns."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            said = work()
        except BaseException as error:
            said = repr(error)
        os.write(write, said.encode())
        os._exit(0)
    os.close(write)
    try:
        ready, _, _ = select.select([read], [], [], seconds)
        return os.read(read, 1 << 16).decode() if ready else "nothing: it hangs"
    finally:
        os.close(read)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@pytest.mark.slow
def test_forked_processes_read_equal_bytes(place: Place) -> None:
    """Half of the forks are made while the parent reads."""
    for n in range(OBJECTS):
        place.put(f"run/{n}", bytes([n]) * 1000)
    keys = [f"run/{n}" for n in range(OBJECTS)]
    expected = {key: bytes([n]) * 1000 for n, key in enumerate(keys)}
    forks = campaign.size(4, 20)
    with relay(place.endpoint, 0.005) as far, closing(ObjectStore(*place.core(far))) as store:
        ended, problems = threading.Event(), list[str]()

        def check() -> str:
            if dict(store.get_many(keys, 10_000)) != expected:
                return "other bytes"
            return "equal" if store.get_range("run/7", 5, 5)[0] == b"\x07" * 5 else "other bytes of a range"

        def read() -> None:
            while not ended.is_set():
                if (found := check()) != "equal":
                    problems.append(found)

        assert check() == "equal"
        found = [in_child(check) for _ in range(forks // 2)]
        thread = threading.Thread(target=read)
        thread.start()
        try:
            found += [in_child(check) for _ in range(forks // 2)]
        finally:
            ended.set()
            thread.join()
        assert found == ["equal"] * forks
        assert check() == "equal"
        assert not problems


def test_child_of_a_child(place: Place) -> None:
    place.put("w", b"0123456789")
    with closing(ObjectStore(*place.core())) as store:

        def check() -> str:
            return store.get("w", 100)[0].decode()

        assert check() == "0123456789"
        assert in_child(lambda: check() + in_child(check)) == "0123456789" * 2
        assert check() == "0123456789"
