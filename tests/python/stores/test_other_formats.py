"""All formats are read in stores as they are in a directory."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import smdwidgets
from python.stores.places import Place
from smdwidgets import cli
from smdwidgets.exceptions import RunNotFound
from smdwidgets.sources import store_tree
from smdwidgets.trials import SourceTrial, Trial


def settings(place: Place) -> dict[str, Any]:
    options = place.options()
    return {"endpoint_url": options.pop("endpoint_url", None), "storage_options": options}


def values(trial: Trial) -> dict[tuple[str, int], np.ndarray[Any, Any]]:
    return {
        (name, step): np.asarray(trial.tensor(name).value(step))
        for name in trial.tensor_names()
        for step in trial.tensor(name).steps()
    }


def assert_equal(local: Trial, remote: Trial) -> None:
    ours, theirs = values(local), values(remote)
    assert ours.keys() == theirs.keys()
    for key, value in ours.items():
        assert value.dtype == theirs[key].dtype, key
        assert value.tobytes() == theirs[key].tobytes(), key
    assert local.hparams() == remote.hparams()


@pytest.mark.slow
def test_every_format_on_every_store(place: Place, source_runs: Path) -> None:
    place.upload(source_runs, "root")
    local = smdwidgets.create_trials(source_runs)
    remote = smdwidgets.create_trials(place.address("root"), **settings(place))
    assert list(local) == list(remote)
    for name, trial in local.items():
        assert_equal(trial, remote[name])
        remote[name].close()


def test_a_run_a_file_and_a_run_in_a_file(s3: Place, source_runs: Path) -> None:
    s3.upload(source_runs / "keras", "root/keras")
    s3.upload(source_runs / "mlflow", "root/mlflow")
    run = "1d64877db7c0451cbf068603b90468b7"
    for below in ("keras", "keras/training.csv", f"mlflow/mlflow.db/{run}"):
        remote = smdwidgets.create_trial(s3.address(f"root/{below}"), **settings(s3))
        assert isinstance(remote, SourceTrial)
        assert_equal(smdwidgets.create_trial(source_runs / below), remote)
    assert list(smdwidgets.create_trials(s3.address(f"root/mlflow/mlflow.db/{run}"), **settings(s3))) == [run]
    with pytest.raises(RunNotFound, match=r"runs in s3://.*mlflow\.db"):
        smdwidgets.create_trial(s3.address("root/mlflow/mlflow.db/none"), **settings(s3))


def test_a_database_is_copied_once_for_its_runs(s3: Place, source_runs: Path) -> None:
    s3.upload(source_runs / "mlflow", "root")
    trials = smdwidgets.create_trials(s3.address("root/mlflow.db"), **settings(s3))
    assert len(trials) == 2
    copies = {trial._run.tree.local_file("mlflow.db") for trial in trials.values()}  # type: ignore[attr-defined]
    assert len(copies) == 1
    assert len(store_tree._copies) <= store_tree._MOST_COPIES
    for trial in trials.values():
        assert trial.tensor("val_loss").steps() == [20, 50]


def test_weights_are_read_by_ranges(s3: Place, tmp_path: Path) -> None:
    header = {
        f"w{at}": {"dtype": "F32", "shape": [2**18], "data_offsets": [at << 20, (at + 1) << 20]} for at in range(8)
    }
    text = json.dumps(header).encode()
    data = np.arange(8 << 18, dtype="<f4").tobytes()
    s3.put("root/model-20.safetensors", len(text).to_bytes(8, "little") + text + data)
    trial = smdwidgets.create_trial(s3.address("root"), **settings(s3))
    storage = trial.reader.run.storage  # type: ignore[attr-defined]
    assert storage.requests.bytes < 3 << 16
    assert trial.tensor("w3").value(20)[0] == 3 << 18
    assert storage.requests.bytes < 2 << 20
    table = trial.statistics()
    assert table["mean"].tolist() == [np.arange(at << 18, (at + 1) << 18).mean() for at in range(8)]


def test_a_distributed_checkpoint_is_joined_from_its_objects(s3: Place, source_runs: Path) -> None:
    s3.upload(source_runs / "distributed", "root")
    with smdwidgets.create_trial(s3.address("root"), **settings(s3)) as trial:
        storage = trial.reader.run.storage  # type: ignore[attr-defined]
        opened = storage.requests.bytes
        assert trial.tensor("0.weight").steps() == [1, 2]
        assert opened < sum(path.stat().st_size for path in (source_runs / "distributed").glob("*/.metadata")) + (
            1 << 14
        )
        assert_equal(smdwidgets.create_trial(source_runs / "distributed"), trial)


def test_a_run_that_grows_and_one_that_is_rewritten(s3: Place) -> None:
    s3.put("root/metrics.csv", b"step,loss\n1,0.5\n2,0.25\n")
    trial = smdwidgets.create_trial(s3.address("root"), **settings(s3))
    assert trial.tensor("loss").values() == {1: 0.5, 2: 0.25}
    s3.put("root/metrics.csv", b"step,loss\n1,0.5\n2,0.25\n3,0.125\n")
    assert trial.tensor("loss").values() == {1: 0.5, 2: 0.25, 3: 0.125}
    s3.put("root/metrics.csv", b"step,loss\n1,8.5\n2,8.25\n3,8.125\n")
    assert trial.tensor("loss").values() == {1: 8.5, 2: 8.25, 3: 8.125}
    s3.put("root/weights/x-1.log", b"")
    assert trial.tensor("loss").steps() == [1, 2, 3]


def test_event_files_beside_a_table_are_one_run(s3: Place, source_runs: Path, log_runs: Path) -> None:
    log = min(log_runs.rglob("*tfevents*"), key=lambda path: path.stat().st_size)
    s3.put("root/events.out.tfevents.1700000000.host", log.read_bytes())
    s3.put("root/metrics.csv", b"step,from_the_table\n1,2\n")
    trial = smdwidgets.create_trial(s3.address("root"), **settings(s3))
    assert "from_the_table" in trial.tensor_names()
    assert len(trial.tensor_names()) > 1
    [row] = smdwidgets.runs(s3.address("root"), cache=False, **settings(s3))
    assert row["kind"] == "table, TensorBoard"


def test_the_table_reads_a_changed_run_again(s3: Place, tmp_path: Path) -> None:
    s3.put("root/a/metrics.csv", b"step,loss\n1,2\n")
    s3.put("root/b/trainer_state.json", b'{"global_step": 1, "log_history": [{"step": 1, "loss": 3.0}]}')

    def table() -> tuple[int, list[tuple[str, float]]]:
        read: list[int] = []
        found = smdwidgets.runs(
            s3.address("root"), cache=tmp_path / "x.sqlite", progress=lambda done, of: read.append(done), **settings(s3)
        )
        return len(read), [(row.name, row["loss"]) for row in found]

    assert table() == (2, [("a", 2), ("b", 3)])
    assert table() == (0, [("a", 2), ("b", 3)])
    s3.put("root/a/metrics.csv", b"step,loss\n1,2\n2,1\n")
    assert table() == (1, [("a", 1), ("b", 3)])


def test_nothing_here_names_the_objects(s3: Place) -> None:
    s3.put("root/trainer_state.json", b'{"log_history": [{"step": 1, "lo')
    s3.put("root/picture.png", b"x")
    with pytest.raises(RunNotFound, match=r"'trainer_state.json': JSON ends at byte 32.*1 more \(1 \*.png\)"):
        smdwidgets.create_trial(s3.address("root"), **settings(s3))
    with pytest.raises(RunNotFound, match="no object has this prefix"):
        smdwidgets.create_trial(s3.address("rot"), **settings(s3))


def test_commands_and_other_processes(
    s3: Place, source_runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in s3.environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    s3.upload(source_runs / "keras", "root/keras")
    s3.put(
        "root/bad/metrics.csv",
        b"step,loss\n" + b"".join(b"%d,%s\n" % (at, b"nan" if at > 9 else b"1") for at in range(20)),
    )
    assert cli.main(["runs", s3.address("root"), "--json"]) == 0
    assert [row["name"] for row in json.loads(capsys.readouterr().out)] == ["bad", "keras"]
    assert cli.main(["diagnose", s3.address("root/bad"), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)[0]["findings"][0]["kind"] == "not_finite"
    assert cli.main(["verify", s3.address("root"), "--json"]) == 0
    assert [one["format"] for one in json.loads(capsys.readouterr().out)["sources"]] == ["table", "table"]
    with smdwidgets.create_trial(s3.address("root/keras")) as trial:
        assert_equal(trial, pickle.loads(pickle.dumps(trial)))
