"""A run in a bucket gives the same results as on disk, with a minimum of requests."""

from __future__ import annotations

import json
import math
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
import numpy as np
import pytest

import smdwidgets
from faults import campaign
from fixtures import unpacked
from python.trials.overwriting import check_writes_do_not_reach
from servers import FaultyProxy
from smdwidgets import _core, cli, create_trial, modes
from smdwidgets.exceptions import RunNotFound, SMDebugError, TensorUnavailableForStep
from smdwidgets.numpy import Hook
from smdwidgets.trials import S3Trial

GOLDEN = unpacked("golden")


@contextmanager
def opened(url: str, **options: Any) -> Iterator[S3Trial]:
    trial = smdwidgets.create_trial(url, **options)
    assert isinstance(trial, S3Trial)
    with trial:
        yield trial


def write_run(root: Path, steps: range, tensors: int = 4, workers: int = 1, size: int = 64) -> Path:
    """An ended run of plain tensors."""
    for step in steps:
        for worker in range(workers):
            writer = _core.StepWriter(str(root), step, f"worker_{worker}", 1, step)
            for n in range(tensors):
                value = np.full(size, step * 100 + n + worker / 10, np.float32)
                writer.tensor(f"t{n}", value)
            writer.finish()
    folder = root / "collections" / "000000000"
    folder.mkdir(parents=True, exist_ok=True)
    for worker in range(workers):
        content = f'{{"collections": {{}}, "_meta": {{"num_workers": {workers}}}}}'
        (folder / f"worker_{worker}_collections.json").write_text(content)
    (root / "training_job_end.ts").touch()
    return root


def everything(trial: Any) -> dict[str, Any]:
    """Return everything that a run contains, as plain data."""
    content: dict[str, Any] = {
        "names": trial.tensor_names(),
        "workers": trial.workers(),
        "modes": [mode.name for mode in trial.modes()],
        "collections": sorted(trial.collections()),
    }
    for mode in modes:
        content[f"steps {mode.name}"] = trial.steps(mode)
    for name in trial.tensor_names():
        tensor = trial.tensor(name)
        for step in tensor.steps():
            for worker in tensor.workers(step):
                for ask in (tensor.value, tensor.shape, tensor.reduction_values):
                    try:
                        answer: Any = ask(step, worker=worker)
                    except SMDebugError as error:
                        answer = type(error).__name__
                    if isinstance(answer, dict):
                        answer = {key: np.asarray(value).tobytes() for key, value in answer.items()}
                    elif isinstance(answer, np.ndarray):
                        answer = (answer.dtype.str, answer.shape, answer.tobytes())
                    content[f"{ask.__name__} {name} {step} {worker}"] = answer
    return content


@pytest.mark.parametrize(
    "golden", ["pt_modes", "pt_reductions", "pt_save_shape", "mw_complete", "gaps", "core_strings"]
)
@pytest.mark.slow
def test_golden_runs_give_the_same_results_from_a_bucket(
    golden: str, endpoint: str, bucket: str, upload: Callable[[Path, str, str], None]
) -> None:
    run = GOLDEN / golden / "run"
    assert run.is_dir()
    upload(run, bucket, f"jobs/{golden}")
    with opened(f"s3://{bucket}/jobs/{golden}", endpoint_url=endpoint) as far, smdwidgets.create_trial(run) as near:
        assert far.name == golden
        assert everything(far) == everything(near)


