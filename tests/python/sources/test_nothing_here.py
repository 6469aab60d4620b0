"""Places without a run: one error that lists the files and what is wrong."""

from __future__ import annotations

import gzip
import json
import pickle
import re
import sqlite3

import pytest

import smdwidgets
from smdwidgets import cli
from smdwidgets.exceptions import RunNotFound, WaitTimeout

_STATE = json.dumps({"log_history": [{"step": 1, "loss": 2.0}], "global_step": 1}).encode()


def database(folder, drop=""):
    path = folder / "made.db"
    with sqlite3.connect(path) as connection:
        for table in ("runs", "metrics", "params", "tags", "experiments"):
            connection.execute(f"CREATE TABLE {table} (a)")
        connection.executemany("INSERT INTO runs VALUES (?)", [("x" * 1000,)] * 100)
        if drop:
            connection.execute(f"DROP TABLE {drop}")
    connection.close()
    data = path.read_bytes()
    path.unlink()
    return data


def damaged(folder):
    """Return damaged files of known formats by case: name, content and reason."""
    whole = database(folder)
    return {
        "cut state": ("trainer_state.json", _STATE[:30], "JSON ends at byte 30"),
        "broken state": (
            "trainer_state.json",
            b'{"log_history": [{"step": 1.., "loss": 2}]}',
            "invalid JSON at byte 27: Expecting ',' delimiter",
        ),
        "empty state": ("trainer_state.json", b"", "the file is empty"),
        "cut database": ("mlflow.db", whole[:20_000], "database disk image is malformed"),
        "overwritten database": (
            "mlflow.db",
            whole[:4096] + bytes(4096) + whole[8192:],
            "database disk image is malformed",
        ),
        "database without a table": ("mlflow.db", database(folder, "metrics"), "lacks the table metrics"),
        "header": (
            "model.safetensors",
            (10**9).to_bytes(8, "little") + b'{"a":1}',
            "byte 0: header of 1,000,000,000 bytes exceeds the limit of 100,000,000",
        ),
    }


CASES = (
    "cut state",
    "broken state",
    "empty state",
    "cut database",
    "overwritten database",
    "database without a table",
    "header",
)


@pytest.mark.parametrize("case", CASES)
def test_damaged_file_of_a_known_format(tmp_path, capsys, case):
    name, content, reason = damaged(tmp_path)[case]
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).write_bytes(content)
    (tmp_path / "picture.png").write_bytes(b"\x89PNG")
    for opened in (smdwidgets.create_trial, smdwidgets.create_trials):
        with pytest.raises(RunNotFound, match=re.escape(reason)) as error:
            opened(tmp_path)
        assert f"'out/{name}'" in str(error.value)
        assert "1 more (1 *.png)" in str(error.value)
        assert "wait=" not in str(error.value)
    for command in ("inspect", "diagnose", "check", "report", "runs", "query"):
        more = ["loss"] if command == "query" else []
        assert cli.main([command, str(tmp_path), *more]) == 2
        assert reason in capsys.readouterr().err
    assert cli.main(["verify", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert f"out/{name}: " in out
    assert reason in out
    assert "1 fault." in out


def test_damage_beside_a_run_is_a_fault(tmp_path, capsys):
    (tmp_path / "metrics.csv").write_text("step,loss\n0,1\n")
    assert cli.main(["verify", str(tmp_path)]) == 0
    (tmp_path / "trainer_state.json").write_bytes(_STATE[:30])
    assert cli.main(["verify", str(tmp_path)]) == 1
    assert "trainer_state.json: JSON ends at byte 30" in capsys.readouterr().out


def test_damaged_database_hides_no_other_one(tmp_path, source_runs):
    (tmp_path / "a.db").write_bytes(database(tmp_path)[:20_000])
    (tmp_path / "mlflow.db").write_bytes((source_runs / "mlflow" / "mlflow.db").read_bytes())
    assert all(name.startswith("mlflow.db/") for name in smdwidgets.create_trials(tmp_path))


def test_files_that_are_not_read(tmp_path):
    (tmp_path / "pytorch_model.bin").write_bytes(pickle.dumps({"a": 1}, 2))
    (tmp_path / "metrics.csv.gz").write_bytes(gzip.compress(b"step,loss\n0,1\n"))
    (tmp_path / "utf16.csv").write_text("step,loss\n0,1\n", "utf-16")
    with pytest.raises(RunNotFound) as error:
        smdwidgets.create_trial(tmp_path)
    message = str(error.value)
    assert "'pytorch_model.bin': a pickle, which could execute anything and is not loaded" in message
    assert "'metrics.csv.gz': a gzip file; unpack it with: gunzip" in message
    assert "'utf16.csv': the file is encoded in UTF-16" in message


@pytest.mark.parametrize(
    ("ending", "reason"),
    [
        ("out", "no log of a training: no name of a loss, metric or learning rate has a number in 3 lines or more"),
        ("stderr", "no log of a training: no name of a loss"),
        ("log", "no table of a training: line 1 has one column, 'Downloading the data'"),
    ],
)
def test_a_log_without_numbers_is_no_log_of_a_training(tmp_path, ending, reason):
    path = tmp_path / f"train.{ending}"
    path.write_text("Downloading the data\nKilled\n")
    for place in (path, tmp_path):
        with pytest.raises(RunNotFound, match=reason):
            smdwidgets.create_trial(place)


def test_other_files_are_counted(tmp_path):
    for at in range(12):
        (tmp_path / f"{at}.png").write_bytes(b"\x89PNG")
    (tmp_path / "README").write_text("text")
    with pytest.raises(
        RunNotFound, match=re.escape("none of its 13 files (12 *.png, 1 without an ending) is one of a run")
    ):
        smdwidgets.create_trial(tmp_path)


@pytest.mark.parametrize("below", [(), ("a", "b/c")])
def test_empty_directory_answers_at_once(tmp_path, capsys, below):
    for folder in below:
        (tmp_path / folder).mkdir(parents=True)
    reason = "the directory contains no files" if below else "the directory is empty"
    for opened in (smdwidgets.create_trial, smdwidgets.create_trials):
        with pytest.raises(RunNotFound, match=reason):
            opened(tmp_path)
    for command in ("inspect", "diagnose", "check", "report", "runs", "verify"):
        assert cli.main([command, str(tmp_path)]) == 2
        assert reason in capsys.readouterr().err


def test_waiting_is_asked_for(tmp_path):
    with pytest.raises(WaitTimeout, match="a run to start"):
        smdwidgets.create_trial(tmp_path, wait=0.1)


def test_storage_of_aim_says_how_to_export_it(tmp_path):
    (tmp_path / ".aim" / "meta" / "chunks").mkdir(parents=True)
    (tmp_path / ".aim" / "VERSION").write_text("1.1")
    for place in (tmp_path, tmp_path / ".aim"):
        with pytest.raises(
            RunNotFound, match=r"storage of Aim, a RocksDB database, which is not read; write its metrics"
        ):
            smdwidgets.create_trial(place)
