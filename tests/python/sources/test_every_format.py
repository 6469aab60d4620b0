"""Every format opens from one line, and the explorer and every command work on it.

The runs were written by the programs whose formats they are.
"""

from __future__ import annotations

import csv
import json
import pickle
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import smdwidgets
from python.logs.logs import writer
from python.widgets.talk import Page
from smdwidgets import cli
from smdwidgets.trials import LocalTrial, SourceTrial, TensorBoardTrial, Trial


class Format(NamedTuple):
    """A golden run, and one of its tensors."""

    path: str
    tensor: str
    steps: list[int]
    collection: str
    trial: type[Trial] = SourceTrial
    problems: int = 0
    #: What `smdwidgets verify` prints.
    verified: str = "No faults."


_MLRUNS = "mlflow/mlruns/512889052101133168/4a2fd776ba1a42a98ff12fa0dc87d63b"
_DATABASE = "mlflow/mlflow.db/1d64877db7c0451cbf068603b90468b7"
_NEPTUNE = "neptune/team_golden-5bb25ee67bd3ac13/GOLD-1"
_TENS = [0, 10, 20, 30, 40, 50]

#: What the page requests of each step.
WANT = {
    "stats": True,
    "update": True,
    "hist": {"scale": "linear", "bins": 32, "edges": "shared"},
    "image": {"axes": [], "fixed": [], "pool": "mean", "cells": 4096},
    "percentiles": True,
}

FORMATS = {
    "lightning": Format("lightning", "train_loss", [1, 3, 5, 7, 9, 11], "losses", verified="metrics.csv (table)"),
    "keras": Format("keras", "val_loss", [0, 1, 2, 3, 4], "losses", verified="training.csv (table)"),
    "yolo": Format("yolo", "metrics/mAP50(B)", [1, 2, 3, 4, 5, 6], "metrics", verified="results.csv (table)"),
    "stable_baselines": Format("stable_baselines", "train/loss", _TENS, "losses", verified="progress.csv (table)"),
    "dvclive": Format("dvclive", "train/loss", _TENS, "losses", verified="(table, 2 files)"),
    "transformers": Format(
        "transformers", "bert.pooler.dense.weight", [2, 4, 6], "weights", verified="trainer_state.json (trainer state"
    ),
    "torch": Format("torch", "0.weight", [1, 2, 4], "weights", problems=1, verified="(torch checkpoint, 5 files)"),
    "distributed": Format(
        "distributed", "0.weight", [1, 2], "weights", verified="(torch distributed checkpoint, 6 files)"
    ),
    "sharded": Format("sharded", "a.bias", [100, 200], "biases", verified="(safetensors, 6 files)"),
    "mlflow files": Format(_MLRUNS, "val_loss", [20, 50], "losses", verified="(mlflow files"),
    "mlflow database": Format(_DATABASE, "val_loss", [20, 50], "losses", verified="(mlflow database)"),
    "comet": Format("comet", "loss", _TENS, "losses", verified="experiment.zip (Comet experiment)"),
    "inspect": Format(
        "inspect", "decoder.fc1_activation_l2_norm", _TENS, "scalars", verified="(nvdlfw-inspect statistics"
    ),
    "wandb": Format("wandb", "train/loss", _TENS, "losses", verified="run-first.wandb (W&B run)"),
    "trackio": Format("trackio/golden.db/first", "train/loss", _TENS, "losses", verified="(trackio database"),
    "neptune": Format(_NEPTUNE, "metrics/train/loss", _TENS, "losses", problems=1, verified="(Neptune export"),
    "parquet": Format("parquet/duckdb", "train/loss", _TENS, "losses", verified="metrics.parquet (Parquet table)"),
    "tensorboard": Format("tensorboard", "train/loss", _TENS, "losses", TensorBoardTrial),
    "smdebug": Format("smdebug", "CrossEntropyLoss_output_0", [0, 500, 1000], "losses", LocalTrial),
}


@pytest.fixture(params=FORMATS)
def format(request: pytest.FixtureRequest) -> Format:
    return FORMATS[request.param]


