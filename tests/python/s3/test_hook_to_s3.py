"""A hook writes the same files to a bucket as to disk, with events before index."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import smdwidgets
from servers import FaultyProxy
from smdwidgets.checks.file import CheckFile
from smdwidgets.exceptions import SMDebugError
from smdwidgets.hooks.writing.bucket import Bucket
from smdwidgets.numpy import Hook
from smdwidgets.signals.file import SignalFile


@pytest.fixture(autouse=True)
def loopback(endpoint: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def train(url: str, steps: int = 3, **options: Any) -> None:
    with Hook(url, save_all=True, save_config=smdwidgets.SaveConfig(save_interval=1), **options) as hook:
        for step in range(steps):
            hook.save_tensor("w", np.full((4, 4), step, np.float32))
            hook.step()


def test_run_written_to_a_bucket_is_readable(bucket: str, tmp_path: Path) -> None:
    train(f"s3://{bucket}/run")
    train(str(tmp_path / "local"))
    with smdwidgets.create_trial(f"s3://{bucket}/run") as far, smdwidgets.create_trial(tmp_path / "local") as near:
        assert far.steps() == near.steps()
        assert far.tensor_names() == near.tensor_names()
        for step in near.steps():
            np.testing.assert_array_equal(far.tensor("w").value(step), near.tensor("w").value(step))
    assert [path.name for path in tmp_path.iterdir()] == ["local"], "nothing is left behind on this machine"


def test_signals_in_a_bucket_are_read_also_after_compacting(bucket: str) -> None:
    with Hook(f"s3://{bucket}/run") as hook:
        for step in range(4):
            hook.save_signal("attention_max", "blocks.0", [step, 2.0 * step])
            hook.save_scalar("loss", 1.0)
            hook.step()
    for compacts in (False, True):
        if compacts:
            smdwidgets.compact(f"s3://{bucket}/run")
        with smdwidgets.create_trial(f"s3://{bucket}/run") as trial:
            assert trial.signal("attention_max/blocks.0").values.tolist() == [[0, 0], [1, 2], [2, 4], [3, 6]]
            assert trial.problems() == []


def test_all_checks_of_a_run_in_a_bucket_are_kept_until_it_is_overwritten(bucket: str, raw: Any) -> None:
    """Each upload once deleted the file, so that only the last check remained."""
    place = Bucket(f"s3://{bucket}/run")
    file = CheckFile(place.folder, "worker_0", place.copy)
    for line in (b"one\n", b"two\n"):
        file.append(line)
    SignalFile(place.folder, "worker_0").append(b"three\n")
    place.close(None)
    assert raw.get_object(Bucket=bucket, Key="run/signals/worker_0.jsonl")["Body"].read() == b"three\n"
    key = "run/checks/worker_0.jsonl"
    assert raw.get_object(Bucket=bucket, Key=key)["Body"].read() == b"one\ntwo\n"
    train(f"s3://{bucket}/run", overwrite=True)
    assert key not in [found["Key"] for found in raw.list_objects_v2(Bucket=bucket)["Contents"]]


def test_events_are_uploaded_before_their_index(
    endpoint: str, bucket: str, raw: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from smdwidgets.storage import RemoteStorage

    put, order = RemoteStorage.put, []

    def noted(self: RemoteStorage, key: str, data: Any) -> None:
        put(self, key, data)
        order.append(key)

    monkeypatch.setattr(RemoteStorage, "put", noted)
    train(f"s3://{bucket}/run", steps=2)
    steps = [key for key in order if key.startswith(("events/", "index/"))]
    assert [key.partition("/")[0] for key in steps] == ["events", "index"] * (len(steps) // 2)
    assert order[-1] == "training_job_end.ts"


def test_used_prefix_is_rejected_overwritten_or_continued(bucket: str) -> None:
    url = f"s3://{bucket}/run"
    train(url)
    with pytest.raises(SMDebugError, match=r"s3://.*already contains a run.*overwrite=True.*resume=True"):
        train(url)
    train(url, resume=True)
    with smdwidgets.create_trial(url) as trial:
        count = len(trial.steps())
        assert count > 3
    train(url, overwrite=True)
    with smdwidgets.create_trial(url) as trial:
        assert len(trial.steps()) < count


@pytest.mark.slow
def test_upload_failures_lose_steps_and_do_not_stop_training(
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
    assert sum("cannot save step" in record.message for record in caplog.records) == 1
    with smdwidgets.create_trial(f"s3://{bucket}/run", endpoint_url=endpoint) as trial:
        values = [float(trial.tensor("w").value(step)[0]) for step in trial.tensor("w").steps()]
    assert len(values) >= 4
    assert values == sorted(set(values))


@pytest.mark.slow
def test_large_steps_use_multipart_uploads(bucket: str) -> None:
    value = np.random.default_rng(0).normal(size=(1100, 2000))
    with Hook(f"s3://{bucket}/run", save_all=True, save_config=smdwidgets.SaveConfig(save_interval=1)) as hook:
        hook.save_tensor("big", value)
        hook.step()
    with smdwidgets.create_trial(f"s3://{bucket}/run") as trial:
        np.testing.assert_array_equal(trial.tensor("big").value(trial.steps()[0]), value)


def test_other_url_schemes_are_rejected() -> None:
    with pytest.raises(SMDebugError, match=r"unsupported URL scheme 'ftp://'"):
        Hook("ftp://bucket/run")
    with pytest.raises(SMDebugError, match=r"invalid out_dir 'https://.*only be read"):
        Hook("https://server/run")


SCRIPT = """
import os, signal, sys, time
import numpy as np
from smdwidgets import CapturePlan
from smdwidgets.numpy import Hook