def test_number_of_requests_for_opening_and_reading(
    endpoint: str,
    bucket: str,
    upload: Callable[[Path, str, str], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("smdwidgets.trials.smdebug.remote.UPLOADS_SETTLE", -1.0)
    upload(write_run(tmp_path / "run", range(120), tensors=5), bucket, "run")
    with opened(f"s3://{bucket}/run", endpoint_url=endpoint) as trial:
        assert len(trial.tensor_names()) == 5
        opening = trial.requests
        assert opening.lists == 1 + math.ceil(121 / 1000)
        assert opening.gets == 120 + 1, "one for each index object and the collection file"
        before = trial.requests
        assert [float(trial.tensor(f"t{n}").value(7)[0]) for n in range(5)] == [700, 701, 702, 703, 704]
        assert (trial.requests - before).gets == 1, "all tensors of one step come in one request"
        before = trial.requests
        trial.refresh_data()
        assert (trial.requests - before).lists <= 1
        assert (trial.requests - before).gets == 0
        assert "LIST" in repr(trial.requests)


def test_refresh_of_a_live_run_is_one_listing(
    endpoint: str, bucket: str, raw: Any, upload: Callable[[Path, str, str], None], tmp_path: Path
) -> None:
    root = write_run(tmp_path / "run", range(3))
    (root / "training_job_end.ts").unlink()
    upload(root, bucket, "run")
    with opened(f"s3://{bucket}/run", endpoint_url=endpoint) as trial:
        assert trial.steps() == [0, 1, 2]
        before = trial.requests
        assert trial.steps() == [0, 1, 2]
        spent = trial.requests - before
        assert (spent.lists, spent.gets, spent.heads) == (1, 0, 0)
        newer = write_run(tmp_path / "newer", range(3, 5))
        upload(newer, bucket, "run")
        assert trial.steps() == [0, 1, 2, 3, 4]
        assert float(trial.tensor("t1").value(4)[0]) == 401


def test_late_worker_is_seen(
    endpoint: str, bucket: str, raw: Any, upload: Callable[[Path, str, str], None], tmp_path: Path
) -> None:
    root = write_run(tmp_path / "run", range(4), workers=2)
    (root / "training_job_end.ts").unlink()
    late = [path for path in root.rglob("*000000000001_worker_1*") if path.is_file()]
    contents = {path.relative_to(root).as_posix(): path.read_bytes() for path in late}
    for path in late:
        path.unlink()
    upload(root, bucket, "run")
    with opened(f"s3://{bucket}/run", endpoint_url=endpoint) as trial:
        assert trial.tensor("t0").workers(1) == ["worker_0"]
        for key, content in contents.items():
            raw.put_object(Bucket=bucket, Key=f"run/{key}", Body=content)
        trial.refresh_data()
        assert trial.tensor("t0").workers(1) == ["worker_0", "worker_1"]


def test_run_below_the_path_of_a_sagemaker_job_is_found(
    endpoint: str, bucket: str, upload: Callable[[Path, str, str], None], tmp_path: Path
) -> None:
    upload(write_run(tmp_path / "run", range(2)), bucket, "output/job-1/debug-output")
    with opened(f"s3://{bucket}/output/job-1", endpoint_url=endpoint) as trial:
        assert trial.name == "job-1"
        assert trial.path == f"s3://{bucket}/output/job-1/debug-output"
        assert trial.steps() == [0, 1]


def test_missing_run_error_names_the_searched_prefix(endpoint: str, bucket: str) -> None:
    with pytest.raises(RunNotFound, match=r"nothing/here.*no object has this prefix"):
        smdwidgets.create_trial(f"s3://{bucket}/nothing/here", endpoint_url=endpoint)


@pytest.mark.slow
def test_index_without_events_waits_and_then_fails(
    endpoint: str,
    bucket: str,
    upload: Callable[[Path, str, str], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SMDEBUG_MISSING_EVENT_FILE_RETRY_LIMIT", "1")
    root = write_run(tmp_path / "run", range(2))
    (root / "training_job_end.ts").unlink()
    held_back = root / "events" / "000000000001" / "000000000001_worker_0.tfevents"
    content = held_back.read_bytes()
    held_back.unlink()
    upload(root, bucket, "run")
    with opened(f"s3://{bucket}/run", endpoint_url=endpoint) as trial:
        with pytest.raises(TensorUnavailableForStep, match="t0"):
            trial.tensor("t0").value(1)
        arriving = threading.Timer(
            0.3, lambda: trial.reader.run.storage.put("events/000000000001/000000000001_worker_0.tfevents", content)
        )
        arriving.start()
        assert float(trial.tensor("t0").value(1)[0]) == 100
        arriving.join()


def test_reading_steps_in_order_prefetches(
    endpoint: str,
    bucket: str,
    upload: Callable[[Path, str, str], None],
    tmp_path: Path,
) -> None:
    upload(write_run(tmp_path / "run", range(30)), bucket, "run")
    with (
        FaultyProxy(endpoint, latency=0.02) as proxy,
        opened(f"s3://{bucket}/run", endpoint_url=proxy.endpoint) as trial,
    ):
        tensor = trial.tensor("t2")
        for step in range(30):
            assert float(tensor.value(step)[0]) == step * 100 + 2
            deadline = time.monotonic() + 5
            while step and step < 29 and trial.reader.run.storage._in_flight and time.monotonic() < deadline:
                time.sleep(0.005)
        assert trial.cache_info().hits >= 25, "later steps were there before they were asked for"


def test_bulk_reads_are_one_request_per_step(
    endpoint: str, bucket: str, upload: Callable[[Path, str, str], None], tmp_path: Path
) -> None:
    upload(write_run(tmp_path / "run", range(40)), bucket, "run")
    with opened(f"s3://{bucket}/run", endpoint_url=endpoint) as trial:
        trial.tensor_names()
        before = trial.requests
        columns = trial.reductions(names=["t0", "t3"], reductions=["mean"])
        assert sorted(columns["mean"]) == sorted([s * 100.0 for s in range(40)] + [s * 100.0 + 3 for s in range(40)])
        assert (trial.requests - before).gets == 40
        before = trial.requests
        assert len(trial.values({"t1": list(range(40))})["value"]) == 40
        assert (trial.requests - before).gets == 0


def test_cache_directory_is_shared_between_processes(
    endpoint: str, bucket: str, upload: Callable[[Path, str, str], None], tmp_path: Path
) -> None:
    upload(write_run(tmp_path / "run", range(3)), bucket, "run")
    for first in (True, False):
        with opened(f"s3://{bucket}/run", endpoint_url=endpoint, cache_dir=tmp_path / "cache") as trial:
            trial.tensor_names()
            before = trial.requests
            assert float(trial.tensor("t0").value(2)[0]) == 200
            assert (trial.requests - before).gets == (1 if first else 0)


@pytest.mark.slow
def test_faults_lose_no_step_and_change_no_value(
    endpoint: str,
    bucket: str,
    upload: Callable[[Path, str, str], None],
    tmp_path: Path,
) -> None:
    faults = campaign.size(50, 200)
    root = write_run(tmp_path / "run", range(25), workers=2)
    upload(root, bucket, "run")
    with smdwidgets.create_trial(root) as near:
        truth = everything(near)
    with FaultyProxy(endpoint, seed=11, share=0.2, faults=faults) as proxy:
        rounds = 0
        while proxy.faults_left and rounds < 60:
            rounds += 1
            with opened(f"s3://{bucket}/run", endpoint_url=proxy.endpoint, cache_bytes=0) as trial:
                assert everything(trial) == truth
        assert sum(proxy.played.values()) == faults


def test_sixteen_threads_read_one_trial(
    endpoint: str, bucket: str, upload: Callable[[Path, str, str], None], tmp_path: Path
) -> None:
    upload(write_run(tmp_path / "run", range(20)), bucket, "run")
    with opened(f"s3://{bucket}/run", endpoint_url=endpoint) as trial, ThreadPoolExecutor(16) as pool:
        asked = [(f"t{n}", step) for n in range(4) for step in range(20)]
        values = list(pool.map(lambda ask: float(trial.tensor(ask[0]).value(ask[1])[0]), asked))
        assert values == [step * 100 + int(name[1]) for name, step in asked]


def test_unsupported_arguments_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="endpoint_url requires a run on S3"):
        smdwidgets.create_trial(tmp_path, endpoint_url="http://127.0.0.1:1")
    with pytest.raises(SMDebugError, match=r"s3://bucket/prefix"):
        smdwidgets.create_trial("s3://")


@pytest.mark.slow
def test_pickled_trial_reopens_the_run(
    endpoint: str, bucket: str, raw: Any, upload: Callable[[Path, str, str], None], tmp_path: Path
) -> None:
    upload(write_run(tmp_path / "run", range(3)), bucket, "job/debug-output")
    with opened(f"s3://{bucket}/job", endpoint_url=endpoint, range_steps=(1, None), name="mine") as trial:
        with pickle.loads(pickle.dumps(trial)) as again:
            assert (again.name, again.path, again.steps()) == ("mine", trial.path, [1, 2])
            assert float(again.tensor("t0").value(2)[0]) == 200
        assert float(pickle.loads(pickle.dumps(trial.tensor("t1"))).value(2)[0]) == 201
    with (
        opened(f"s3://{bucket}/job", session=boto3.Session(), endpoint_url=endpoint) as trial,
        pytest.raises(SMDebugError, match="cannot pickle a trial opened with session="),
    ):
        pickle.dumps(trial)


def test_verify_reads_a_bucket(
    endpoint: str,
    bucket: str,
    raw: Any,
    upload: Callable[[Path, str, str], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    root = write_run(tmp_path / "run", range(8))
    upload(root, bucket, "job/debug-output")
    assert cli.main(["verify", f"s3://{bucket}/job", "--json"]) == 0
    output = json.loads(capsys.readouterr().out)
    assert (output["records"], output["steps"], output["faults"]) == (32, 8, [])
    key = "events/000000000005/000000000005_worker_0.tfevents"
    data = bytearray((root / key).read_bytes())
    data[-30] ^= 1
    raw.put_object(Bucket=bucket, Key=f"job/debug-output/{key}", Body=bytes(data))
    assert cli.main(["verify", f"s3://{bucket}/job", "--json"]) == 1
    [fault] = json.loads(capsys.readouterr().out)["faults"]
    assert (fault["file"], fault["step"]) == (key, 5)
    log = _core.version_record(1.0) + _core.scalar_record("loss", 1, 1.0, 0.5)
    raw.put_object(Bucket=bucket, Key="logs/a/events.out.tfevents.1", Body=log)
    assert cli.main(["verify", f"s3://{bucket}/logs", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["bytes"] == len(log)
    assert cli.main(["verify", f"s3://{bucket}/none"]) == 2
    assert "no object has this prefix" in capsys.readouterr().err
    for command in ("runs", "inspect"):
        assert cli.main([command, f"s3://{bucket}/none"]) == 2
        assert "no object has this prefix" in capsys.readouterr().err


@pytest.mark.parametrize("size", [1, 64, 25_000, 1 << 18, 1 << 21])
def test_writing_to_a_value_does_not_change_the_cache(
    endpoint: str, bucket: str, upload: Callable[[Path, str, str], None], tmp_path: Path, size: int
) -> None:
    """In memory or in a directory: the caches contain records as they were received."""
    upload(write_run(tmp_path / "run", range(1, 3), tensors=1, size=size), bucket, "run")
    for cache_dir in (None, tmp_path / "cache"):
        with opened(f"s3://{bucket}/run", endpoint_url=endpoint, cache_dir=cache_dir) as trial:
            weight = trial.tensor("t0")
            check_writes_do_not_reach(lambda: weight.value(2))  # noqa: B023
            check_writes_do_not_reach(lambda: weight.values())  # noqa: B023
            check_writes_do_not_reach(lambda: trial.values("t0")["value"], ["ctypes"])
            check_writes_do_not_reach(lambda: trial.reductions(), ["ctypes"])


def test_run_that_is_overwritten_in_a_bucket_is_a_restart(
    endpoint: str, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("smdwidgets.trials.smdebug.remote._CHECK_REPLACED_EVERY", 0.0)
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    url = f"s3://{bucket}/run"

    def train(values: list[float], overwrite: bool) -> None:
        with Hook(url, overwrite=overwrite, save_all=True) as hook:
            for value in values:
                hook.save_tensor("w", np.full((4, 4), value, np.float32))
                hook.step()

    train([200.0] * 6, overwrite=False)
    with create_trial(url) as trial:
        assert trial.tensor("w").value(0).max() == 200
        assert len(trial.steps()) == 6
        trial.maybe_refresh()
        assert trial.restarts == 0
        time.sleep(1.1)  # write times in a bucket have a resolution of one second
        train([1.0] * 3, overwrite=True)
        deadline = time.monotonic() + 30
        while not trial.restarts and time.monotonic() < deadline:
            trial.maybe_refresh()
            time.sleep(0.05)
        assert trial.restarts == 1
        trial.wait_for_steps([2], timeout=30)
        assert trial.steps() == [0, 1, 2]
        assert trial.tensor("w").value(0).max() == 1
