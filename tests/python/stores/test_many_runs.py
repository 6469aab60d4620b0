"""Runs below a prefix of a store: how they are found, and with how many requests."""

from __future__ import annotations

import json
import pickle
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import smdwidgets
from python.stores.places import Place
from smdwidgets import cli
from smdwidgets._core import ObjectStore
from smdwidgets.exceptions import SeveralRuns, SMDebugError
from smdwidgets.numpy import Hook
from smdwidgets.run_end import END_FILE
from smdwidgets.storage import Connection
from smdwidgets.trials import remote_discovery
from smdwidgets.trials.remote_discovery import runs_below, walk

pytestmark = pytest.mark.slow

Written = dict[str, bytes]


def files_below(folder: Path) -> Written:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def hook_files(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """The files of a small run."""
    folder = tmp_path_factory.mktemp("hook")
    with Hook(folder) as hook:
        for step in range(3):
            hook.save_scalar("loss", 1.0 / (1 + step))
            hook.step()
    return files_below(folder)


@pytest.fixture(scope="module")
def log_file(log_runs: Path) -> bytes:
    """A small event file of TensorBoard."""
    return min((path for path in log_runs.rglob("*tfevents*")), key=lambda path: path.stat().st_size).read_bytes()


def put(place: Place, files: Written, *folders: str) -> None:
    put_all(place, {f"{folder}/{key}": content for folder in folders for key, content in files.items()})


def put_all(place: Place, objects: Written) -> None:
    with closing(ObjectStore(*place.core())) as store, ThreadPoolExecutor(8) as pool:
        write = place.put if place.kind == "web" else store.put
        list(pool.map(write, objects, objects.values()))


@pytest.fixture
def mixed(place: Place, hook_files: Written, log_file: bytes) -> str:
    """Runs of hooks, a log, and what only looks like a run."""
    put(place, hook_files, "root/b/run10", "root/b/run9", "root/job/debug-output")
    place.put("root/logs/x/events.out.tfevents.1700000000.host", log_file)
    place.put("root/site/index/page.html", b"<html>")
    place.put("root/site/collections/notes.txt", b"-")
    place.put("root/.trash/index/000000000/x.json", b"{}")
    place.put("root/table/metrics.csv", b"step,loss\n1,2\n")
    return place.address("root")


def settings(place: Place) -> dict[str, Any]:
    options = place.options()
    return {"endpoint_url": options.pop("endpoint_url", None), "storage_options": options}


NAMES = ["b/run9", "b/run10", "job/debug-output", "logs/x", "table"]


def test_runs_of_each_store(place: Place, mixed: str, tmp_path: Path) -> None:
    with closing(Connection(**settings(place)).storage(mixed)) as storage:
        tree = walk(storage)
        assert list(runs_below(storage, tree)) == NAMES
        assert sorted(tree.hooks) == sorted(NAMES[:3])
    trials = smdwidgets.create_trials(mixed, **settings(place))
    assert list(trials) == NAMES
    for name in NAMES[:3]:
        assert trials[name].tensor("scalar/loss").value(1) == 0.5
    for trial in trials.values():
        trial.close()
    with pytest.raises(SeveralRuns, match="b/run9"):
        smdwidgets.create_trial(mixed, **settings(place))
    with smdwidgets.create_trial(f"{mixed}/job", **settings(place)) as trial:
        assert trial.tensor("scalar/loss").value(0) == 1
    with smdwidgets.create_trial(f"{mixed}/logs", **settings(place)) as trial:
        assert len(trial.tensor_names())
    table = smdwidgets.runs(mixed, cache=tmp_path / "runs.sqlite", **settings(place))
    assert [row.name for row in table] == NAMES
    assert [row["kind"] for row in table] == ["smdebug"] * 3 + ["TensorBoard", "table"]
    assert [row.error for row in table] == [None] * 5
    assert [row["steps"] for row in table][:3] == [3] * 3


def test_the_rules_are_those_of_directories(s3: Place, hook_files: Written, log_file: bytes, tmp_path: Path) -> None:
    files = {
        "a/collections/000000000/worker_0_collections.json": b"{}",
        "b/index/000000003/x": b"",
        "c/index/page.html": b"",
        "d/claim_worker_0.smd": b"{}",
        f"e/{END_FILE}": b"",
        "f/g/h/tb/train/events.out.tfevents.1.a": log_file,
        "f/g/h/tb/validation/events.out.tfevents.1.a": log_file,
        "i/events/x.out.tfevents.2.b": log_file,
        "e/tb/events.out.tfevents.1.a": log_file,
    }
    for key, content in files.items():
        (tmp_path / key).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / key).write_bytes(content)
        s3.put(f"root/{key}", content)
    local = smdwidgets.trials.discovery.find_runs(str(tmp_path))
    with closing(Connection(**settings(s3)).storage(s3.address("root"))) as storage:
        assert runs_below(storage, walk(storage)) == local
    assert list(local) == ["a", "b", "d", "e", "f/g/h/tb", "i/events"]


