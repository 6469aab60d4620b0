"""`smdwidgets diagnose` finds the same fault in a log of each format."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest

from python.sources import test_comet_and_inspect, test_parquet, test_wandb_and_trackio
from smdwidgets import cli
from smdwidgets.sources.registry import formats

#: A validation loss that rises after step 12, while the training loss falls.
ROWS = [(step, 2 / (step + 1), 0.5 + abs(step - 12) / 20) for step in range(40)]


def table(folder):
    with (folder / "metrics.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("step", "loss", "val_loss"), *ROWS])


def trainer_state(folder):
    history = [{"step": step, "loss": loss} for step, loss, _ in ROWS]
    history += [{"step": step, "eval_loss": loss} for step, _, loss in ROWS]
    (folder / "trainer_state.json").write_text(json.dumps({"log_history": history, "global_step": 39}))


def json_history(folder):
    columns = {"loss": [loss for _, loss, _ in ROWS], "val_loss": [loss for *_, loss in ROWS]}
    (folder / "history.json").write_text(json.dumps(columns))


def wandb(folder):
    rows = [test_wandb_and_trackio.history(step, loss=loss, val_loss=val) for step, loss, val in ROWS]
    (folder / "run-1.wandb").write_bytes(test_wandb_and_trackio.framed(rows))


def trackio(folder):
    rows = {step: json.dumps({"loss": loss, "val_loss": val}) for step, loss, val in ROWS}
    test_wandb_and_trackio.project(folder / "project.db", {"run": rows})


def parquet_table(folder):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = dict(zip(("step", "loss", "val_loss"), map(list, zip(*ROWS, strict=True)), strict=True))
    parquet.write_table(arrow.table(columns), folder / "metrics.parquet")


def comet(folder):
    messages = [test_comet_and_inspect.metric("loss", loss, step) for step, loss, _ in ROWS]
    messages += [test_comet_and_inspect.metric("loss", loss, step, "validate") for step, _, loss in ROWS]
    test_comet_and_inspect.archive(folder / "experiment.zip", messages)


def text_log(folder):
    lines = (f"epoch {step}: train loss {loss:.5f} val loss {val:.5f}\n" for step, loss, val in ROWS)
    (folder / "train.log").write_text("".join(lines))


WRITERS = {
    "table": table,
    "trainer state": trainer_state,
    "JSON history": json_history,
    "W&B run": wandb,
    "trackio database": trackio,
    "Parquet table": parquet_table,
    "Comet experiment": comet,
    "text log": text_log,
}
#: Logs of one training of Keras that overfits: what it printed, its history as JSON, and what W&B wrote of that.
REAL = {
    "text log": "keras_overfit/log",
    "JSON history": "keras_overfit/history",
    "W&B run": "wandb_overfit",
}
#: Logs that the programs whose formats they are wrote: weights, statistics, or few steps.
GOLDEN = {
    "table": "keras",
    "trainer state": "transformers",
    "W&B run": "wandb",
    "trackio database": "trackio",
    "Neptune export": "neptune",
    "Parquet table": "parquet/polars",
    "Comet experiment": "comet",
    "mlflow files": "mlflow/mlruns/512889052101133168/4a2fd776ba1a42a98ff12fa0dc87d63b",
    "mlflow database": "mlflow/mlflow.db",
    "safetensors": "sharded",
    "torch checkpoint": "torch",
    "torch distributed checkpoint": "distributed",
    "nvdlfw-inspect statistics": "inspect",
}


@pytest.mark.parametrize("name", WRITERS)
def test_fault_is_found(name, tmp_path, capsys):
    WRITERS[name](tmp_path)
    code = cli.main(["diagnose", str(tmp_path), "--json"])
    [diagnosis] = json.loads(capsys.readouterr().out)
    assert code == 1
    [first, *_] = diagnosis["findings"]
    assert first["kind"] == "overfit"
    assert 10 <= first["first"] <= 16


@pytest.mark.parametrize("name", REAL)
def test_fault_of_a_real_training_is_found(name, source_runs, capsys):
    code = cli.main(["diagnose", str(source_runs / REAL[name]), "--json"])
    [diagnosis] = json.loads(capsys.readouterr().out)
    assert code == 1
    [first, *_] = diagnosis["findings"]
    assert first["kind"] == "overfit"
    assert first["first"] <= 10  # the validation loss never falls


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_log_is_judged_or_says_why_not(name, source_runs, capsys):
    cli.main(["diagnose", str(source_runs / GOLDEN[name]), "--json"])
    results = json.loads(capsys.readouterr().out)
    assert results
    for result in results:
        assert result["judged"] or result["unjudged"]
        assert result["summary"]


def test_neptune_export_is_judged(tmp_path, capsys):
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(test_parquet.neptune(tmp_path, "RUN-1", 3), tmp_path / "export.parquet")
    cli.main(["diagnose", str(tmp_path), "--json"])
    [result] = json.loads(capsys.readouterr().out)
    assert result["judged"] or result["unjudged"]


def test_numpy_archives_are_judged_or_say_why_not(tmp_path, capsys):
    for step in range(3):
        np.savez(tmp_path / f"step-{step}.npz", weight=np.full((4, 4), step + 1.0))
    cli.main(["diagnose", str(tmp_path), "--json"])
    [result] = json.loads(capsys.readouterr().out)
    assert result["judged"] or result["unjudged"]


def test_every_format_is_covered():
    names = {one.name for one in formats() if type(one).__module__.startswith("smdwidgets.")}
    assert names == {*WRITERS, *GOLDEN, "numpy archive"}
