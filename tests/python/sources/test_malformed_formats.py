"""Files of other programs that are cut, flipped, linked, or made to harm.

Errors name the file, and nothing is executed.
"""

from __future__ import annotations

import os
import pickle
import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import smdwidgets
from python.sources import test_wandb_and_trackio
from smdwidgets.exceptions import RunNotFound, SMDebugError

#: A file that its program wrote, of each format.
FILES = {
    "W&B run": "wandb/run-first.wandb",
    "trackio database": "trackio/golden.db",
    "Neptune export": "neptune",
    "Parquet table of Polars": "parquet/polars/metrics.parquet",
    "Parquet table of DuckDB": "parquet/duckdb/metrics.parquet",
    "Comet experiment": "comet",
    "nvdlfw-inspect statistics": "inspect",
    "mlflow database": "mlflow/mlflow.db",
    "trainer state": "transformers",
    "text log": "keras_overfit/log/train.log",
    "JSON history": "keras_overfit/history/history.json",
}


@pytest.fixture(params=FILES)
def original(request, source_runs):
    """Return a file of a format, and its path below the directory of the run."""
    path = source_runs / FILES[request.param]
    if path.is_file():
        return path, Path(path.name)
    endings = {"neptune": ".parquet", "comet": ".zip", "inspect": ".log", "transformers": "trainer_state.json"}
    found = min(one for one in path.rglob("*") if one.name.endswith(endings[path.name]))
    return found, found.relative_to(path)


def everything(path):
    """Read all that a command would read. Return the number of values."""
    count = 0
    for trial in smdwidgets.create_trials(path).values():
        with trial:
            count += len(trial.scalars()["step"])
            trial.hparams()
            trial.statistics()
            trial.problems()
            assert trial.sources()
    return count


def mutations(data, generator):
    """Yield changed contents of a file."""
    for number in range(40):
        changed = bytearray(data)
        at = generator.randrange(len(data))
        match number % 5:
            case 0:
                del changed[at:]
            case 1:
                changed[at] ^= 1 << generator.randrange(8)
            case 2:  # a length that lies
                changed[at : at + 4] = generator.choice([b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", bytes(4)])
            case 3:  # a block that was not written
                changed[at : at + 512] = bytes(len(changed[at : at + 512]))
            case _:
                changed[at:at] = generator.randbytes(generator.randrange(1, 64))
        yield bytes(changed)


def test_changed_files_are_read_or_refused(original, tmp_path):
    if original[0].suffix == ".parquet":
        pytest.importorskip("pyarrow")
    source, below = original
    data = source.read_bytes()
    generator = random.Random(11)
    refused = 0
    for number, changed in enumerate(mutations(data, generator)):
        path = tmp_path / str(number) / below
        path.parent.mkdir(parents=True)
        path.write_bytes(changed)
        os.utime(path, (1e9, 1e9))  # a trial waits for the rest of a run that has just ended
        try:
            everything(tmp_path / str(number))
        except SMDebugError as error:
            refused += 1
            assert str(tmp_path / str(number)) in str(error)  # noqa: PT017
        shutil.rmtree(tmp_path / str(number))
    assert refused < 40


def test_links_and_pipes_are_not_followed(original, tmp_path):
    source, below = original
    for at, target in enumerate((source, tmp_path / "nowhere", Path("/dev/zero"), tmp_path / "run2")):
        path = tmp_path / f"run{at}" / below
        path.parent.mkdir(parents=True)
        path.symlink_to(target)
        with pytest.raises(RunNotFound):
            smdwidgets.create_trial(tmp_path / f"run{at}")
    path = tmp_path / "pipe" / below
    path.parent.mkdir(parents=True)
    os.mkfifo(path)
    with pytest.raises(RunNotFound):
        smdwidgets.create_trial(tmp_path / "pipe")


class _Harm:
    def __reduce__(self):
        return (Path.touch, (Path("harm"),))


def test_pickles_under_the_names_of_formats_are_not_loaded(original, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "run" / original[1]
    path.parent.mkdir(parents=True)
    path.write_bytes(pickle.dumps(_Harm()))
    with pytest.raises(RunNotFound):
        smdwidgets.create_trial(tmp_path / "run")
    assert not Path("harm").exists()


def test_sql_of_a_database_is_not_executed(tmp_path):
    path = tmp_path / "project.db"
    test_wandb_and_trackio.project(path, {"a": {0: '{"loss": 3}', 1: '{"loss": 2}'}})
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE log (what TEXT)")
        for event in ("INSERT", "UPDATE", "DELETE"):
            database.execute(
                f"CREATE TRIGGER t{event} AFTER {event} ON metrics BEGIN INSERT INTO log VALUES ('{event}'); END"
            )
        name = "b'; DROP TABLE metrics; --"
        database.execute(
            "INSERT INTO metrics (run_id, timestamp, run_name, step, metrics) VALUES ('i', 'x', ?, 0, ?)",
            (name, pickle.dumps(_Harm())),
        )
    before = path.read_bytes()
    trials = smdwidgets.create_trials(path)
    assert trials["a"].tensor("loss").value(1) == 2
    assert path.read_bytes() == before


def test_view_that_never_ends_is_not_read(tmp_path):
    with closing(sqlite3.connect(tmp_path / "project.db")) as database, database:
        endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS id, 'x' AS timestamp, "
        database.execute(f"CREATE VIEW metrics AS {endless} 'r' AS run_name, i AS step, '{{}}' AS metrics FROM n")
        database.execute("CREATE TABLE configs (id INTEGER, run_name TEXT, config TEXT, created_at TEXT)")
    with pytest.raises(RunNotFound):
        smdwidgets.create_trial(tmp_path)


def test_dictionary_that_expands_is_bounded(tmp_path):
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = 200_000
    # As plain text, this column has 200 GB.
    text = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array(["x" * 1_000_000]))
    table = pa.table({"step": range(rows), "loss": [1.0] * rows, "note": text})
    parquet.write_table(table, tmp_path / "metrics.parquet")
    trial = smdwidgets.create_trial(tmp_path)
    assert len(trial.tensor("loss").steps()) == rows


def test_dictionary_of_many_values_is_bounded(tmp_path):
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = 100_000
    table = pa.table({"step": [0] * rows, "tag": [f"name {number}" for number in range(rows)], "value": [1.0] * rows})
    parquet.write_table(table, tmp_path / "metrics.parquet")
    try:
        trial = smdwidgets.create_trial(tmp_path)
    except SMDebugError as error:
        assert "metrics.parquet" in str(error)  # noqa: PT017
    else:
        assert len(trial.tensor_names()) <= 10_000
