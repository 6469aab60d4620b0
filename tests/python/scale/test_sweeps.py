"""Sweeps by a cluster or a process pool are equal to local ones bit for bit."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from distributed import Client

import smdwidgets
from python.scale import runs
from python.scale.same import assert_same
from smdwidgets.exceptions import ExecutorError, VersionMismatch
from smdwidgets.executors import ProcessExecutor, Task, current, executor_of

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("many_parts")]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return runs.write_run(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def workers_run(tmp_path_factory):
    return runs.write_workers(tmp_path_factory.mktemp("workers"))


@pytest.fixture(params=["dask", "processes"])
def executor(request):
    return request.getfixturevalue("client") if request.param == "dask" else ProcessExecutor(2)


@pytest.mark.parametrize("worker", [None, "*"])
def test_statistics_are_equal(run, executor, worker):
    trial = smdwidgets.create_trial(run)
    here = trial.statistics(worker=worker, cache=False)
    assert_same(trial.statistics(worker=worker, cache=False, client=executor), here)
    assert np.isfinite(here["update"]).any()


@pytest.mark.parametrize("worker", [None, "*", "worker_1"])
def test_statistics_of_several_workers_are_equal(workers_run, client, worker):
    trial = smdwidgets.create_trial(workers_run)
    here = trial.statistics(worker=worker, cache=False)
    assert_same(trial.statistics(worker=worker, cache=False, client=client), here)


@pytest.mark.parametrize(
    "query",
    [
        {"counts": True},
        {"worker": "*", "reductions": ["min", "abs_mean", "l2"]},
        {"steps": [21, 4, 4, 0, 99], "coverage": True},
        {"names": ["rare3", "rare4"], "reductions": "sum"},
        {"names": ["rare5"]},
        {"mode": "EVAL", "steps": [3, 2]},
        {"names": "text", "reductions": "mean"},
    ],
    ids=str,
)
def test_reductions_are_equal(run, client, query):
    trial = smdwidgets.create_trial(run)
    assert_same(trial.reductions(**query, client=client), trial.reductions(**query))


def test_reductions_of_golden_runs_are_equal(golden_runs, client):
    for path in sorted(folder for folder in golden_runs.iterdir() if (folder / "index").is_dir()):
        trial = smdwidgets.create_trial(path, skip_bad_index=True)
        for worker in (None, "*"):
            assert_same(trial.reductions(worker=worker, client=client), trial.reductions(worker=worker))
            here = trial.statistics(worker=worker, cache=False)
            assert_same(trial.statistics(worker=worker, cache=False, client=client), here)


def test_verify_is_equal_and_lists_a_damaged_record(tmp_path, client):
    root = runs.write_run(tmp_path / "run")
    trial = smdwidgets.create_trial(root)
    assert trial.verify(client=client) == trial.verify()
    runs.damage(root, 12)
    here, there = trial.verify(), trial.verify(client=client)
    assert [str(error) for error in there.errors] == [str(error) for error in here.errors]
    assert there[:3] == here[:3]
    assert [error.step for error in there.errors] == [12]


def test_bad_record_is_one_error_row(tmp_path, client):
    root = runs.write_run(tmp_path / "run")
    runs.damage(root, 12)
    trial = smdwidgets.create_trial(root)
    here = trial.statistics(cache=False)
    assert [error.step for error in here.errors] == [12]
    assert_same(trial.statistics(cache=False, client=client), here)
    assert_same(trial.reductions(client=client), trial.reductions())


def test_progress_ends_with_the_total(run, executor):
    calls = []
    trial = smdwidgets.create_trial(run)
    trial.statistics(
        ["t0", "t1"], cache=False, client=executor, progress=lambda done, total: calls.append((done, total))
    )
    assert len(calls) > 5
    assert calls == sorted(calls)
    assert calls[-1][0] == calls[-1][1] > 0


def test_use_applies_to_all_threads_until_it_is_undone(run, client):
    trial = smdwidgets.create_trial(run)
    here = trial.statistics(cache=False)
    with smdwidgets.use(client):
        assert current() is executor_of(client)
        found = []
        thread = threading.Thread(target=lambda: found.extend([current(), trial.statistics(cache=False)]))
        thread.start()
        thread.join()
        assert found[0] is executor_of(client)
        assert_same(found[1], here)
    assert current() is None
    with pytest.raises(TypeError, match=r"client must be a distributed\.Client"):
        smdwidgets.use("tcp://127.0.0.1:8786")


def test_growing_run_is_swept_as_a_snapshot_that_names_its_last_step(tmp_path, client):
    root = runs.write_run(tmp_path / "run", ended=False)
    trial = smdwidgets.create_trial(root)

    def grow(done: int, total: int) -> None:
        step = trial.steps(show_incomplete_steps=True)[-1] + 1
        if step < 50:
            runs.write_step(root, step, "worker_0", {"t0": np.zeros(3, np.float32)})

    found = trial.statistics(cache=False, client=client, progress=grow)
    assert found.last_step == 29
    assert found["step"].max() == 29
    with trial.refreshing(False):
        assert trial.steps()[-1] > 29
    assert trial.statistics(cache=False, client=client).last_step == 49


def test_killed_process_of_the_pool_changes_no_result(run, monkeypatch):
    from smdwidgets.executors import processes

    trial = smdwidgets.create_trial(run)
    here = trial.statistics("t0", cache=False)
    started = []
    begin = processes._Process.__init__

    def record(self):
        begin(self)
        started.append(self)

    monkeypatch.setattr(processes._Process, "__init__", record)
    killed = []

    def kill(done: int, total: int) -> None:
        if not killed:
            killed.append(started[0]._process.kill())

    assert_same(trial.statistics("t0", cache=False, client=ProcessExecutor(2), progress=kill), here)
    assert len(started) == 3
    assert all(process._process.poll() is not None for process in started)


def test_closed_client_is_an_error(run, cluster):
    trial = smdwidgets.create_trial(run)
    with Client(cluster, set_as_default=False) as client:
        pass
    with pytest.raises(ExecutorError, match="the Dask client is closed; create a client"):
        trial.statistics(cache=False, client=client)


def test_client_that_is_closed_during_a_sweep_is_an_error(run, cluster):
    trial = smdwidgets.create_trial(run)
    client = Client(cluster, set_as_default=False)
    with pytest.raises(ExecutorError, match="the Dask client is clos"):
        trial.statistics(cache=False, client=client, progress=lambda done, total: client.close())


def test_other_version_on_a_worker_is_an_error(run, cluster):
    trial = smdwidgets.create_trial(run)
    with Client(cluster, set_as_default=False) as client:
        [worker, *_] = client.scheduler_info()["workers"]
        version = smdwidgets.__version__
        client.run(_set_version, "0.0.1", workers=[worker])
        try:
            with pytest.raises(VersionMismatch, match=rf"{worker}: 0\.0\.1; install the same version on all"):
                trial.statistics(cache=False, client=client)
        finally:
            client.run(_set_version, version, workers=[worker])


def _set_version(version: str) -> None:
    from smdwidgets import _core

    _core.__version__ = version


_INTERRUPTED = """
import os, signal, sys, threading
import smdwidgets
from distributed import Client
from smdwidgets.executors import DaskExecutor
from smdwidgets.trials import plans

