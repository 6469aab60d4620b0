"""The compacted index of runs on real S3 servers."""

from __future__ import annotations

import sys

import pytest

import smdwidgets
from python.trials.test_manifest import index_path, write_index, write_run
from smdwidgets.cli.verify import check
from smdwidgets.exceptions import CompactionSuperseded
from smdwidgets.numpy import Hook
from smdwidgets.run_end import END_FILE
from smdwidgets.storage import Connection
from smdwidgets.trials.smdebug.manifest import MANIFEST_PREFIX, ROOT
from smdwidgets.trials.smdebug.remote import RemoteRun

PREFIX = "jobs/run"
STEPS = range(0, 3000, 100)


@pytest.fixture(autouse=True)
def short_runs(monkeypatch):
    """Look for a compacted index of runs with a few index files, too."""
    monkeypatch.setattr(sys.modules[RemoteRun.__module__], "WORTHWHILE", len(STEPS))


@pytest.fixture
def storage(raw, bucket, endpoint):
    """A storage that counts its requests."""
    return Connection(endpoint_url=endpoint).storage(f"s3://{bucket}/{PREFIX}")


@pytest.fixture
def run(tmp_path, upload, bucket):
    """A run in the bucket and its local copy."""
    path = write_run(tmp_path / "run", STEPS)
    upload(path, bucket, PREFIX)
    return path


@pytest.fixture
def address(endpoint, bucket, run, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    return f"s3://{bucket}/{PREFIX}"


def opened(storage, trust="listing"):
    """Load the index of a run; return the catalog, and the number of GETs and LISTs."""
    before = storage.requests
    run = RemoteRun(storage, trust=trust)
    run.check()
    run.refresh()
    run.load()
    after = storage.requests
    return run.catalog, after.gets - before.gets, after.lists - before.lists


def content(catalog):
    return [
        (name, step, place.index_key, place.event_key, place.offset, place.length)
        for name in sorted(catalog.names())
        for step in catalog.steps_of(name)
        if (place := catalog.find(name, step))
    ]


def test_a_run_is_compacted_in_the_bucket(storage, address):
    before, gets, _ = opened(storage)
    assert gets >= len(STEPS)
    done = smdwidgets.compact(address)
    assert (done.path, done.folders, done.written, done.left) == (address, 3, 3, 0)
    assert smdwidgets.compact(address).written == 0
    for trust in ("listing", "root"):
        found, gets, _ = opened(storage, trust)
        assert content(found) == content(before)
        # Three folders and the root file, whose size is not known before.
        assert gets <= 5
    assert opened(storage, "none")[1] >= len(STEPS)
    assert check(address)["faults"] == [
        fault for fault in check(address)["faults"] if "compact" not in fault["message"]
    ]


def test_one_changed_object_rereads_one_folder(storage, address, run, raw, bucket):
    smdwidgets.compact(address)
    write_index(run, 1500, tensors=5)
    raw.upload_file(str(index_path(run, 1500)), bucket, f"{PREFIX}/index/000000001/000000001500_worker_0.json")
    found, gets, _ = opened(storage)
    assert found.steps_of("w4") == [1500]
    in_folder = len(STEPS) // 3
    assert in_folder < gets <= in_folder + 4
    # Without a listing the change is not seen, as documented.
    assert opened(storage, "root")[0].steps_of("w4") == []
    messages = [fault["message"] for fault in check(address)["faults"]]
    assert "the compacted index has another content; run smdwidgets compact" in messages
    assert smdwidgets.compact(address).written == 1
    assert opened(storage, "root")[0].steps_of("w4") == [1500]


def test_steps_behind_the_compacted_index_are_listed(storage, address, run, raw, bucket, upload, tmp_path):
    raw.delete_object(Bucket=bucket, Key=f"{PREFIX}/{END_FILE}")
    assert smdwidgets.compact(address).last_step == 1900
    catalog, gets, lists = opened(storage, "root")
    assert catalog.steps() == list(STEPS)
    # The objects behind the compacted index, its files, and the first object, which shows whether the run is replaced.
    assert gets <= len(STEPS) // 3 + 4
    assert lists <= 4
    trial = smdwidgets.create_trial(address, trust="root")
    assert trial.steps() == list(STEPS)
    more = write_run(tmp_path / "more", range(3000, 3300, 100), ended=False)
    upload(more / "index", bucket, f"{PREFIX}/index")
    assert trial.steps() == [*STEPS, 3000, 3100, 3200]
    assert trial.tensor_names() == ["w0", "w1", "w2"]
    trial.close()


def test_a_locally_compacted_run_can_be_uploaded(storage, address, run, raw, bucket):
    smdwidgets.compact(run)
    for path in (run / MANIFEST_PREFIX).iterdir():
        raw.upload_file(str(path), bucket, f"{PREFIX}/{MANIFEST_PREFIX}{path.name}")
    assert opened(storage)[1] <= 5


def test_concurrent_compactions_are_detected(storage, address):
    with pytest.raises(CompactionSuperseded, match="another compaction finished first"):
        smdwidgets.compact(address, progress=lambda done, of, what: done or smdwidgets.compact(address))
    assert opened(storage, "root")[1] <= 5


@pytest.mark.parametrize("damaged", ["root", "000000001-"])
@pytest.mark.slow
def test_damaged_files_are_not_used(storage, address, raw, bucket, damaged):
    before, _, _ = opened(storage, "none")
    smdwidgets.compact(address)
    [key] = [key for key in storage.list(MANIFEST_PREFIX) if key.startswith(MANIFEST_PREFIX + damaged)]
    key = f"{PREFIX}/{key}"
    data = raw.get_object(Bucket=bucket, Key=key)["Body"].read()
    for body in (None, data[:-5], b"", bytes(len(data))):
        if body is None:
            raw.delete_object(Bucket=bucket, Key=key)
        else:
            raw.put_object(Bucket=bucket, Key=key, Body=body)
        for trust in ("listing", "root"):
            storage.forget()
            assert content(opened(storage, trust)[0]) == content(before)


def test_a_hook_compacts_its_run_and_forgets_that_of_another(bucket, endpoint, monkeypatch, raw):
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    url = f"s3://{bucket}/by-hook"
    with Hook(url, compact=True) as hook:
        hook.save_scalar("loss", 0.5)
    assert smdwidgets.create_trial(url, trust="root").tensor("scalar/loss").value(0) == 0.5
    keys = {found["Key"] for found in raw.list_objects_v2(Bucket=bucket)["Contents"]}
    assert f"by-hook/{ROOT}" in keys
    with Hook(url, overwrite=True) as hook:
        keys = {found["Key"] for found in raw.list_objects_v2(Bucket=bucket).get("Contents", [])}
        assert not [key for key in keys if MANIFEST_PREFIX in key]
        hook.save_scalar("loss", 0.25)
