"""A cluster of two processes for all tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import dask
import pytest

from python.scale.clusters import KEEP_NANNIES


@pytest.fixture(scope="session")
def client() -> Iterator[Any]:
    """A client of two workers, each in a separate process."""
    from distributed import Client, LocalCluster

    with (
        dask.config.set(KEEP_NANNIES),
        dask.config.set({"distributed.admin.tick.limit": "1h", "distributed.worker.memory.terminate": False}),
        LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client
