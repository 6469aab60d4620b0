"""MLflow's stores of files and of SQLite: metrics, parameters, locks, growth."""

from __future__ import annotations

import math
import shutil
import sqlite3
import time
from contextlib import closing

import pytest

import smdwidgets
from smdwidgets.exceptions import RunIOError, RunNotFound, SeveralRuns
from smdwidgets.sources import sqlite as sqlite_source

LOSSES = {0: 2.5, 10: 1.75, 20: 1.25, 30: 1.0, 40: 0.875, 50: 0.75}


def values(trial, name):
    return {step: value.item() for step, value in trial.tensor(name).values().items()}


@pytest.fixture(params=["mlruns", "mlflow.db"])
def store(request, source_runs):
    return source_runs / "mlflow" / request.param


@pytest.fixture
def database(source_runs, tmp_path):
    shutil.copy(source_runs / "mlflow" / "mlflow.db", tmp_path / "mlflow.db")
    return tmp_path / "mlflow.db"


def test_runs_of_a_store(store):
    with pytest.raises(SeveralRuns) as several:
        smdwidgets.create_trial(store)
    trials = smdwidgets.create_trials(store)
    assert sorted(trials) == sorted(several.value.runs)
    finished, running = sorted(trials.values(), key=lambda trial: values(trial, "train/loss")[0])
    assert values(finished, "train/loss") == LOSSES
    assert values(finished, "val_loss") == {20: 1.5, 50: 1.125}
    assert values(running, "train/loss") == {step: loss + 1 for step, loss in LOSSES.items()}
    assert math.isnan(values(running, "val_loss")[50])
    assert finished.hparams() == {"lr": 0.125, "model/width": 4, "purpose": "golden"}
    assert finished.scalars("train/loss")["wall_time"].tolist() == [1_700_000_000 + step for step in LOSSES]
    assert finished.tensor_names(collection="losses") == ["train/loss", "val_loss"]
    assert finished.run_end() is not None


def test_one_run_of_a_store(store):
    [run, _] = sorted(smdwidgets.create_trials(store))
    trial = smdwidgets.create_trial(store / run)
    assert trial.steps() == list(LOSSES)
    assert trial.path == str(store / run)


def test_directory_with_both_stores(source_runs):
    assert len(smdwidgets.create_trials(source_runs / "mlflow")) == 4


def test_run_that_is_not_in_the_database(database):
    with pytest.raises(RunNotFound, match=r"runs in mlflow\.db: "):
        smdwidgets.create_trial(database / "nothing")


def test_commands(store, capsys, tmp_path):
    from smdwidgets import cli

    [run, _] = sorted(smdwidgets.create_trials(store))
    for arguments in (
        ["inspect"],
        ["check", "--rules", "LossNotDecreasing", "--allow-unjudged"],
        ["report", "-o", tmp_path / "report.html"],
        ["export", "--to", "npz", "-o", tmp_path / "out.npz"],
    ):
        command, *options = map(str, arguments)
        assert cli.main([command, str(store / run), *options]) in (0, 1), capsys.readouterr().err
    assert (tmp_path / "report.html").exists()
    assert (tmp_path / "out.npz").exists()
    assert smdwidgets.explore(store / run) is not None


def test_growing_files(source_runs, tmp_path):
    shutil.copytree(source_runs / "mlflow" / "mlruns", tmp_path / "mlruns")
    [meta] = [path for path in (tmp_path / "mlruns").rglob("meta.yaml") if "status: 1" in path.read_text()]
    run = meta.parent
    trial = smdwidgets.create_trial(run)
    with (run / "metrics" / "train" / "loss").open("a") as out:
        out.write("1700000060000 0.5")
        out.flush()
        assert 60 not in values(trial, "train/loss")
        out.write(" 60\nnonsense\n")
    (run / "metrics" / "accuracy").write_text("1700000060000 0.75 60\n")
    assert values(trial, "train/loss")[60] == 0.5
    assert values(trial, "accuracy") == {60: 0.75}
    [(key, message)] = trial.problems()
    assert (key, message.endswith("loss: 1 lines are not: time, value, step")) == ("metrics/train/loss", True)


def test_growing_database(database):
    run = _running(database)
    _insert(database, run, "accuracy", 60)
    trial = smdwidgets.create_trial(database / run)
    assert values(trial, "train/loss")[50] == 1.75
    _insert(database, run, "train/loss", 60)
    assert values(trial, "train/loss")[60] == 0.5
    assert trial.run_end() is None


def _insert(database, run, name, step):
    """Log 0.5 now, as MLflow does."""
    with closing(sqlite3.connect(database)) as connection, connection:
        row = (name, 0.5, int(1000 * time.time()), run, step, False)
        connection.execute(
            "INSERT INTO metrics (key, value, timestamp, run_uuid, step, is_nan) VALUES (?, ?, ?, ?, ?, ?)", row
        )


def _running(database):
    with closing(sqlite3.connect(database)) as connection:
        [(run,)] = connection.execute("SELECT run_uuid FROM runs WHERE status = 'RUNNING'")
    return run


def test_locked_database(database, monkeypatch):
    monkeypatch.setattr(sqlite_source, "_PATIENCE", 0.01)
    run = _running(database)
    _insert(database, run, "accuracy", 60)
    trial = smdwidgets.create_trial(database / run)
    with closing(sqlite3.connect(database, isolation_level=None)) as server:
        server.execute("BEGIN EXCLUSIVE")
        with pytest.raises(RunIOError, match=r"mlflow\.db.*database is locked"):
            smdwidgets.create_trial(database / run)
        # An open run keeps what was read, and says why it does not grow.
        assert values(trial, "train/loss")[50] == 1.75
        [(key, message)] = trial.problems()
        assert (key, "database is locked" in message, str(database) in message) == ("mlflow.db", True, True)
        server.execute("ROLLBACK")
    trial.refresh_data()
    assert trial.problems() == []


def test_database_is_not_written(database):
    before = database.read_bytes()
    smdwidgets.create_trials(database)
    assert database.read_bytes() == before
    assert [path.name for path in database.parent.iterdir()] == ["mlflow.db"]


def test_other_databases_are_ignored(tmp_path):
    with closing(sqlite3.connect(tmp_path / "other.db")) as connection, connection:
        connection.execute("CREATE TABLE runs (run_uuid)")
    (tmp_path / "broken.db").write_bytes(b"SQLite format 3\0" + b"\xff" * 5000)
    (tmp_path / "text.db").write_text("SQLite")
    (tmp_path / "metrics.csv").write_text("step,loss\n0,1\n")
    assert smdwidgets.create_trial(tmp_path).sources() == ["metrics.csv"]


def test_steps_that_do_not_fit_are_a_problem(tmp_path):
    run = tmp_path / "mlruns" / "0" / "a"
    (run / "metrics").mkdir(parents=True)
    (run / "meta.yaml").write_text("run_id: a\nstatus: 3\n")
    (run / "metrics" / "loss").write_text(f"1700000000000 1 {-(2**63)}\n1700000000000 2 -1\n1700000000000 3 5\n")
    trial = smdwidgets.create_trial(tmp_path)
    assert trial.tensor("loss").steps() == [5]
    [(_, message)] = trial.problems()
    assert (
        "2 rows are not read, because their step is not a number from 0 to 4.6e+18: the first one is -9.22337e+18"
        in message
    )