def main():
    hook = Hook(sys.argv[1], plan=CapturePlan(budget="10GB"))
    for step in range(5):
        hook.save_tensor("w", np.full(3, step), "weights")
        hook.save_tensor("large", np.zeros(3_000_000), "weights")
        hook.step()
    if sys.argv[2] == "exception":
        raise ValueError("loss is NaN")
    if sys.argv[2] == "SIGTERM":
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)

main()
"""


@pytest.mark.parametrize(
    ("how", "status", "end"),
    [
        ("end of the script", 0, "completed"),
        ("exception", 1, "exception (ValueError: loss is NaN)"),
        ("SIGTERM", -signal.SIGTERM, "signal (SIGTERM)"),
    ],
)
@pytest.mark.slow
def test_run_of_a_script_that_never_closes_its_hook(
    how: str, status: int, end: str, bucket: str, endpoint: str, tmp_path: Path
) -> None:
    """Upload at interpreter exit, when no thread pool can be started."""
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    url = f"s3://{bucket}/run"
    done = subprocess.run(
        [sys.executable, script, url, how],
        env={**os.environ, "AWS_ENDPOINT_URL_S3": endpoint},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stderr
    assert "smdwidgets" not in done.stderr
    with smdwidgets.create_trial(url) as trial:
        assert trial.steps() == [0, 1, 2, 3, 4]
        assert trial.tensor("large").value(4).shape == (3_000_000,)
        assert str(trial.run_end()) == end


def test_plan_of_a_run_in_a_bucket_states_which_steps_have_no_values(
    bucket: str, raw: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step looked lost: training had waited for uploads for longer than it trained."""
    from smdwidgets.storage import RemoteStorage

    put = RemoteStorage.put

    def slow(self: RemoteStorage, key: str, data: Any) -> None:
        time.sleep(0.3)
        put(self, key, data)

    monkeypatch.setattr(RemoteStorage, "put", slow)
    plan = smdwidgets.CapturePlan(budget="10GB")
    hook = Hook(f"s3://{bucket}/run", plan=plan, queue_bytes=1_000_000)
    for step in range(8):
        hook.save_tensor("w", np.full(100_000, step), "weights")
        hook.step()
    hook.close()
    key = "run/capture/worker_0/plan.jsonl"
    lines = [json.loads(line) for line in raw.get_object(Bucket=bucket, Key=key)["Body"].read().splitlines()]
    assert lines[0]["change"] == "plan"
    rarer = [line for line in lines if line["change"] == "values"][-1]
    assert rarer["every"] > 8
    with smdwidgets.create_trial(f"s3://{bucket}/run") as trial:
        assert trial.steps() == list(range(rarer["step"]))
        assert trial.problems() == []
    train(f"s3://{bucket}/run", overwrite=True)
    assert key not in [found["Key"] for found in raw.list_objects_v2(Bucket=bucket)["Contents"]]


@pytest.mark.slow
def test_script_that_ends_when_an_upload_in_parts_begins(bucket: str, endpoint: str, tmp_path: Path) -> None:
    """The interpreter refuses new threads from the moment the script ends.

    The main thread says once that it is alive when it is not: the script ends between that question and the upload.
    """
    script = tmp_path / "train.py"
    script.write_text(
        "import threading\n"
        "main_thread = threading.main_thread()\n"
        "is_alive = main_thread.is_alive\n"
        "answers = [True] * 10\n"
        "main_thread.is_alive = lambda: answers.pop() if not is_alive() and answers else is_alive()\n" + SCRIPT
    )
    done = subprocess.run(
        [sys.executable, script, f"s3://{bucket}/run", "end of the script"],
        env={**os.environ, "AWS_ENDPOINT_URL_S3": endpoint},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    with smdwidgets.create_trial(f"s3://{bucket}/run") as trial:
        assert trial.steps() == [0, 1, 2, 3, 4]
        assert str(trial.run_end()) == "completed"


@pytest.mark.parametrize(
    ("content", "end"),
    [(b"", "ended"), (b'{"how": "signal", "detail": "SIGTERM"}', "signal (SIGTERM)"), (b"x" * 100_000, "ended")],
)
@pytest.mark.slow
def test_end_marker_of_any_size(content: bytes, end: str, bucket: str, raw: Any) -> None:
    train(f"s3://{bucket}/run")
    with smdwidgets.create_trial(f"s3://{bucket}/run") as trial:
        assert str(trial.run_end()) == "completed"
    raw.put_object(Bucket=bucket, Key="run/training_job_end.ts", Body=content)
    with smdwidgets.create_trial(f"s3://{bucket}/run") as trial:
        assert str(trial.run_end()) == end
        assert trial.loaded_all_steps
    raw.delete_object(Bucket=bucket, Key="run/training_job_end.ts")
    with smdwidgets.create_trial(f"s3://{bucket}/run") as trial:
        assert trial.run_end() is None