plans.AIM = plans.LEAST = 2e-4
trial = smdwidgets.create_trial(sys.argv[2])
with Client(sys.argv[1]) as client:
    calls = []

    def interrupt(done, total):
        calls.append(done)
        if len(calls) == 2:
            os.kill(os.getpid(), signal.SIGINT)

    try:
        trial.statistics(cache=False, client=client, progress=interrupt)
    except KeyboardInterrupt:
        print("interrupted", len(calls))
"""


def test_ctrl_c_cancels_the_sweep(run, cluster, client):
    program = [sys.executable, "-c", _INTERRUPTED, cluster.scheduler_address, str(run)]
    done = subprocess.run(program, capture_output=True, text=True, check=False, timeout=120)
    assert done.stdout.split()[:1] == ["interrupted"], done.stderr
    assert int(done.stdout.split()[1]) < 10
    wait_until_idle(client)


def wait_until_idle(client: Client) -> None:
    while any(client.processing().values()):
        time.sleep(0.05)


def test_cancelled_sweep_stops_running_tasks(client):
    executor = executor_of(client)
    stop = threading.Event()
    with pytest.raises(KeyboardInterrupt):
        for _ in executor.run(_until_cancelled, [Task(0, ()), Task(1, ())], stop_after(stop)):
            pass
    wait_until_idle(client)  # the tasks end because they are cancelled


def stop_after(stop: threading.Event):
    calls = []

    def cancelled() -> bool:
        calls.append(stop)
        return len(calls) > 3

    return cancelled


def _until_cancelled(*, cancel):
    while not cancel.is_set():
        time.sleep(0.01)


def test_error_of_a_task_is_raised(client):
    for executor in (executor_of(client), ProcessExecutor(2)):
        with pytest.raises(ZeroDivisionError):
            list(executor.run(_divide, [Task(0, (1,)), Task(1, (0,))]))


def _divide(number: int, *, cancel) -> float:
    return 1 / number
