"""The writer queue: order, limits and failures; and the pool of staging memory."""

from __future__ import annotations

import logging
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from smdwidgets.hooks.capture.arrays import Staging, copy_tensor
from smdwidgets.hooks.writing import background as background_module
from smdwidgets.hooks.writing.background import Background


def test_calls_run_in_order_on_another_thread():
    done = []
    with Background(limit=100) as background:
        for i in range(1000):
            background.put(lambda i: done.append((i, threading.current_thread())), i, nbytes=10)
    assert [i for i, _ in done] == list(range(1000))
    assert {thread for _, thread in done} != {threading.current_thread()}


def test_queue_size_in_bytes_is_bounded():
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
    assert thread.is_alive()  # 60 + 30 bytes fit; 30 more do not
    assert waiting == [90]
    gate.set()
    thread.join()
    background.close()
    assert max(waiting) <= 100
    assert background.waiting_bytes == 0


def test_queue_age_is_bounded():
    """While the first item is stuck, items are accepted up to the time limit."""
    gate = threading.Event()
    background = Background(limit=1 << 30, seconds=0.05)
    background.put(gate.wait, nbytes=1)
    background.put(lambda: None, nbytes=1)
    while time.monotonic() - background._waiting[0].since <= 0.05:
        time.sleep(0.01)
    done = []
    thread = threading.Thread(target=lambda: (background.put(lambda: None, nbytes=1), done.append(True)))
    thread.start()
    thread.join(0.2)
    assert thread.is_alive()
    background.put(done.append, "an item without bytes never blocks")
    gate.set()
    thread.join()
    background.close()
    assert done


def test_stuck_writer_blocks_only_at_the_byte_limit(monkeypatch, caplog):
    monkeypatch.setattr(background_module, "_STUCK_AFTER", 0.1)
    gate = threading.Event()
    background = Background(limit=100, seconds=0.01)
    background.put(gate.wait, nbytes=10)
    while time.monotonic() - background._waiting[0].since <= 0.01:
        time.sleep(0.01)
    for _ in range(5):
        background.put(lambda: None, nbytes=10)
    assert background.waiting_bytes == 60
    assert len([record for record in caplog.records if "writer has been stuck" in record.getMessage()]) == 1
    gate.set()
    background.close()
    assert background.waiting_bytes == 0


@pytest.mark.parametrize("calls", [1, 3, 10])
def test_calls_that_do_not_wake_the_thread_are_executed_in_order(calls):
    last, done = threading.Event(), []
    with Background(limit=10, seconds=0.1) as background:
        for number in range(calls):
            background.put(done.append, number, nbytes=1, wakes=False)
        background.put(last.set, wakes=False)
        assert last.wait(60)  # although nothing follows
    assert done == list(range(calls))


def test_waiting_and_closing_execute_calls_that_do_not_wake_the_thread():
    done = []
    with Background(limit=10) as background:
        background.put(done.append, 1, wakes=False)
        background.wait()
        assert done == [1]
        background.put(done.append, 2, wakes=False)
    assert done == [1, 2]


def test_idle_is_called_while_the_queue_is_empty():
    called = threading.Event()
    with Background(limit=10, seconds=0.01, idle=called.set) as background:
        background.start()
        assert called.wait(60)


