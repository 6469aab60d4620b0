"""A hook writes to a bucket what it would have written to disk, the events of a step before its index."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import smdwidgets
from python.s3.servers import FaultyProxy
from smdwidgets.exceptions import SMDebugError
from smdwidgets.numpy import Hook


@pytest.fixture(autouse=True)
def loopback(endpoint: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def train(url: str, steps: int = 3, **options: Any) -> None:
    with Hook(url, save_all=True, save_config=smdwidgets.SaveConfig(save_interval=1), **options) as hook:
        for step in range(steps):
            hook.save_tensor("w", np.full((4, 4), step, np.float32))
            hook.step()


def test_what_a_hook_wrote_to_a_bucket_is_read_from_it(bucket: str, tmp_path: Path) -> None:
    train(f"s3://{bucket}/run")
    train(str(tmp_path / "local"))
    with smdwidgets.create_trial(f"s3://{bucket}/run") as far, smdwidgets.create_trial(tmp_path / "local") as near:
        assert far.steps() == near.steps()
        assert far.tensor_names() == near.tensor_names()
        for step in near.steps():
            np.testing.assert_array_equal(far.tensor("w").value(step), near.tensor("w").value(step))
    assert [path.name for path in tmp_path.iterdir()] == ["local"], "nothing is left behind on this machine"


def test_events_are_there_before_their_index(
    endpoint: str, bucket: str, raw: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from smdwidgets.storage.s3 import S3Storage

    put, order = S3Storage.put, []

    def noted(self: S3Storage, key: str, data: Any) -> None:
        put(self, key, data)
        order.append(key)

    monkeypatch.setattr(S3Storage, "put", noted)
    train(f"s3://{bucket}/run", steps=2)
    steps = [key for key in order if key.startswith(("events/", "index/"))]
    assert [key.partition("/")[0] for key in steps] == ["events", "index"] * (len(steps) // 2)
    assert order[-1] == "training_job_end.ts"


def test_a_used_prefix_is_refused_overwritten_or_gone_on_with(bucket: str) -> None:
    url = f"s3://{bucket}/run"
    train(url)
    with pytest.raises(SMDebugError, match=r"s3://.*already holds a run.*overwrite=True.*resume=True"):
        train(url)
    train(url, resume=True)
    with smdwidgets.create_trial(url) as trial:
        count = len(trial.steps())
        assert count > 3
    train(url, overwrite=True)
    with smdwidgets.create_trial(url) as trial:
        assert len(trial.steps()) < count


def test_a_bucket_that_refuses_costs_steps_and_not_the_training(
    endpoint: str, bucket: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with FaultyProxy(endpoint) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
        with (
            caplog.at_level(logging.WARNING, "smdwidgets"),
            Hook(f"s3://{bucket}/run", save_all=True, save_config=smdwidgets.SaveConfig(save_interval=1)) as hook,
        ):
            for step in range(6):
                proxy.always = (403, "AccessDenied") if step in {2, 3} else None
                hook.save_tensor("w", np.full(3, step, np.float32))
                hook.step()
                hook.flush()
    assert sum("not saved" in record.message for record in caplog.records) == 1
    with smdwidgets.create_trial(f"s3://{bucket}/run", endpoint_url=endpoint) as trial:
        values = [float(trial.tensor("w").value(step)[0]) for step in trial.tensor("w").steps()]
    assert len(values) >= 4
    assert values == sorted(set(values))


def test_large_steps_go_up_in_parts(bucket: str) -> None:
    value = np.random.default_rng(0).normal(size=(1100, 2000))
    with Hook(f"s3://{bucket}/run", save_all=True, save_config=smdwidgets.SaveConfig(save_interval=1)) as hook:
        hook.save_tensor("big", value)
        hook.step()
    with smdwidgets.create_trial(f"s3://{bucket}/run") as trial:
        np.testing.assert_array_equal(trial.tensor("big").value(trial.steps()[0]), value)


def test_another_scheme_is_refused() -> None:
    with pytest.raises(SMDebugError, match=r"s3://bucket/prefix, not to 'gs://"):
        Hook("gs://bucket/run")