def test_names_of_folders_are_as_they_are(bucket: Place, hook_files: Written) -> None:
    names = ["k", "k%20", "lr=0.1,b=2", "x & y", "é"]
    put(bucket, hook_files, *(f"root/{name}" for name in names))
    trials = smdwidgets.create_trials(bucket.address("root"), **settings(bucket))
    assert sorted(trials) == sorted(names)
    for trial in trials.values():
        assert trial.tensor("scalar/loss").value(1) == 0.5
        trial.close()


def test_200_runs_take_a_listing_each(s3: Place, hook_files: Written) -> None:
    names = [f"runs/{at:03d}" for at in range(200)]
    end = {END_FILE: hook_files[END_FILE], "collections/000000000/worker_0_collections.json": b"{}"}
    put(s3, end, *(f"root/{name}" for name in names))
    # More pages than one.
    put(s3, {f"index/{0:09d}/{step:012d}_worker_0.json": b"{}" for step in range(20)}, "root/runs/007")
    seen: list[tuple[int, int]] = []
    with closing(Connection(**settings(s3)).storage(s3.address("root"))) as storage:
        found = runs_below(storage, walk(storage, lambda *given: seen.append(given)))
        assert list(found) == names
        assert (storage.requests.lists, storage.requests.gets, storage.requests.heads) == (202, 0, 0)
    assert seen[-1][0] == 202


def test_a_folder_of_more_than_a_page(bucket: Place) -> None:
    keys = [f"root/{at:04d}/x" for at in range(1005)] + [f"root/file{at}" for at in range(5)]
    put_all(bucket, dict.fromkeys(keys, b"12"))
    with closing(Connection(**settings(bucket)).storage(bucket.address("root"))) as storage:
        folders, files = storage.folder("")
    assert list(folders) == [f"{at:04d}" for at in range(1005)]
    assert [(file.key, file.size) for file in files] == [(f"file{at}", 2) for at in range(5)]


def test_a_running_run_is_read_again_and_one_that_has_ended_is_not(
    s3: Place, hook_files: Written, tmp_path: Path
) -> None:
    running = {key: content for key, content in hook_files.items() if key != END_FILE}
    put(s3, hook_files, "root/ended")
    put(s3, {key: content for key, content in running.items() if "000000000002" not in key}, "root/running")

    def table() -> Any:
        read: list[int] = []
        found = smdwidgets.runs(
            s3.address("root"), cache=tmp_path / "x.sqlite", progress=lambda done, of: read.append(done), **settings(s3)
        )
        return len(read), [(row.name, row["steps"], row["state"]) for row in found]

    assert table() == (2, [("ended", 3, "ended"), ("running", 2, "running")])
    assert table() == (0, [("ended", 3, "ended"), ("running", 2, "running")])
    put(s3, {key: content for key, content in running.items() if "000000000002" in key}, "root/running")
    assert table() == (1, [("ended", 3, "ended"), ("running", 3, "running")])
    put(s3, {END_FILE: hook_files[END_FILE]}, "root/running")
    assert table() == (1, [("ended", 3, "ended"), ("running", 3, "ended")])


def test_hyperparameters_and_times(s3: Place, hook_files: Written) -> None:
    put(s3, {**hook_files, "hparams.json": json.dumps({"lr": 0.1}).encode()}, "root/a")
    [row] = smdwidgets.runs(s3.address("root"), cache=False, **settings(s3))
    assert row.hparams == {"lr": 0.1}
    assert row["started"] is not None
    assert row["duration"] is not None


def test_diagnose_check_and_command(
    s3: Place, hook_files: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in s3.environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    with Hook(tmp_path / "bad") as hook:
        for step in range(30):
            hook.save_tensor("loss", np.array(np.nan if step > 20 else 1.0), "losses")
            hook.step()
    put(s3, files_below(tmp_path / "bad"), "root/bad")
    put(s3, hook_files, "root/good")
    table = smdwidgets.runs(s3.address("root"), cache=False)
    found = table.diagnose()
    assert [one.run for one in found] == [s3.address("root/bad"), s3.address("root/good")]
    assert found[0].findings
    checked = smdwidgets.check_all([s3.address("root")], ["AllZero"])
    assert sorted(one.run for one in checked) == [s3.address("root/bad"), s3.address("root/good")]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert cli.main(["runs", s3.address("root"), "--json"]) == 0
    assert [row["name"] for row in json.loads(capsys.readouterr().out)] == ["bad", "good"]


def test_secrets_are_not_sent_to_other_processes(s3: Place, hook_files: Written) -> None:
    put(s3, hook_files, "root/a")
    [row] = smdwidgets.runs(s3.address("root"), cache=False, **settings(s3))
    with pytest.raises(SMDebugError, match="cannot pickle a trial opened with secrets in storage_options"):
        pickle.dumps(row.found)


def test_too_many_folders(s3: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for at in range(5):
        s3.put(f"root/{at}/deep/metrics.csv", b"step,loss\n")
    monkeypatch.setattr(remote_discovery, "MOST_FOLDERS", 8)
    with pytest.raises(SMDebugError, match="has more than 8 folders; give the address of a folder below it"):
        smdwidgets.runs(s3.address("root"), cache=False, **settings(s3))
    with pytest.raises(TypeError, match="endpoint_url requires the address of a store"):
        smdwidgets.runs(".", endpoint_url="http://127.0.0.1:1")
