"""Clusters of all kinds, and what fails in them while a sweep runs."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time

import dask
import numpy as np
import pytest
from distributed import Client, LocalCluster
from distributed.comm import CommClosedError

import smdwidgets
from python.scale import clusters, runs
from python.scale.same import assert_same
from smdwidgets.diagnosis import diagnose_all
from smdwidgets.exceptions import ExecutorError, VersionMismatch
from smdwidgets.executors import ProcessExecutor, Task, dask_sweep, executor_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("many_parts"),
    pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="requires SIGKILL"),
]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return runs.write_run(tmp_path_factory.mktemp("run"))


@pytest.fixture
def trial(run):
    return smdwidgets.create_trial(run)


@pytest.fixture
def remote(tmp_path):
    """A client of a scheduler process without workers."""
    with clusters.scheduler(tmp_path) as (address, _), Client(address, set_as_default=False) as client:
        yield client


@pytest.mark.parametrize(
    "made_of",
    [{"n_workers": 1, "threads_per_worker": 4}, {"n_workers": 2, "threads_per_worker": 2, "processes": False}],
    ids=["threads", "in this process"],
)
def test_workers_with_several_threads(run, trial, made_of):
    with (
        LocalCluster(dashboard_address=":0", **made_of) as cluster,
        Client(cluster, set_as_default=False) as client,
        smdwidgets.use(client),
    ):
        assert executor_of(client).slots == 4
        found = trial.statistics(cache=False), trial.reductions(counts=True), trial.verify()
        # Workers that are threads of this process must not use the cluster themselves.
        several = smdwidgets.check_all([run] * 6, {"AllZero": {"tensor_regex": "t0"}})
        diagnoses = diagnose_all([str(run)] * 6)
        table = trial.to_dask_dataframe(columns="l2", partition_rows=5)
        frame = client.compute(table).result()
    here = trial.statistics(cache=False)
    assert_same(found[0], here)
    assert_same(found[1], trial.reductions(counts=True))
    assert found[2] == trial.verify()
    assert [one.outcomes[0].status for one in several] == ["passed"] * 6
    assert [one.to_json() for one in diagnoses] == [smdwidgets.diagnose(run).to_json()] * 6
    assert frame["l2"].to_numpy().tobytes() == here["l2"].tobytes()


def test_adaptive_cluster_that_begins_without_workers(trial):
    with (
        LocalCluster(n_workers=0, dashboard_address=":0") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        cluster.adapt(minimum=0, maximum=2, interval="50ms")
        assert_same(trial.statistics(cache=False, client=client), trial.statistics(cache=False))


def test_cluster_without_workers_is_reported_and_waited_for(trial, remote, caplog, monkeypatch):
    monkeypatch.setattr(dask_sweep, "_ASK", 0.01)
    found = []
    sweep = threading.Thread(target=lambda: found.append(trial.statistics(cache=False, client=remote)))
    with caplog.at_level(logging.WARNING, "smdwidgets"):
        sweep.start()
        while not caplog.records:
            assert sweep.is_alive()
            time.sleep(0.01)
        assert caplog.messages == [f"the Dask cluster {remote.scheduler.address} has no workers; waiting for one"]
        with clusters.worker(remote):
            sweep.join()
    assert_same(found[0], trial.statistics(cache=False))


def test_wait_for_workers_can_be_cancelled(remote):
    stop = threading.Event()
    executor = executor_of(remote)
    threading.Timer(0.2, stop.set).start()
    with pytest.raises(KeyboardInterrupt):
        list(executor.run(np.add, [Task(0, (1, 2))], stop.is_set))


def test_worker_that_leaves_loses_no_task(remote):
    with clusters.worker(remote), clusters.worker(remote) as leaving:
        executor = executor_of(remote)
        found = {}
        for number, result in executor.run(clusters.pid, [Task(number, (number,)) for number in range(200)]):
            found[number] = result
            if len(found) == 20:
                remote.retire_workers([leaving])
    assert sorted(found) == list(range(200))
    assert len(set(found.values())) == 2


def test_scheduler_that_is_killed_is_an_error(trial, tmp_path):
    with (
        clusters.scheduler(tmp_path) as (address, process),
        Client(address, set_as_default=False, timeout=5) as client,
        clusters.worker(client),
        pytest.raises(ExecutorError, match=r"lost the connection to its scheduler.*call the function again"),
    ):
        trial.statistics(cache=False, client=client, progress=lambda done, total: process.kill())


def test_connection_that_ends_before_the_client_knows_is_an_error(trial, client, monkeypatch):
    def workers(sweep):
        raise CommClosedError("in <TCP (closed)>: ConnectionResetError")

    monkeypatch.setattr(dask_sweep.DaskSweep, "workers", workers)
    with pytest.raises(ExecutorError, match=r"lost the connection to its scheduler \(in <TCP"):
        trial.statistics(cache=False, client=client)


def test_scheduler_that_ended_is_an_error(trial, tmp_path):
    with clusters.scheduler(tmp_path) as (address, process):
        client = Client(address, set_as_default=False, timeout=5)
        process.kill()
        process.wait()
        with pytest.raises(ExecutorError, match=r"lost the connection to its scheduler|Dask client is clos"):
            trial.statistics(cache=False, client=client)
        client.close()


@pytest.mark.parametrize("function", [clusters.die, clusters.fill_memory], ids=lambda function: function.__name__)
def test_part_that_ends_its_workers_is_named(function):
    with (
        dask.config.set(clusters.KEEP_NANNIES | {"distributed.scheduler.allowed-failures": 1}),
        LocalCluster(
            n_workers=1, threads_per_worker=1, memory_limit=clusters.MEMORY_LIMIT, dashboard_address=":0"
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        with pytest.raises(
            ExecutorError, match=r"the workers that ran part 7 of the sweep ended 2 times; .*memory limit"
        ):
            list(executor_of(client).run(function, [Task(7, ())]))
        assert dict(executor_of(client).run(clusters.pid, [Task(1, (1,))]))


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_task_that_would_end_its_process_is_an_error(client, error):
    workers = client.run(os.getpid)
    for executor in (executor_of(client), ProcessExecutor(1)):
        with pytest.raises(ExecutorError, match=rf"the task ended with {error.__name__}\('reason'\)"):
            list(executor.run(clusters.stop, [Task(0, (error,))]))
    assert client.run(os.getpid) == workers


@pytest.mark.parametrize(
    ("preload", "reason"),
    [(clusters.OTHER, r"0\.0\.1"), (clusters.WITHOUT, "no usable smdwidgets .*smdwidgets")],
    ids=["other", "without"],
)
def test_worker_with_another_version_is_named(trial, remote, preload, reason):
    with (
        clusters.worker(remote),
        clusters.worker(remote, "--preload", preload) as wrong,
        pytest.raises(VersionMismatch, match=rf"workers have other versions: {wrong}: {reason}.*; install the same"),
    ):
        trial.statistics(cache=False, client=remote)


@pytest.mark.parametrize(
    ("preload", "reason"),
    [(clusters.OTHER, r"0\.0\.1"), (clusters.WITHOUT, "no usable smdwidgets .*smdwidgets")],
    ids=["other", "without"],
)
def test_worker_with_another_version_that_joins_is_named(trial, remote, preload, reason):
    found = []

    def sweep():
        with pytest.raises(VersionMismatch, match=rf"{reason}.*; install the same") as caught:
            trial.statistics(cache=False, client=remote)
        found.append(caught.value)

    thread = threading.Thread(target=sweep)
    thread.start()
    with clusters.worker(remote, "--preload", preload):
        thread.join()
    assert found


def test_scheduler_without_the_package(trial, tmp_path):
    with (
        clusters.scheduler(tmp_path, "--preload", clusters.WITHOUT) as (address, _),
        Client(address, set_as_default=False) as client,
        clusters.worker(client),
    ):
        assert_same(trial.statistics(cache=False, client=client), trial.statistics(cache=False))


@pytest.mark.parametrize("known", [True, False])
def test_the_number_of_processes_is_that_which_was_asked_for(monkeypatch, known):
    if not known:  # on macOS and Windows
        monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert ProcessExecutor(1).slots == ProcessExecutor(1).workers == 1
    assert 1 <= ProcessExecutor().slots <= os.cpu_count()
