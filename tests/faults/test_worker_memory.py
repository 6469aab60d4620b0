"""The memory of workers that sweep is bounded.

It depends neither on the sizes of tensors nor on that of the run.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from distributed import Client, LocalCluster

import smdwidgets
from faults import campaign
from python.scale import runs
from servers import CREDENTIALS, rclone_server

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="/proc is missing"),
    pytest.mark.timeout(1800),
]

MOST = 256 << 20


def test_tensors_of_64_mb_in_a_directory(tmp_path):
    root = tmp_path / "run"
    value = np.random.default_rng(0).normal(size=8 << 20)
    tensors = {"f64": value, "f32": np.tile(value.astype(np.float32), 2), "f16": np.tile(value.astype(np.float16), 4)}
    for step in range(campaign.size(2, 10)):
        runs.write_step(root, step, "worker_0", tensors)
    smdwidgets.create_trial(runs.finish(root))
    sweep(str(root), "memory of workers, 64 MB")


def test_run_in_a_bucket_with_64_connections(tmp_path, monkeypatch):
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    rng = np.random.default_rng(0)
    for step in range(campaign.size(25, 128)):  # 8 MB each
        tensors = {f"large{at}": rng.random(1 << 19) for at in range(1)}
        tensors |= {f"small{at}": rng.random(1 << 13).astype(np.float32) for at in range(128)}
        runs.write_step(tmp_path / "bucket" / "run", step, "worker_0", tensors)
    runs.finish(tmp_path / "bucket" / "run")
    with rclone_server(tmp_path) as endpoint:
        sweep("s3://bucket/run", "memory of workers, bucket", endpoint_url=endpoint, concurrency=64)


def sweep(path: str, name: str, **options: object) -> None:
    """Sweep a run with two workers, and compare their peaks with the limit."""
    with campaign.tally(name) as counts, two_workers() as client, smdwidgets.create_trial(path, **options) as trial:
        counts["idle MB"] = max(client.run(peak).values()) >> 20
        trial.verify(client=client)
        trial.reductions(client=client)
        found = trial.statistics(cache=False, client=client)
        assert not found.errors
        assert len(found["step"]) == len(trial.tensor_names()) * len(trial.steps())
        counts["records"] = len(found["step"])
        peaks = client.run(peak)
        counts["peak MB"] = max(peaks.values()) >> 20
        assert len(peaks) == 2
        assert max(peaks.values()) <= MOST, peaks


@contextmanager
def two_workers() -> Iterator[Client]:
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


def peak() -> int:
    """Return the peak memory of a worker.

    That of `getrusage` begins with the memory of the process that started it.
    """
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024
