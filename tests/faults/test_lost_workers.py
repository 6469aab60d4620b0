"""Kill workers of a cluster in the middle of sweeps.

The results are equal to those of one process: no part is lost, and none is counted twice.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dask
import pytest
from distributed import Client, LocalCluster

import smdwidgets
from faults import campaign
from python.scale import runs
from python.scale.clusters import KEEP_NANNIES
from python.scale.same import assert_same
from smdwidgets.executors import executor_of
from smdwidgets.rules import RuleRunner
from smdwidgets.trials import Columns, plans

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="requires SIGKILL")

RULES = {"AllZero": {"tensor_regex": ".*"}, "ExplodingTensor": {"tensor_regex": ".*"}}
#: A worker is killed up to so many seconds after the end of a part, which is longer than a part takes.
_LATEST = 0.02


@pytest.mark.timeout(3600)
def test_killed_workers_change_no_result(tmp_path, monkeypatch):
    for limit in ("AIM", "LEAST"):
        monkeypatch.setattr(plans, limit, 2e-4)
    path = runs.write_run(tmp_path / "run", steps=60)
    runs.damage(path, 12)
    trial = smdwidgets.create_trial(path)
    expected = {sweep: sweep(trial, None) for sweep in SWEEPS}
    chance = campaign.rng("lost workers")
    with campaign.tally("lost workers") as counts, two_workers() as client:
        killed: set[int] = set()
        for number in range(campaign.size(4, 100)):
            sweep = SWEEPS[number % len(SWEEPS)]
            killing = Killing(client, chance.choice(living(client, killed)), chance)
            found = sweep(trial, killing)
            killed.add(killing.join())
            same(found, expected[sweep])
            counts["kills"] += 1
            counts["parts"] += killing.parts
            counts[f"sweeps with {sweep.__name__}"] += 1
        living(client, killed)  # closing a cluster whose nanny restarts a worker waits for it


def statistics(trial: Any, client: Any) -> Columns:
    found = trial.statistics(cache=False, client=client)
    assert len(found["step"]) + len(found.errors) == planned(trial, texts=False)
    return found


def reductions(trial: Any, client: Any) -> Columns:
    found = trial.reductions(counts=True, client=client)
    assert len(found["step"]) + len(found.errors) == planned(trial, texts=True)
    return found


def verify(trial: Any, client: Any) -> Any:
    found = trial.verify(client=client)
    assert found.records + len(found.errors) == planned(trial, texts=True)
    assert [error.step for error in found.errors] == [12]
    return found


def check(trial: Any, client: Any) -> list[Any]:
    with smdwidgets.create_trial(trial.path) as fresh:  # a trial keeps the columns of its rules
        runner = RuleRunner(fresh, follow=False, client=client)
        for name, parameters in RULES.items():
            runner.add(name, **parameters)
        runner.start().wait()
        return [(one.name, one.judged, one.message, [str(event) for event in one.firings]) for one in runner]


SWEEPS = [statistics, reductions, verify, check]


def planned(trial: Any, *, texts: bool) -> int:
    """Return the number of records that a sweep reads."""
    return sum(len(trial.tensor(name).steps()) for name in trial.tensor_names() if texts or name != "text")


def same(found: Any, expected: Any) -> None:
    if isinstance(found, Columns):
        assert_same(found, expected)
    else:
        assert str(found) == str(expected)


class Killing:
    """An executor that kills a worker at a random moment of the first sweep."""

    def __init__(self, client: Client, process: int, chance: random.Random) -> None:
        self._executor = executor_of(client)
        self._process = process
        self._after, self._wait = chance.randrange(1, 8), chance.uniform(0, _LATEST)
        self._thread: threading.Thread | None = None
        self.parts = 0

    @property
    def slots(self) -> int:
        return self._executor.slots

    @property
    def workers(self) -> int:
        return self._executor.workers

    def run(self, *arguments: Any) -> Iterator[tuple[int, Any]]:
        numbers: set[int] = set()
        for number, result in self._executor.run(*arguments):
            assert number not in numbers, "counted twice"
            numbers.add(number)
            self.parts += 1
            if self._thread is None and len(numbers) == self._after:
                self._thread = threading.Thread(target=self._kill)
                self._thread.start()
            yield number, result

    def _kill(self) -> None:
        time.sleep(self._wait)
        os.kill(self._process, signal.SIGKILL)

    def join(self) -> int:
        """Return the process that was killed."""
        assert self._thread is not None, self.parts
        self._thread.join()
        return self._process


@contextmanager
def two_workers() -> Iterator[Client]:
    with (
        dask.config.set(KEEP_NANNIES),
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs="CRITICAL") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


def living(client: Client, killed: set[int]) -> list[int]:
    """Wait for two workers, and return their processes.

    The scheduler lists a killed worker until it notices that its connection is closed.
    """
    while True:
        processes = sorted(set(client.run(os.getpid, on_error="ignore").values()) - killed)
        if len(processes) == 2:
            return processes
        time.sleep(0.05)
