"""Event objects that change after a run was shipped to other processes."""

from __future__ import annotations

import json
import multiprocessing
import os

import numpy as np
import pytest
from distributed import Client, LocalCluster

import smdwidgets
from python.scale.runs import finish, write_step
from smdwidgets.exceptions import CorruptDataError, RunFileMissing, RunIOError, TruncatedDataError
from smdwidgets.trials import plans
from smdwidgets.trials.shipping import pack

pytestmark = pytest.mark.slow

STEPS = 12


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster:
        yield cluster


@pytest.fixture
def client(cluster, monkeypatch):
    monkeypatch.setattr(plans, "AIM", 1e-3)
    monkeypatch.setattr(plans, "LEAST", 1e-3)
    with Client(cluster, set_as_default=False) as client:
        client.wait_for_workers(2)
        # Reading does not wait for the upload of an object that was deleted.
        client.run(os.environ.update, {"SMDEBUG_MISSING_EVENT_FILE_RETRY_LIMIT": "0"})
        yield client


def values(step, seed, names=("a", "b")):
    rng = np.random.default_rng([seed, step])
    return {name: rng.normal(size=400).astype(np.float32) for name in names}


def event_key(step):
    return f"events/{step:012d}/{step:012d}_worker_0.tfevents"


def without_checksums(root):
    """Write the index files as smdebug does."""
    for path in root.glob("index/*/*.json"):
        index = json.loads(path.read_text())
        for entry in index["tensor_payload"]:
            entry.pop("crc32c")
        path.write_text(json.dumps(index))


@pytest.fixture(params=["checksums", "no checksums"])
def run(request, tmp_path, bucket, upload, endpoint):
    root = tmp_path / "run"
    for step in range(STEPS):
        write_step(root, step, "worker_0", values(step, 0))
    finish(root)
    if request.param != "checksums":
        without_checksums(root)
    upload(root, bucket, "run")
    return request.param


def other_event(tmp_path, step, tensors):
    write_step(tmp_path / "other", step, "worker_0", tensors)
    return (tmp_path / "other" / event_key(step)).read_bytes()


def damaged(content):
    changed = bytearray(content)
    changed[len(changed) // 4] ^= 1
    return bytes(changed)


def rows(table):
    """Return the means by name and step."""
    columns = zip(table["name"].tolist(), table["step"].tolist(), table["mean"].tolist(), strict=True)
    return {(name, step): mean for name, step, mean in columns}


#: Without a checksum in the index, the records of these are like those before, as documented.
UNNOTICED = ("a changed byte", "other values")
#: What happens to an event object, and the errors of its two records.
CHANGES = {
    "deleted": (RunFileMissing, RunFileMissing),
    "empty": ((TruncatedDataError, RunIOError), (TruncatedDataError, RunIOError)),
    # The second record is beyond the end.
    "shorter": (TruncatedDataError, (TruncatedDataError, RunIOError)),
    "longer": (CorruptDataError, CorruptDataError),
    "another step": (CorruptDataError, CorruptDataError),
    "other names": (CorruptDataError, CorruptDataError),
    # These have the length, name and step of the records before, so that only their checksums differ.
    "a changed byte": (CorruptDataError, None),
    "other values": (CorruptDataError, CorruptDataError),
}


@pytest.fixture
def change(run, raw, bucket, tmp_path):
    """Change the event object of a step in one of these ways."""

    def make(how, step):
        key = f"run/{event_key(step)}"
        if how == "deleted":
            raw.delete_object(Bucket=bucket, Key=key)
            return
        before = raw.get_object(Bucket=bucket, Key=key)["Body"].read()
        after = {
            "empty": lambda: b"",
            "shorter": lambda: before[: len(before) // 4],
            "longer": lambda: b"x" * 7 + before,
            "another step": lambda: raw.get_object(Bucket=bucket, Key=f"run/{event_key(step + 1)}")["Body"].read(),
            "other names": lambda: other_event(tmp_path, step, values(step, 1, ("b", "a"))),
            "a changed byte": lambda: damaged(before),
            "other values": lambda: other_event(tmp_path, step, values(step, 1)),
        }[how]()
        assert after != before
        raw.put_object(Bucket=bucket, Key=key, Body=after)

    return make


@pytest.fixture
def trial(run, bucket, endpoint):
    """The run, whose index has been read, and no event object."""
    with smdwidgets.create_trial(f"s3://{bucket}/run", endpoint_url=endpoint) as trial:
        assert trial.steps() == list(range(STEPS))
        yield trial


@pytest.fixture
def expected(bucket, run, endpoint):
    with smdwidgets.create_trial(f"s3://{bucket}/run", endpoint_url=endpoint) as trial:
        found = rows(trial.statistics())
    assert len(found) == 2 * STEPS
    return found


@pytest.fixture
def hows(run):
    """The changes that can be noticed, by the step at which they are made."""
    noticed = [how for how in CHANGES if run == "checksums" or how not in UNNOTICED]
    return dict(enumerate(noticed, STEPS - len(noticed) - 1))


def test_objects_that_change_before_a_cluster_reads_them_are_errors(trial, expected, change, client, hows):
    for step, how in hows.items():
        change(how, step)
    kinds = {(name, step): kind for step, how in hows.items() for name, kind in zip("ab", CHANGES[how], strict=True)}
    failing = {place for place, kind in kinds.items() if kind is not None}
    table = trial.statistics(client=client)
    assert rows(table) == {place: mean for place, mean in expected.items() if place not in failing}
    assert {(error.name, error.step) for error in table.errors} == failing
    for error in table.errors:
        assert isinstance(error.error, kinds[error.name, error.step])
        assert event_key(error.step) in str(error.error)
    assert {(error.name, error.step) for error in trial.verify(client=client).errors} == failing


def test_objects_that_change_during_a_sweep_have_the_value_before_or_an_error(trial, expected, change, client, hows):
    changed = []

    def progress(*_):
        if not changed:
            for step, how in hows.items():
                changed.append(step)
                change(how, step)

    table = trial.statistics(client=client, progress=progress)
    found, failed = rows(table), {(error.name, error.step) for error in table.errors}
    assert changed
    assert found == {place: mean for place, mean in expected.items() if place not in failed}
    assert {step for _, step in failed} <= set(changed)
    assert len(found) + len(failed) == len(expected)


def errors_of(shipment):
    """Read every value of a run in this process; return the errors."""
    trial, errors = shipment.open(), []
    for name in trial.tensor_names():
        for step in trial.steps():
            try:
                trial.tensor(name).value(step)
            except (RunIOError, CorruptDataError, TruncatedDataError) as error:
                errors.append((name, step, type(error).__name__))
    return errors


def test_another_process_that_opens_the_run(run, trial, change, raw, bucket):
    shipment = pack(trial.reader)
    for how, step in (("longer", 3), ("another step", 7)):
        change(how, step)
    # Index objects are not read again.
    raw.delete_object(Bucket=bucket, Key="run/index/000000000/000000000001_worker_0.json")
    raw.put_object(Bucket=bucket, Key="run/index/000000000/000000000002_worker_0.json", Body=b"{")
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        errors = pool.apply(errors_of, (shipment,))
    assert errors == [(name, step, "CorruptDataError") for name in "ab" for step in (3, 7)]
