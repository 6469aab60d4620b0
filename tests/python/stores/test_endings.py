"""Waits end by Ctrl-C and by close(), while servers never answer."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from python.stores.places import Place, Places
from servers import FaultyProxy
from smdwidgets import SaveConfig
from smdwidgets._core import ObjectStore, StoreError
from smdwidgets.numpy import Hook

pytestmark = pytest.mark.slow

REQUESTS = 64

#: Reads from a server that never answers, and says how it ended.
SCRIPT = """
import json, sys
from smdwidgets._core import ObjectStore
url, options = json.loads(sys.argv[1])
store = ObjectStore(url, options)
print("ready", flush=True)
try:
    list(store.get_many([f"run/{n}" for n in range(64)], 1000))
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def wait_until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition never held"
        time.sleep(0.02)


#: Sweeps a run whose server stops answering once the run is open.
SWEEP = """
import sys
import smdwidgets

with smdwidgets.create_trial(sys.argv[1]) as trial:
    trial.steps()
    sweeps = {
        "statistics": lambda: trial.statistics(cache=False, threads=1),
        "reductions": lambda: trial.reductions(threads=1),
        "values": lambda: trial.values(trial.tensor_names(), threads=1),
        "verify": lambda: trial.verify(threads=1),
    }
    print("ready", flush=True)
    sys.stdin.readline()
    try:
        sweeps[sys.argv[2]]()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""
STEPS = 160
#: Requests of a sweep that are in flight before the first one is repeated, at least.
SEVERAL = 8


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sweeps") / "run"
    with Hook(folder, save_all=True, save_config=SaveConfig(save_interval=1)) as hook:
        for step in range(STEPS):
            hook.save_tensor("weight", np.full(10, step, np.float32))
            hook.step()
    return folder


@pytest.mark.skipif(os.name == "nt", reason="signals")
@pytest.mark.parametrize("sweep", ["statistics", "reductions", "values", "verify"])
def test_interrupt_ends_a_sweep_of_a_bucket(stores: Places, written: Path, tmp_path: Path, sweep: str) -> None:
    place = stores.new("moto")
    place.upload(written, "run")
    with FaultyProxy(place.endpoint, dialect=place.scheme) as proxy:
        command = [sys.executable, "-c", SWEEP, place.address("run"), sweep]
        environment = {**os.environ, **place.environment(tmp_path, proxy.endpoint)}
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment) as process:
            try:
                assert process.stdout is not None
                assert process.stdin is not None
                assert process.stdout.readline() == "ready\n"
                # Steps from 100 on: the first request alone may tell what the others are.
                proxy.hanging, proxy.hangs_below = True, "/events/0000000001"
                process.stdin.write("go on\n")
                process.stdin.flush()
                # One thread computes, but several requests wait: one for each connection, or for each block of steps.
                wait_until(lambda: proxy.held >= SEVERAL)
                process.send_signal(signal.SIGINT)
                assert process.stdout.readline() == "interrupted\n"
                assert process.wait(60) == 0
            finally:
                process.kill()


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_interrupt_ends_waits_for_answers_that_never_come(place: Place) -> None:
    with FaultyProxy(place.endpoint, dialect=place.scheme) as proxy:
        proxy.hanging = True
        command = [sys.executable, "-c", SCRIPT, json.dumps(place.core(proxy.endpoint))]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                assert process.stdout.readline() == "ready\n"
                wait_until(lambda: proxy.held >= REQUESTS)
                process.send_signal(signal.SIGINT)
                # The server still holds all requests: only the interrupt can end this wait.
                assert process.stdout.readline() == "interrupted\n"
                assert process.wait(60) == 0
                assert proxy.held == REQUESTS, "nothing was sent again"
            finally:
                process.kill()


def test_close_ends_waits_for_answers_that_never_come(place: Place) -> None:
    with FaultyProxy(place.endpoint, dialect=place.scheme) as proxy:
        proxy.hanging = True
        store = ObjectStore(*place.core(proxy.endpoint))

        def read(n: int) -> str:
            with pytest.raises(StoreError) as raised:
                store.get(f"run/{n}", 1000)
            return str(raised.value.args[1])

        with ThreadPoolExecutor(REQUESTS) as pool:
            waiting = [pool.submit(read, n) for n in range(REQUESTS)]
            wait_until(lambda: proxy.held >= REQUESTS)
            store.close()
            assert [one.result(60) for one in waiting] == ["cancelled"] * REQUESTS


def test_process_ends_while_a_thread_waits(stores: Places) -> None:
    place = stores.new("moto")
    script = """
import json, sys, threading
from smdwidgets._core import ObjectStore
url, options = json.loads(sys.argv[1])
store = ObjectStore(url, options)
threading.Thread(target=lambda: store.get("w", 1000), daemon=True).start()
sys.stdin.readline()
"""
    with FaultyProxy(place.endpoint) as proxy:
        proxy.hanging = True
        command = [sys.executable, "-c", script, json.dumps(place.core(proxy.endpoint))]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            try:
                wait_until(lambda: proxy.held == 1)
                assert process.stdin is not None
                process.stdin.write(b"\n")
                process.stdin.close()
                assert process.wait(60) == 0
            finally:
                process.kill()


def test_no_thread_is_blocked_by_a_wait_in_another(stores: Places) -> None:
    """The interpreter is free while a request waits."""
    place = stores.new("moto")
    with FaultyProxy(place.endpoint) as proxy, closing(ObjectStore(*place.core(proxy.endpoint))) as store:
        proxy.hanging = True

        def read() -> None:
            with pytest.raises(StoreError):
                store.get("w", 1000)

        thread = threading.Thread(target=read)
        thread.start()
        wait_until(lambda: proxy.held == 1)
        assert sum(range(100_000)) == 4_999_950_000
        store.close()
        thread.join(60)
        assert not thread.is_alive()


def test_closed_store_is_an_error(place: Place, tmp_path: Path) -> None:
    store = ObjectStore(*place.core())
    store.close()
    with pytest.raises(StoreError) as raised:
        store.get("w", 1000)
    assert raised.value.args[1] == "cancelled"