@pytest.fixture
def run(format: Format, source_runs: Path, golden_runs: Path, tmp_path: Path) -> Path:
    if format.path == "smdebug":
        return golden_runs / "pt_default" / "run"
    if format.path != "tensorboard":
        return source_runs / format.path
    with writer(tmp_path / "log") as log:
        for step in format.steps:
            log.add_scalar(format.tensor, 1 / (step + 1), step)
            log.add_histogram("weights", np.arange(20.0), step)
            log.add_text("note", "text", step)
    return tmp_path / "log"


def run_command(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = cli.main([str(each) for each in arguments])
    result = capsys.readouterr()
    return code, result.out, result.err


def test_trial(run: Path, format: Format) -> None:
    trial = smdwidgets.create_trial(run)
    assert type(trial) is format.trial
    assert trial.tensor(format.tensor).steps() == format.steps
    assert format.tensor in trial.tensor_names(collection=format.collection)
    assert len(trial.problems()) == format.problems
    assert pickle.loads(pickle.dumps(trial)).tensor_names() == trial.tensor_names()
    assert str(run) in repr(trial)


@pytest.fixture
def page(run: Path) -> Iterator[Page]:
    widget = smdwidgets.explore(run, rules=["LossNotDecreasing"])
    yield Page(widget)
    widget.close()


def test_explorer(page: Page, run: Path, format: Format) -> None:
    frames = page.frames(format.tensor, want=WANT)
    assert sorted(frames) == format.steps


def test_inspect_and_show(run: Path, format: Format, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run_command(capsys, "inspect", run, "--json")
    summary = json.loads(out)
    assert (code, len(summary["problems"])) == (0, format.problems)
    [tensor] = [each for each in summary["tensors"] if each["name"] == format.tensor]
    assert tensor["steps"] == {"count": len(format.steps), "first": format.steps[0], "last": format.steps[-1]}
    assert summary["collections"][format.collection] >= 1
    code, out, _ = run_command(capsys, "show", run, format.tensor, "--json")
    assert (code, json.loads(out)["tensor"]) == (0, format.tensor)


def test_check_and_diagnose(run: Path, format: Format, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(capsys, "check", run, "--rules", "ExplodingTensor", "--allow-unjudged")[0] in (0, 1)
    code, out, err = run_command(capsys, "diagnose", run)
    assert code in (0, 1) or "Cannot tell" in out, err


def test_report(run: Path, format: Format, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, err = run_command(capsys, "report", run, "-o", tmp_path / "report.html")
    assert code in (0, 1), err
    assert "pictures of 0 of" not in out
    assert (tmp_path / "report.html").stat().st_size > 10_000


def test_verify(run: Path, format: Format, capsys: pytest.CaptureFixture[str]) -> None:
    if not run.exists():
        run = run.parent  # a file with several runs is verified as a whole
    code, out, err = run_command(capsys, "verify", run)
    assert code == 0, err
    assert format.verified in out


@pytest.mark.parametrize("to", ["npz", "parquet", "csv", "csv-wide", "tensorboard"])
def test_export(run: Path, format: Format, capsys: pytest.CaptureFixture[str], tmp_path: Path, to: str) -> None:
    if to == "parquet":
        pytest.importorskip("pyarrow")
    options = ["--tensors", re.escape(format.tensor)] if to.startswith("csv") else []
    code, _, err = run_command(capsys, "export", run, "--to", to, *options, "-o", tmp_path / "out")
    assert code == 0, err
    if to == "tensorboard":
        again = smdwidgets.create_trial(tmp_path / "out")
        assert len(smdwidgets.create_trial(run).steps()) == len(again.steps())
    elif to == "csv":
        with (tmp_path / "out").open(newline="") as rows:
            written = sorted({int(row["step"]) for row in csv.DictReader(rows)})
        has_numbers = format.collection in ("losses", "metrics", "scalars") or format.path == "distributed"
        assert written == (format.steps if has_numbers else []), "a table has numbers"
