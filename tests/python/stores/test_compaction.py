"""Compactions of a run in a store while another process changes the run."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import smdwidgets
from python.stores.places import Place
from python.trials.test_manifest import index_path, interrupt, write_index, write_run
from smdwidgets import _core
from smdwidgets.exceptions import CompactionSuperseded
from smdwidgets.numpy import Hook
from smdwidgets.storage import Connection, RemoteStorage
from smdwidgets.trials.smdebug.manifest import MANIFEST_PREFIX, PLACEHOLDER, ROOT
from smdwidgets.trials.smdebug.remote import RemoteRun

STEPS = range(0, 3000, 100)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run", STEPS)


@pytest.fixture
def address(bucket: Place, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A run in a bucket, which programs find by their environment."""
    bucket.upload(run, "jobs/run")
    for name, value in bucket.environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys.modules[RemoteRun.__module__], "WORTHWHILE", len(STEPS))
    return bucket.address("jobs/run")


def change(bucket: Place, run: Path, step: int, tensors: int) -> None:
    """Write another index object of a step."""
    write_index(run, step, tensors=tensors)
    path = index_path(run, step)
    bucket.put(f"jobs/run/{path.relative_to(run).as_posix()}", path.read_bytes())


def while_compacting(address: str, work: Callable[[], object]) -> Any:
    todo = [work]
    return smdwidgets.compact(address, progress=lambda done, of, what: todo and todo.pop()())


def steps_of(address: str, name: str, trust: str) -> list[int]:
    with closing(Connection().storage(address)) as storage:
        run = RemoteRun(storage, trust=trust)  # type: ignore[arg-type]
        run.check()
        run.refresh()
        run.load()
        assert run._manifest.problems == []
        return run.catalog.steps_of(name)


def compacted_files(address: str) -> list[str]:
    with closing(Connection().storage(address)) as storage:
        return [key.removeprefix(MANIFEST_PREFIX) for key in storage.list(MANIFEST_PREFIX)]


@pytest.mark.slow
def test_the_later_of_two_compactions_says_so_and_leaves_nothing(bucket: Place, run: Path, address: str) -> None:
    def other() -> None:
        change(bucket, run, 500, 4)
        assert smdwidgets.compact(address).folders == 3

    with pytest.raises(
        CompactionSuperseded, match="another compaction finished first, and its result is kept"
    ) as raised:
        while_compacting(address, other)
    assert (raised.value.run, raised.value.by_compaction) == (address, True)
    assert len(compacted_files(address)) == 4
    change(bucket, run, 600, 4)

    def again() -> None:
        change(bucket, run, 1500, 4)
        assert smdwidgets.compact(address).written == 2

    with pytest.raises(CompactionSuperseded, match="another compaction finished first"):
        while_compacting(address, again)
    assert len(compacted_files(address)) == 4
    for trust in ("root", "listing", "none"):
        assert steps_of(address, "w3", trust) == [500, 600, 1500]
    assert smdwidgets.compact(address).written == 0


@pytest.mark.parametrize("options", [{"overwrite": True}, {"resume": True}])
@pytest.mark.slow
def test_a_hook_that_changes_a_run_wins_over_a_compaction(address: str, options: dict[str, bool]) -> None:
    for _ in range(2):

        def continued() -> None:
            with Hook(address, **options) as hook:
                hook.save_scalar("other", 0.5)

        with pytest.raises(CompactionSuperseded, match="a hook continued or overwrote the run meanwhile"):
            while_compacting(address, continued)
        assert compacted_files(address) == []
        [step] = steps_of(address, "scalar/other", "root")[-1:]
        assert step == (0 if "overwrite" in options else step)
    smdwidgets.compact(address)
    assert steps_of(address, "scalar/other", "root") == steps_of(address, "scalar/other", "none")


def test_a_compaction_that_was_killed_leaves_a_placeholder(address: str) -> None:
    with pytest.raises(KeyboardInterrupt):
        while_compacting(address, interrupt)
    with closing(Connection().storage(address)) as storage:
        assert storage.read(ROOT).startswith(PLACEHOLDER)
    assert steps_of(address, "w0", "root") == list(STEPS)
    assert smdwidgets.compact(address).written == 3


def test_a_store_that_refuses_conditions(
    address: str, run: Path, bucket: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = RemoteStorage.put
    refused = []

    def refusing(self: RemoteStorage, key: str, data: Any, if_match: str | None = None) -> None:
        if if_match is not None:
            refused.append(key)
            raise self._converted(_core.StoreError(key, "other", "the server answered 501 NotImplemented"))
        put(self, key, data)

    monkeypatch.setattr(RemoteStorage, "put", refusing)
    assert smdwidgets.compact(address).written == 3
    assert refused == [ROOT, ROOT]
    change(bucket, run, 500, 4)
    with pytest.raises(CompactionSuperseded, match="another compaction finished first"):
        while_compacting(address, lambda: smdwidgets.compact(address))
    assert steps_of(address, "w3", "root") == [500]


def test_an_upload_whose_answer_was_lost_is_no_other_compaction(
    address: str, bucket: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = RemoteStorage.put

    def twice(self: RemoteStorage, key: str, data: Any, if_match: str | None = None) -> None:
        put(self, key, data, if_match)
        if if_match is not None:
            put(self, key, data, if_match)

    monkeypatch.setattr(RemoteStorage, "put", twice)
    assert smdwidgets.compact(address).written == 3
    assert steps_of(address, "w0", "root") == list(STEPS)
