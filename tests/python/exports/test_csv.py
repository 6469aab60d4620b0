"""CSV exports, read back with pandas, and the wall times of a Parquet export."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas
import pyarrow.parquet
import pytest

from python.logs.logs import event, log, scalars, strings, value
from smdwidgets import ModeKeys, _core, cli, create_trial
from smdwidgets.numpy import Hook

LONG_TEXT = 'a "quoted", text\n' * 20_000


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A log with sparse curves, a text and histograms."""
    content = scalars({"loss": [3.0, math.nan, math.inf, 0.1]})
    content += _core.scalar_record("acc", 2, 200.0, 0.5)
    content += event(value("note", strings(LONG_TEXT.encode()), plugin="text"), step=1, wall_time=300.5)
    content += _core.histogram_record(
        "weights", 1, 1.0, [0.0, 1.0], [1.0, 2.0], min=0, max=1, num=3, sum=1, sum_squares=1
    )
    return log(tmp_path / "run", content)


def test_long_table_has_a_row_per_value(run: Path, tmp_path: Path) -> None:
    with create_trial(run) as trial:
        done = trial.export("csv", tmp_path / "out.csv")
    assert (done.records, done.tensors, done.errors) == (6, 3, [])
    table = pandas.read_csv(tmp_path / "out.csv", keep_default_na=False)
    assert list(table.columns) == ["step", "mode", "mode_step", "wall_time", "worker", "tensor", "value"]
    loss = table[table["tensor"] == "loss"]
    assert loss["value"].tolist() == ["3.0", "NaN", "inf", repr(float(np.float32(0.1)))]
    assert loss["wall_time"].astype(float).tolist() == [100, 101, 102, 103]
    assert table[table["tensor"] == "note"]["value"].tolist() == [LONG_TEXT]


def test_wide_table_has_a_row_per_step_and_a_column_per_tensor(run: Path, tmp_path: Path) -> None:
    with create_trial(run) as trial:
        trial.export("csv-wide", tmp_path / "out.csv")
    table = pandas.read_csv(tmp_path / "out.csv")
    assert sorted(table.columns) == ["acc", "loss", "mode", "mode_step", "note", "step", "wall_time"]
    assert table["step"].tolist() == [0, 1, 2, 3]
    assert table["acc"].isna().tolist() == [True, True, False, True]
    assert table["loss"].tolist()[3] == float(np.float32(0.1))
    assert table["note"][1] == LONG_TEXT


def test_several_workers_are_columns_and_numbers_are_in_their_shortest_form(tmp_path: Path) -> None:
    for worker in ("validation", "test"):
        log(tmp_path / "run" / worker, scalars({"loss": [1.0, 2.0 if worker == "test" else 3.0]}))
    with create_trial(tmp_path / "run") as trial:
        trial.export("csv-wide", tmp_path / "out.csv")
    table = pandas.read_csv(tmp_path / "out.csv")
    assert table["loss (test)"].tolist() == [1, 2]
    assert table["loss (validation)"].tolist() == [1, 3]
    assert table["mode"].tolist() == ["EVAL"] * 2
    with Hook(tmp_path / "hook") as hook:
        hook.set_mode(ModeKeys.TRAIN)
        hook.save_tensor("x", np.float32(0.1), "losses")
        hook.save_tensor("large", np.zeros(3), "losses")
        hook.step()
    with create_trial(tmp_path / "hook") as trial:
        trial.export("csv", tmp_path / "hook.csv")
    row = (tmp_path / "hook.csv").read_text().splitlines()[1]
    assert row.startswith("0,TRAIN,0,")
    assert row.endswith(",x,0.1")


def test_command_and_the_wall_time_in_parquet(run: Path, tmp_path: Path) -> None:
    assert cli.main(["export", str(run), "--to", "csv-wide", "-o", str(tmp_path / "a.csv")]) == 0
    assert (
        cli.main(["export", str(run), "--to", "parquet", "-o", str(tmp_path / "a.parquet"), "--tensors", "loss|note"])
        == 0
    )
    table = pyarrow.parquet.read_table(tmp_path / "a.parquet").to_pandas()
    assert table[table["tensor"] == "loss"]["wall_time"].tolist() == [100, 101, 102, 103]
    assert table[table["tensor"] == "note"]["wall_time"].tolist() == [300.5]
