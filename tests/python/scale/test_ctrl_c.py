"""Ctrl-C while a cluster sweeps.

The script ends, the workers stop, and the cluster can be used again. Each script is a separate process and the leader
of its group, as one that was started in a terminal.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from distributed import Client

import smdwidgets
from python.scale import clusters, runs
from python.scale.same import assert_same

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not hasattr(os, "killpg"), reason="requires process groups")]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return runs.write_run(tmp_path_factory.mktemp("run"))


@contextmanager
def script(text: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Run a script in a process group until the end of the block."""
    command = [sys.executable, "-c", _COMMON + text, *map(str, arguments)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def line(process: subprocess.Popen[str]) -> str:
    """Return the next line of a script."""
    assert process.stdout is not None
    found = process.stdout.readline().strip()
    if not found:
        assert process.stderr is not None
        raise AssertionError(process.stderr.read())
    return found


_COMMON = """
import sys, time
import smdwidgets
from distributed import Client, LocalCluster
from smdwidgets.executors import Task, executor_of
from smdwidgets.trials import plans

plans.AIM = plans.LEAST = 2e-4

def report(done, total):
    if done < total:
        print("sweeping", flush=True)
        time.sleep(0.05)

def until_cancelled(*, cancel):
    while not cancel.is_set():
        time.sleep(0.01)
    raise KeyboardInterrupt("cancelled")  # as a cancelled sweep of the core does
"""

_OWN_CLUSTER = """
if __name__ == "__main__":
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster, Client(cluster) as client:
        trial = smdwidgets.create_trial(sys.argv[1])
        try:
            trial.statistics(cache=False, client=client, progress=report)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        here = trial.statistics(cache=False)
        again = trial.statistics(cache=False, client=client)
        print(all(again[name].tolist() == here[name].tolist() for name in ("name", "step", "l1", "l2")), flush=True)
"""


def test_terminal_interrupts_the_workers_as_well(run):
    """The workers of a LocalCluster are in the group that the terminal interrupts."""
    with script(_OWN_CLUSTER, run) as process:
        assert line(process) == "sweeping"
        os.killpg(process.pid, signal.SIGINT)
        while (said := line(process)) == "sweeping":
            pass
        assert said == "interrupted"
        assert line(process) == "True"
        assert process.wait() == 0


_SWEEP = """
client = Client(sys.argv[1])
smdwidgets.create_trial(sys.argv[2]).statistics(cache=False, client=client, progress=report)
"""


def test_script_that_does_not_catch_it_ends(run, cluster, client):
    with script(_SWEEP, cluster.scheduler_address, run) as process:
        assert line(process) == "sweeping"
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate()
    assert process.returncode == -signal.SIGINT
    # Dask may report the results of the cancelled tasks that it misses, after the traceback.
    said = [each for each in errors.splitlines() if "Couldn't gather" not in each]
    assert said[-1] == "KeyboardInterrupt"
    assert_usable(run, client)


_TASKS = """
client = Client(sys.argv[1])
tasks = [Task(number, ()) for number in range(40)]
print("running", flush=True)
list(executor_of(client).run(until_cancelled, tasks))
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL], ids=lambda how: how.name)
def test_running_tasks_stop_at_their_next_piece(run, cluster, client, how):
    """Also if the script was killed and could not tell the workers."""
    with script(_TASKS, cluster.scheduler_address) as process:
        workers = client.run(os.getpid)
        while not any(client.processing().values()):
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(how)
        process.wait()
        assert process.returncode == -how
    assert_usable(run, client)
    assert client.run(os.getpid) == workers


_WAITING = """
client = Client(sys.argv[1])
smdwidgets.create_trial(sys.argv[2]).statistics(cache=False, client=client)
"""


def test_wait_for_workers_is_interrupted(run, tmp_path):
    with clusters.scheduler(tmp_path) as (address, _), script(_WAITING, address, run) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == f"the Dask cluster {address} has no workers; waiting for one\n"
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate()
    assert process.returncode == -signal.SIGINT
    assert errors.rstrip().endswith("KeyboardInterrupt")


def assert_usable(run: object, client: Client) -> None:
    """Wait until the workers do nothing, and compare a sweep."""
    while any(client.call_stack().values()) or any(client.processing().values()):
        time.sleep(0.02)
    trial = smdwidgets.create_trial(run)
    assert_same(trial.statistics(cache=False, client=client), trial.statistics(cache=False))
