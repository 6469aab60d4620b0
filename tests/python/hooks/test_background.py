"""The queue in front of the writer: in order, bounded, and nothing that fails there ends a training."""

from __future__ import annotations

import logging
import threading

import numpy as np
import pytest

from smdwidgets.hooks.arrays import Staging, owned
from smdwidgets.hooks.background import Background


def test_calls_are_done_in_order_on_another_thread():
    done = []
    with Background(limit=100) as background:
        for i in range(1000):
            background.put(lambda i: done.append((i, threading.current_thread())), i, nbytes=10)
    assert [i for i, _ in done] == list(range(1000))
    assert {thread for _, thread in done} != {threading.current_thread()}


def test_what_waits_is_bounded():
    gate = threading.Event()
    waiting = []
    background = Background(limit=100)
    background.put(gate.wait, nbytes=60)

    def put():
        for _ in range(3):
            background.put(lambda: None, nbytes=30)
            waiting.append(background.waiting_bytes)

    thread = threading.Thread(target=put)
    thread.start()
    thread.join(0.2)
    assert thread.is_alive()  # 60 + 30 fit, 30 more do not
    assert waiting == [90]
    gate.set()
    thread.join()
    background.close()
    assert max(waiting) <= 100
    assert background.waiting_bytes == 0


def test_one_item_larger_than_the_bound_goes_in_alone():
    done = []
    with Background(limit=10) as background:
        background.put(done.append, 1, nbytes=1000)
        background.put(done.append, 2, nbytes=1000)
    assert done == [1, 2]


def test_a_failure_is_told_once_and_the_rest_is_done(caplog):
    done = []

    def fail():
        raise RuntimeError("no")

    with caplog.at_level(logging.ERROR), Background(limit=10) as background:
        for _ in range(3):
            background.put(fail)
        background.put(done.append, 1)
        background.wait()
        assert done == [1]
    assert len(caplog.records) == 1


def test_what_comes_after_close_is_dropped():
    done = []
    background = Background(limit=10)
    background.close()
    background.put(done.append, 1)
    background.wait()
    assert done == []


def test_a_queue_needs_room():
    with pytest.raises(ValueError, match="room"):
        Background(limit=0)


def test_staging_keeps_no_more_than_its_limit():
    staging = Staging(limit=250_000)
    arrays = [owned("x", np.full(25_000, float(i)), staging) for i in range(3)]
    for held in arrays:
        assert held.buffer is not None
        staging.give_back(held.buffer)
    again = [owned("x", np.zeros(25_000), staging) for _ in range(3)]
    reused = [any(held.buffer is earlier.buffer for earlier in arrays) for held in again]
    assert reused == [True, False, False]  # 200,000 bytes each: one fits
