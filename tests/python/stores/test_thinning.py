"""Deleting the values of old runs in stores, also after a kill."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import smdwidgets
from python.stores.places import Place
from smdwidgets import cli
from smdwidgets._core import ObjectStore
from smdwidgets.exceptions import StepDeleted
from smdwidgets.numpy import Hook
from smdwidgets.retention import Plan, disk_use, plan, store_files
from smdwidgets.retention.store_files import RunChanged, StoreFiles
from smdwidgets.run_end import END_FILE
from smdwidgets.storage.remote import RemoteStorage

STEPS = 12


def values(step: int) -> NDArray[np.float32]:
    return np.random.default_rng(step).normal(size=2048).astype(np.float32)


def save(run: Path, steps: int = STEPS) -> Path:
    """Save a loss and a large tensor at each step, with statistics."""
    with Hook(run, plan=smdwidgets.CapturePlan(budget="1GB", statistics=1, time_share=1.0)) as hook:
        for step in range(steps):
            hook.save_tensor("loss", 1 / (step + 1))
            hook.save_tensor("big", values(step))
            hook.step()
    return run


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("thinning") / "run")


def keys_of(place: Place) -> dict[str, int]:
    with closing(ObjectStore(*place.core())) as store:
        return {key: size for key, size, _, _ in store.list("team/") if "capture/" not in key}


def check(address: str, options: dict[str, Any], steps: int = STEPS) -> set[int]:
    """Check every value of the run, and return the steps that have the large one."""
    with smdwidgets.create_trial(address, **options) as trial:
        assert {step: value.item() for step, value in trial.tensor("loss").values().items()} == {
            step: np.float32(1 / (step + 1)) for step in range(steps)
        }
        kept = trial.tensor("big").steps()
        for step in kept:
            assert np.array_equal(trial.tensor("big").value(step), values(step))
        for step in set(range(steps)) - set(kept):
            with pytest.raises(StepDeleted):
                trial.tensor("big").value(step)
        assert len(trial.statistics("big")["step"]) == steps
        assert trial.problems() == []
    return set(kept)


def test_values_of_a_run_in_a_store_are_deleted(bucket: Place, saved: Path) -> None:
    bucket.upload(saved, "team/run")
    address = bucket.address("team")
    options = {"storage_options": bucket.options()}
    before = keys_of(bucket)
    chosen = plan(address, every=5, **options)
    assert keys_of(bucket) == before
    [one] = chosen.runs
    assert one.size == disk_use(address, **options)[0].size
    opened = smdwidgets.create_trial(f"{address}/run", **options)
    assert chosen.apply() == len(one.steps) == 8
    assert sum(before.values()) - sum(keys_of(bucket).values()) > 0.9 * one.freed
    assert check(f"{address}/run", options) == {0, 5, 10, STEPS - 1}
    # A run that was opened before finds what has moved, and what was deleted.
    assert opened.tensor("loss").value(3) == np.float32(0.25)
    with pytest.raises(StepDeleted):
        opened.tensor("big").value(3)
    opened.close()
    [again] = plan(address, every=5, **options).runs
    assert (again.steps, again.left, again.freed) == ((), (), 0)


def test_the_command_shows_and_deletes(
    s3: Place, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in s3.environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    for run in ("a", "b"):
        s3.upload(saved, f"team/{run}")
    s3.put("team/table/metrics.csv", b"step,loss\n0,1\n")
    address = s3.address("team")
    before = keys_of(s3)
    assert cli.main(["thin", address]) == 0
    assert "Nothing was deleted: --delete deletes" in capsys.readouterr().out
    assert keys_of(s3) == before
    assert cli.main(["thin", address, "--older-than", "1d", "--json"]) == 0
    assert {one["skipped"] for one in json.loads(capsys.readouterr().out)} == {
        "it was written more recently",
        "only runs of hooks are thinned",
    }
    size = sum(before.values())
    assert cli.main(["thin", address, "--budget", f"{size - 3 * 8192}B", "--delete"]) == 0
    assert "would be freed" not in capsys.readouterr().out
    assert sum(keys_of(s3).values()) <= size - 3 * 8192
    assert cli.main(["verify", f"{address}/a"]) == 0
    assert cli.main(["thin", s3.address("tame")]) == 2
    assert "no object has this prefix" in capsys.readouterr().err


class Killed(BaseException):
    """The end of the process."""


@pytest.mark.slow
def test_a_deletion_that_is_killed_at_any_request_is_resumed(
    s3: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_files, "_BATCH", 2)
    options = {"storage_options": s3.options(), "concurrency": 1}
    address, steps = s3.address("team/run"), 5
    s3.upload(save(tmp_path / "run", steps), "team/run")

    def delete_values() -> None:
        plan(address, every=100, keep_findings=False, **options).apply()

    with closing(ObjectStore(*s3.core())) as store:
        content = {key: store.get(key, 1 << 20)[0] for key, *_ in store.list("")}
        delete_values()
        whole = keys_of(s3)
        for killed in itertools.count():
            store.delete([key for key, *_ in store.list("")])
            for key, data in content.items():
                store.put(key, data)
            left = [killed]

            def counted(call: Any, left: list[int] = left) -> Any:
                def request(*args: Any, **kwargs: Any) -> Any:
                    left[0] -= 1
                    if left[0] < 0:
                        raise Killed
                    return call(*args, **kwargs)

                return request

            with monkeypatch.context() as patch:
                patch.setattr(RemoteStorage, "put", counted(RemoteStorage.put))
                patch.setattr(RemoteStorage, "delete", counted(RemoteStorage.delete))
                try:
                    delete_values()
                except Killed:
                    check(address, options, steps)
                else:
                    break
            delete_values()
            assert keys_of(s3) == whole
    # The compacted index twice, what was left, and for both batches their log, their objects, and what is deleted.
    assert killed == 3 + 2 * 1 + 3 * 2 + 2 * 1
    assert check(address, options, steps) == {0, steps - 1}


def test_a_killed_process_is_continued_by_the_command(
    s3: Place, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3.environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    s3.upload(saved, "team/run")
    address = s3.address("team")
    program = (
        "import os, sys\n"
        "from smdwidgets.retention import plan, store_files\n"
        "store_files._BATCH = 2\n"
        "plan(sys.argv[1], every=100).apply(lambda *_: os.kill(os.getpid(), 9))\n"
    )
    done = subprocess.run([sys.executable, "-c", program, address], env=dict(os.environ), check=False)
    assert done.returncode == -signal.SIGKILL
    assert len(check(f"{address}/run", {})) == STEPS - 2
    assert cli.main(["thin", address, "--every", "100", "--delete"]) == 0
    assert check(f"{address}/run", {}) == {0, STEPS - 1}


def test_a_run_that_is_being_written_is_left(s3: Place, saved: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(saved, run)
    (run / END_FILE).unlink()
    s3.upload(run, "team/run")
    options = {"storage_options": s3.options()}
    [one] = plan(s3.address("team"), **options).runs
    assert one.skipped == "it is being written"


def index_object(run: Path) -> tuple[str, bytes]:
    file = max((run / "index").rglob("*.json"))
    return file.relative_to(run).as_posix(), file.read_bytes()


def test_a_run_that_was_written_since_the_plan_is_left(
    s3: Place, saved: Path, caplog: pytest.LogCaptureFixture
) -> None:
    s3.upload(saved, "team/run")
    options = {"storage_options": s3.options()}
    chosen = plan(s3.address("team"), **options)
    key, content = index_object(saved)
    s3.put(f"team/run/{key.replace('00011_', '00012_')}", content)
    before = keys_of(s3)
    assert chosen.apply() == 0
    assert "written since the plan" in caplog.text
    assert keys_of(s3) == before


def test_a_training_that_goes_on_meanwhile_keeps_its_values(
    s3: Place, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"storage_options": s3.options(), "concurrency": 1}
    address = s3.address("team/run")
    monkeypatch.setattr(store_files, "_BATCH", 2)

    def begin(plan: Plan) -> Iterator[int]:
        [one] = plan.runs
        assert one.files is not None
        files = one.files()
        assert files.version() == one.version
        return files.thin(one.steps, one.left, one.every)

    # A hook writes a step again.
    s3.upload(saved, "team/run")
    chosen = plan(address, every=100, **options)
    deleting = begin(chosen)
    next(deleting)
    step = chosen.runs[0].steps[2]
    again = json.dumps(json.loads((saved / step.key).read_bytes()) | {"again": True}).encode()
    s3.put(f"team/run/{step.key}", again)
    with pytest.raises(RunChanged, match=step.key):
        list(deleting)
    check(address, options)
    with closing(ObjectStore(*s3.core())) as store:
        assert store.get(f"team/run/{step.key}", 1 << 20)[0] == again
    # A hook continues the run, which deletes the end marker.
    s3.upload(saved, "team/run")
    deleting = begin(plan(address, every=100, **options))
    next(deleting)
    with closing(ObjectStore(*s3.core())) as store:
        store.delete([f"team/run/{END_FILE}"])
        events = {key for key, *_ in store.list("team/run/events/")}
        with pytest.raises(RunChanged, match="another program writes this run"):
            list(deleting)
        assert events <= {key for key, *_ in store.list("team/run/events/")}


def test_a_damaged_index_object_protects_the_values_that_it_may_name(s3: Place, saved: Path) -> None:
    s3.upload(saved, "team/run")
    options = {"storage_options": s3.options()}
    address = s3.address("team/run")
    plan(address, every=100, **options).apply()
    files = StoreFiles(address, options)
    steps = files.steps()
    s3.put(f"team/run/{steps[3].key}", b"{")
    with closing(StoreFiles(address, options)) as again:
        assert again.left(again.steps()) == []
    with closing(files):
        assert files.left([step for step in steps if step.step != 3]) == []