def test_interrupted_close_can_be_retried(monkeypatch):
    gate, done = threading.Event(), []
    background = Background(limit=100)
    background.put(gate.wait)
    background.put(done.append, 1)
    wait = background._changed.wait
    monkeypatch.setattr(background._changed, "wait", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        background.close()
    monkeypatch.setattr(background._changed, "wait", wait)
    gate.set()
    background.close()
    assert done == [1]


def test_writes_synchronously_if_no_thread_can_start(monkeypatch):
    def refuse(self):
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    done = []
    background = Background(limit=100)
    background.put(done.append, 1, nbytes=10)
    assert done == [1]
    background.wait()
    background.close()


def test_item_larger_than_the_limit_is_accepted_alone():
    done = []
    with Background(limit=10) as background:
        background.put(done.append, 1, nbytes=1000)
        background.put(done.append, 2, nbytes=1000)
    assert done == [1, 2]


def test_failure_is_logged_once_and_later_calls_run(caplog):
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


def test_calls_after_close_are_dropped():
    done = []
    background = Background(limit=10)
    background.close()
    background.put(done.append, 1)
    background.wait()
    assert done == []


def test_limit_must_be_positive():
    with pytest.raises(ValueError, match="room"):
        Background(limit=0)


LARGE = 6 << 20  # more than half a slab, so the tensor gets a separate slab


def test_staging_keeps_at_most_its_limit():
    staging = Staging(limit=10 << 20)
    held = [copy_tensor("x", np.full(LARGE, i, "u1"), staging) for i in range(3)]
    for one in held:
        staging.release(one.slab)
    again = [copy_tensor("x", np.zeros(LARGE, "u1"), staging) for _ in range(3)]
    reused = [any(one.slab is earlier.slab for earlier in held) for one in again]
    assert reused == [True, False, False]  # the limit allows to keep one slab


@pytest.mark.slow
def test_live_tensors_do_not_share_memory():
    staging = Staging(limit=1 << 30)
    rng = np.random.default_rng(0)
    held, seen = [], set()
    for i in range(2000):
        array = rng.integers(
            0, 255, int(rng.choice((0, 1, 63, 5000, 200_000, LARGE), p=(0.1, 0.2, 0.2, 0.3, 0.15, 0.05))), "u1"
        )
        held.append((array, copy_tensor("x", array, staging)))
        seen.add(id(held[-1][1].slab))
        if i % 3 == 2:
            for _ in range(3):
                expected, one = held.pop(int(rng.integers(len(held))))
                assert one.array.tobytes() == expected.tobytes()
                staging.release(one.slab)
    assert len(seen) < 30
    first, second = copy_tensor("a", np.ones(100_000), staging), copy_tensor("b", np.zeros(100_000), staging)
    assert not np.shares_memory(first.array, second.array)


def test_tensors_of_varying_sizes_reuse_memory():
    staging = Staging(limit=1 << 30)
    slabs = []
    for size in (20 << 20, 18 << 20, 15 << 20, 19 << 20):
        slabs.append(copy_tensor("x", np.zeros(size, "u1"), staging).slab)
        staging.release(slabs[-1])
    assert all(slab is slabs[0] for slab in slabs)


def test_staging_is_thread_safe():
    staging = Staging(limit=1 << 30)

    def work(seed):
        rng = np.random.default_rng(seed)
        for _ in range(300):
            array = rng.integers(0, 255, int(rng.integers(1, 100_000)), "u1")
            held = copy_tensor("x", array, staging)
            other = copy_tensor("x", array[::-1], staging)
            assert held.array.tobytes() == array.tobytes()
            staging.release(held.slab)
            assert other.array.tobytes() == array[::-1].tobytes()
            staging.release(other.slab)

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(work, seed) for seed in range(8)]:
            done.result()


def test_nudges_while_calls_are_executed():
    done = []
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # the other thread may run between any two instructions
    try:
        with Background(limit=1000) as background:
            for number in range(20_000):
                background.put(done.append, number)
                background.nudge()
    finally:
        sys.setswitchinterval(before)
    assert done == list(range(20_000))


def test_nudge_wakes_the_thread_for_several_calls_only(monkeypatch):
    monkeypatch.setattr(background_module, "_PATIENCE", 1000.0)
    began, done = threading.Event(), threading.Event()
    with Background(limit=1000) as background:
        background.put(began.set)
        assert began.wait(30)
        background.wait()
        background.put(done.set, wakes=False)
        background.nudge()
        assert not done.is_set()
        for _ in range(20):
            background.put(list, wakes=False)
        background.nudge()
        assert done.wait(30)
