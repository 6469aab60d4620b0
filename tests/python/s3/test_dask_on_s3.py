"""Arrays of a run in a bucket: other processes list nothing, and get no secrets."""

from __future__ import annotations

import pickle

import boto3
import dask
import numpy as np
import pytest

import smdwidgets
from python.trials import runs
from servers import CREDENTIALS
from smdwidgets.exceptions import SMDebugError
from smdwidgets.trials import shipping
from smdwidgets.trials.shipping import pack, use_storage_options

pytestmark = pytest.mark.slow

RNG = np.random.default_rng(17)


@pytest.fixture
def url(tmp_path, bucket, upload):
    """A run below SageMaker's folder."""
    runs.collections(tmp_path / "job")
    for step in range(6):
        values = {"w": RNG.normal(size=(64, 100)).astype(np.float32), "loss": np.float64(step)}
        runs.step(tmp_path / "job", step, values)
    upload(runs.end(tmp_path / "job"), bucket, "job/debug-output")
    return f"s3://{bucket}/job"


@pytest.fixture(autouse=True)
def _nothing_opened():
    shipping._opened.forget()
    yield
    use_storage_options(None)


@pytest.mark.parametrize("verify", ["record", "none"])
def test_values(url, endpoint, verify):
    with smdwidgets.create_trial(url, endpoint_url=endpoint) as trial:
        expected = np.stack([trial.tensor("w").value(step) for step in range(6)])
        lazy = trial.tensor("w").to_dask(chunk_bytes=16 * 400, verify=verify)
        dataset = trial.to_xarray(chunk_bytes=1 << 20)
    assert lazy.compute(scheduler="threads").tobytes() == expected.tobytes()
    assert dataset["w"].compute().values.tobytes() == expected.tobytes()
    assert dataset["loss"].values.tolist() == list(range(6))
    assert (np.diff(dataset["wall_time"].values) >= 0).all()
    opened = list(shipping._opened._runs.values())
    assert len(opened) == 1
    assert opened[0].requests.lists == 0
    assert opened[0].cache_info().limit == 32 << 20  # a worker has little memory


def test_processes(url, endpoint):
    with smdwidgets.create_trial(url, endpoint_url=endpoint) as trial:
        lazy, expected = trial.tensor("w").to_dask(range(2)), [trial.tensor("w").value(step) for step in range(2)]
    with dask.config.set(scheduler="processes", num_workers=1):
        assert lazy.compute().tobytes() == np.stack(expected).tobytes()


def test_credentials_are_not_sent(url, endpoint):
    with smdwidgets.create_trial(url, endpoint_url=endpoint) as trial:
        assert trial.tensor("loss").value(3) == 3
        sent = pickle.dumps([pack(trial.reader), trial.tensor("w").to_dask(), trial.to_xarray()])
    for secret in (CREDENTIALS["AWS_ACCESS_KEY_ID"] + "/", CREDENTIALS["AWS_SECRET_ACCESS_KEY"]):
        assert secret.encode() not in sent


def test_other_processes_take_the_options_that_they_are_given(url, endpoint):
    with smdwidgets.create_trial(url, endpoint_url=endpoint) as trial:
        shipment = pack(trial.reader)
    asked = []

    def options(path):
        asked.append(path)
        return {"endpoint_url": endpoint, "concurrency": 3}

    use_storage_options(options)
    opened = shipment.open()
    assert asked == [f"{url}/debug-output"]
    assert opened.reader.run.storage.concurrency == 3
    assert opened.tensor("loss").value(3) == 3
    use_storage_options({"endpoint_url": "http://127.0.0.1:9"})
    with pytest.raises(SMDebugError):
        shipment.open().tensor("loss").value(3)


def test_a_session_cannot_be_sent(url, endpoint):
    with (
        smdwidgets.create_trial(url, session=boto3.Session(), endpoint_url=endpoint) as trial,
        pytest.raises(SMDebugError, match="cannot pickle a trial opened with session="),
    ):
        trial.tensor("w").to_dask()
