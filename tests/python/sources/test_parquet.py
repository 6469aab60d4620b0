"""Parquet tables and Neptune's exports, compared with pyarrow on the same files."""

from __future__ import annotations

import datetime
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

import smdwidgets
from smdwidgets import cli
from smdwidgets.exceptions import RunNotFound
from smdwidgets.sources import parquet as module


def values(trial: Any, name: str) -> dict[int, float]:
    return {step: float(trial.tensor(name).value(step)) for step in trial.tensor(name).steps()}


@pytest.mark.parametrize("seed", range(50))
def test_tables_equal_those_of_pandas(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 300))
    frame = pandas.DataFrame({"step": np.cumsum(rng.integers(1, 5, count))})
    for at in range(int(rng.integers(1, 6))):
        dtype = rng.choice(["float64", "float32", "int32", "int8"])
        frame[f"loss{at}"] = (rng.normal(size=count) * 50).astype(dtype)
    frame["notes"] = "text"
    codec = rng.choice(["none", "snappy", "zstd", "gzip"])
    frame.to_parquet(tmp_path / "metrics.parquet", compression=codec, row_group_size=int(rng.integers(1, 100)))
    trial = smdwidgets.create_trial(tmp_path)
    same = pandas.read_parquet(tmp_path / "metrics.parquet").set_index("step")
    names = [name for name in same if name != "notes"]
    assert sorted(trial.tensor_names()) == sorted(names)
    for name in names:
        assert values(trial, name) == same[name].astype(float).to_dict()


def test_long_tables_dictionaries_missing_values_and_times(tmp_path: Path) -> None:
    times = [datetime.datetime(2026, 1, 1, 0, 0, at, tzinfo=datetime.UTC) for at in range(4)]
    table = pa.table(
        {
            "step": pa.array([Decimal(0), Decimal(0), Decimal(1), Decimal(1)], pa.decimal128(18, 6)),
            "metric": pa.array(["loss", "acc", "loss", "acc"]).dictionary_encode(),
            "value": pa.array([1.0, 0.5, None, 0.75]),
            "timestamp": pa.array(times, pa.timestamp("ms", "UTC")),
        }
    )
    parquet.write_table(table, tmp_path / "a.parquet")
    trial = smdwidgets.create_trial(tmp_path / "a.parquet")
    assert (values(trial, "loss"), values(trial, "acc")) == ({0: 1.0}, {0: 0.5, 1: 0.75})
    assert trial.scalars("acc")["wall_time"].tolist() == [times[1].timestamp(), times[3].timestamp()]


def test_our_own_export_comes_back(tmp_path: Path) -> None:
    from smdwidgets.numpy import Hook

    with Hook(tmp_path / "run") as hook:
        for step in range(5):
            hook.save_scalar("loss", 1 / (step + 1))
            hook.save_scalar("accuracy", step / 5)
            hook.save_tensor("weights", np.arange(6.0))
            hook.step()
    (tmp_path / "out").mkdir()
    assert (
        cli.main(["export", str(tmp_path / "run"), "--to", "parquet", "-o", str(tmp_path / "out" / "run.parquet")]) == 0
    )
    trial = smdwidgets.create_trial(tmp_path / "out")
    run = smdwidgets.create_trial(tmp_path / "run")
    assert set(trial.tensor_names()) == {name for name in run.tensor_names() if name != "weights"}, trial.tensor_names()
    for name in trial.tensor_names():
        assert values(trial, name) == {
            step: float(run.tensor(name).value(step)[0]) for step in run.tensor(name).steps()
        }
    assert any("cells have several numbers" in message for _, message in trial.problems())


def neptune(folder: Path, run: str, seed: int, part: int = 0) -> pa.Table:
    """Write rows as Neptune's exporter names and types them."""
    rng = np.random.default_rng(seed)
    rows: list[dict[str, Any]] = []
    base = {"project_id": "team/project", "run_id": run}
    start = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    for name in ("metrics/loss", "metrics/acc"):
        rows += [
            {
                **base,
                "attribute_path": name,
                "attribute_type": "float_series",
                "step": Decimal(at + 100 * part),
                "timestamp": start + datetime.timedelta(seconds=at),
                "float_value": float(rng.normal()),
            }
            for at in range(int(rng.integers(1, 40)))
        ]
    rows.append({**base, "attribute_path": "params/lr", "attribute_type": "float", "float_value": 0.125})
    rows.append({**base, "attribute_path": "params/layers", "attribute_type": "int", "int_value": 3})
    rows.append({**base, "attribute_path": "sys/name", "attribute_type": "string", "string_value": f"name of {run}"})
    rows.append({**base, "attribute_path": "sys/tags", "attribute_type": "string_set", "string_set_value": ["a", "b"]})
    rows.append({**base, "attribute_path": "model", "attribute_type": "file", "file_value": {"path": "x"}})
    schema = pa.schema(
        [
            ("project_id", pa.string()),
            ("run_id", pa.string()),
            ("attribute_path", pa.string()),
            ("attribute_type", pa.string()),
            ("step", pa.decimal128(18, 6)),
            ("timestamp", pa.timestamp("ms", tz="UTC")),
            ("int_value", pa.int64()),
            ("float_value", pa.float64()),
            ("string_value", pa.string()),
            ("bool_value", pa.bool_()),
            ("datetime_value", pa.timestamp("ms", tz="UTC")),
            ("string_set_value", pa.list_(pa.string())),
            ("file_value", pa.struct([("path", pa.string())])),
        ]
    )
    table = pa.Table.from_pylist(rows, schema)
    folder.mkdir(parents=True, exist_ok=True)
    parquet.write_table(table, folder / f"{run}_part_{part}.parquet", row_group_size=7)
    return table


