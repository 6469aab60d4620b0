"""Kill workers of a cluster in the middle of sweeps.

The results are equal to those of one process: no part is lost, and none is counted twice.
"""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack

import pytest
from distributed import Client, LocalCluster

import smdwidgets
from faults import campaign
from python.scale import runs
from python.scale.same import assert_same
from smdwidgets.trials import plans

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="requires SIGKILL")


@pytest.mark.timeout(3600)
def test_killed_workers_change_no_result(tmp_path, monkeypatch):
    for limit in ("AIM", "LEAST"):
        monkeypatch.setattr(plans, limit, 2e-4)
    trial = smdwidgets.create_trial(runs.write_run(tmp_path / "run"))
    statistics, reductions = trial.statistics(cache=False), trial.reductions(counts=True)
    chance = campaign.rng("lost workers")
    with campaign.tally("lost workers") as counts, ExitStack() as stack:
        client = None
        for number in range(campaign.size(3, 100)):
            client = with_two_workers(stack, client)
            process = chance.choice(sorted(client.run(os.getpid).values()))
            at, calls = chance.randrange(1, 8), []

            def kill(done: int, total: int, process: int = process, at: int = at, calls: list[int] = calls) -> None:
                calls.append(done)
                if len(calls) == at:
                    os.kill(process, signal.SIGKILL)

            if number % 2:
                assert_same(trial.statistics(cache=False, client=client, progress=kill), statistics)
            else:
                assert_same(trial.reductions(counts=True, client=client, progress=kill), reductions)
            assert len(calls) >= at
            counts["kills"] += 1
            counts["parts"] += len(calls)


def with_two_workers(stack: ExitStack, client: Client | None) -> Client:
    """Return a client of two workers.

    It is a new one if the nanny has not restarted the worker that was killed.
    """
    if client is not None:
        try:
            client.wait_for_workers(2, timeout=20)
            return client
        except TimeoutError:
            stack.close()
    cluster = stack.enter_context(
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs="CRITICAL")
    )
    return stack.enter_context(Client(cluster, set_as_default=False))
