"""The storage protocol on a directory, and a run read only through it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from python.trials import golden, runs
from smdwidgets import Trial, create_trial
from smdwidgets.exceptions import OutsideRunError, RunIOError, SMDebugError
from smdwidgets.storage import LocalStorage, Range, Storage
from smdwidgets.trials.smdebug.run import StorageRun


def test_listing_and_reading(tmp_path: Path) -> None:
    runs.run(tmp_path, [0, 999, 1000, 2500])
    storage = LocalStorage(tmp_path)
    assert isinstance(storage, Storage)
    assert storage.url == str(tmp_path)
    keys = list(storage.list(""))
    assert keys == sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file())
    index = [key for key in keys if key.startswith("index/")]
    assert list(storage.list("index/")) == index
    for after in index:
        assert list(storage.list("index/", after)) == [key for key in index if key > after]
    assert list(storage.list("index/", "index/000000000/000000000999`")) == index[2:]
    assert list(storage.list("nothing")) == []
    content = (tmp_path / index[0]).read_bytes()
    assert storage.read(index[0]) == content
    assert storage.read_ranges([Range(index[0], 2, 3), Range(index[0], 5, 10**18), Range(index[0], 10**6, 1)]) == [
        content[2:5],
        content[5:],
        b"",
    ]
    assert dict(storage.read_many([index[0], "gone"])) == {index[0]: content}
    assert storage.exists(index[0])
    assert not storage.exists("index")
    assert storage.age("training_job_end.ts") == pytest.approx(60, abs=30)
    assert storage.age("gone") is None
    with pytest.raises(FileNotFoundError, match="'gone'"):
        storage.read("gone")
    with pytest.raises(RunIOError):
        storage.read("index")


@pytest.mark.parametrize("key", ["../secret", "index/../../secret", "link", "folder/secret", "/etc/hostname"])
def test_keys_outside_the_run(tmp_path: Path, key: str) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "secret").write_text("secret")
    root = tmp_path / "run"
    root.mkdir()
    try:
        (root / "link").symlink_to(tmp_path / "secret")
        (root / "folder").symlink_to(tmp_path / "elsewhere")
    except OSError:
        (root / "link").write_text("no links on this system")
    storage = LocalStorage(root)
    if (root / key).is_symlink() or ".." in key or key.startswith("folder"):
        with pytest.raises(OutsideRunError, match="points outside the run"):
            storage.read(key)
    else:
        with pytest.raises(SMDebugError):
            storage.read(key)


@pytest.mark.parametrize("name", ["pt_modes", "mw_complete", "mw_running", "pt_reductions", "gaps", "many_steps"])
def test_run_through_the_protocol_equals_direct_access(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = golden.run(name, tmp_path)
    local = create_trial(path)
    slow = Trial(StorageRun(LocalStorage(path)), local.name)
    assert slow == local
    assert slow.steps() == local.steps()
    assert slow.modes() == local.modes()
    assert slow.workers() == local.workers()
    assert slow.tensor_names() == local.tensor_names()
    assert slow.collections() == local.collections()
    for tensor_name in local.tensor_names():
        ours, theirs = slow.tensor(tensor_name), local.tensor(tensor_name)
        assert ours.steps() == theirs.steps()
        for step in theirs.steps()[:3]:
            assert ours.reduction_values(step) == theirs.reduction_values(step)
            try:
                value = theirs.value(step)
            except SMDebugError as error:
                with pytest.raises(type(error)):
                    ours.value(step)
            else:
                np.testing.assert_array_equal(ours.value(step), value)
                assert ours.shape(step) == theirs.shape(step)
    fast = local.reductions(reductions=["mean", "abs_max"])
    for column, values in slow.reductions(reductions=["mean", "abs_max"]).items():
        np.testing.assert_array_equal(values, fast[column])
    assert slow.values().num_rows == local.values().num_rows


def test_live_run_through_the_protocol(tmp_path: Path) -> None:
    runs.collections(tmp_path, workers=2)
    trial = Trial(StorageRun(LocalStorage(tmp_path)), "live")
    for step in range(0, 3000, 500):
        for rank in range(2):
            runs.step(tmp_path, step, worker=f"worker_{rank}")
        assert trial.steps()[-1] == step
        assert trial.tensor("x").value(step, worker="worker_1")[0] == step
    runs.end(tmp_path)
    assert trial.steps() == list(range(0, 3000, 500))
