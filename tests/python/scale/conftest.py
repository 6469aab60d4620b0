"""A cluster of two processes on this machine, for all tests of the folder."""

from __future__ import annotations

from collections.abc import Iterator

import dask
import pytest
from distributed import Client, LocalCluster

from python.scale.clusters import KEEP_NANNIES
from smdwidgets.trials import plans


@pytest.fixture(scope="session")
def cluster() -> Iterator[LocalCluster]:
    with (
        dask.config.set(KEEP_NANNIES),
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
    ):
        yield cluster


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[Client]:
    with Client(cluster, set_as_default=False) as client:
        client.wait_for_workers(2)
        yield client


@pytest.fixture
def many_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut small runs into many parts."""
    monkeypatch.setattr(plans, "AIM", 2e-4)
    monkeypatch.setattr(plans, "LEAST", 2e-4)