@pytest.mark.parametrize("seed", range(50))
def test_neptune_exports_equal_pyarrow(seed: int, tmp_path: Path) -> None:
    table = neptune(tmp_path / "project", "RUN-1", seed)
    trial = smdwidgets.create_trial(tmp_path / "project")
    rows = [row for row in table.to_pylist() if row["attribute_type"] == "float_series"]
    assert set(trial.tensor_names()) == {row["attribute_path"] for row in rows}
    for name in trial.tensor_names():
        of_name = [row for row in rows if row["attribute_path"] == name]
        assert values(trial, name) == {int(row["step"]): row["float_value"] for row in of_name}
        times = trial.scalars(name)["wall_time"].tolist()
        assert times == [row["timestamp"].timestamp() for row in of_name]
    hparams = trial.hparams()
    assert (hparams["params/lr"], hparams["params/layers"], hparams["sys/tags"]) == (0.125, 3, "a, b")


def test_neptune_runs_and_parts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for run in ("RUN-1", "RUN-2"):
        for part in range(2):
            neptune(tmp_path / "project", run, part, part)
    trials = smdwidgets.create_trials(tmp_path)
    assert list(trials) == ["project/RUN-1", "project/RUN-2"]
    steps = trials["project/RUN-1"].tensor("metrics/loss").steps()
    assert min(steps) == 0
    assert max(steps) >= 100
    table = smdwidgets.runs(tmp_path, cache=False)
    assert [row["kind"] for row in table] == ["Neptune export"] * 2
    assert table[1].open().hparams()["sys/name"] == "name of RUN-2"
    assert smdwidgets.create_trial(tmp_path / "project" / "RUN-2").hparams()["sys/name"] == "name of RUN-2"
    assert any("not read: attributes of the type file" in message for _, message in trials["project/RUN-1"].problems())
    assert cli.main(["diagnose", str(tmp_path / "project" / "RUN-1")]) in (0, 1)
    capsys.readouterr()


def test_damaged_files(tmp_path: Path) -> None:
    pandas.DataFrame({"step": range(5000), "loss": np.random.default_rng(0).normal(size=5000)}).to_parquet(
        tmp_path / "a.parquet", row_group_size=1000, write_page_checksum=True
    )
    whole = (tmp_path / "a.parquet").read_bytes()

    def why(content: bytes) -> str:
        (tmp_path / "a.parquet").write_bytes(content)
        with pytest.raises(RunNotFound) as error:
            smdwidgets.create_trial(tmp_path)
        return str(error.value)

    assert f"byte {len(whole) - 9:,}: the file ends without metadata" in why(whole[:-9])
    assert "metadata of 4,294,967,295 bytes exceed the file" in why(whole[:-8] + b"\xff" * 4 + b"PAR1")
    assert "damaged Parquet file" in why(whole[: -8 - 200] + bytes(200) + whole[-8:])
    damaged = bytearray(whole)
    damaged[len(whole) // 2 : len(whole) // 2 + 400] = bytes(400)
    (tmp_path / "a.parquet").write_bytes(damaged)
    trial = smdwidgets.create_trial(tmp_path)
    assert trial.tensor_names() == []
    assert any("row group" in message for _, message in trial.problems())


def test_every_flipped_byte_of_the_metadata_is_read_or_refused(tmp_path: Path) -> None:
    pandas.DataFrame({"step": range(20), "loss": np.arange(20.0)}).to_parquet(tmp_path / "a.parquet")
    whole = (tmp_path / "a.parquet").read_bytes()
    rng = np.random.default_rng(0)
    for at in rng.integers(4, len(whole), 150).tolist():
        damaged = bytearray(whole)
        damaged[at] ^= 1 << int(rng.integers(8))
        (tmp_path / "a.parquet").write_bytes(damaged)
        try:
            trial = smdwidgets.create_trial(tmp_path)
        except RunNotFound:
            continue
        assert trial.tensor_names() == ["loss"] or len(trial.tensor_names()) <= 2


def test_rows_beyond_the_limit_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_NUMBERS", 1000)
    monkeypatch.setattr(module, "_ROWS", 100)
    pandas.DataFrame({"step": range(10_000), "loss": np.zeros(10_000)}).to_parquet(tmp_path / "a.parquet")
    trial = smdwidgets.create_trial(tmp_path)
    assert 500 <= len(trial.tensor("loss").steps()) <= 700
    assert any("of 10,000 rows are read; the limit is 1,000 numbers" in message for _, message in trial.problems())


def test_other_tables_and_no_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pandas.DataFrame({"name": ["ann"], "age": [3]}).to_parquet(tmp_path / "a.parquet")
    with pytest.raises(RunNotFound, match="none of its columns of numbers is named step"):
        smdwidgets.create_trial(tmp_path)
    pandas.DataFrame({"step": [1, 2], "loss": [3.0, 2.0]}).to_parquet(tmp_path / "a.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(RunNotFound, match=r"needs pyarrow; run: pip install 'smdwidgets\[parquet\]'"):
        smdwidgets.create_trial(tmp_path)
