"""Layers are listed in natural order: 0, 1, 2, …, 10, 11."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import smdwidgets
from python.widgets.talk import Page, begin, end, save
from smdwidgets.cli import main
from smdwidgets.trials.tensorboard.layout import runs_of

LAYERS = [f"layers.{i}.weight" for i in range(12)]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    root = begin(tmp_path / "deep")
    for step in range(2):
        save(root, step, {name: np.zeros((2, 2), np.float32) for name in LAYERS})
    return end(root)


def test_the_page_gets_names_in_natural_order(run: Path) -> None:
    widget = smdwidgets.explore(run)
    try:
        _, packets = Page(widget).ask("hello", protocol=1, again=True)
        assert [head["tensors"] for head, _ in packets if head["kind"] == "catalog"] == [LAYERS]
    finally:
        widget.close()


def test_curves_and_the_first_tensor(tmp_path: Path) -> None:
    root = begin(tmp_path / "losses")
    save(root, 0, {f"loss_{i}": np.float32(i) for i in (10, 2, 1)})
    widget = smdwidgets.explore(end(root))
    panel = smdwidgets.ScalarPanel(root, regex="loss")
    try:
        assert [line["tensor"] for line in panel.series] == ["loss_1", "loss_2", "loss_10"]
        assert widget.tensor == "loss_1"
    finally:
        widget.close()
        panel.close()


def test_findings_name_the_first_layer_first(run: Path) -> None:
    runner = smdwidgets.rules.RuleRunner(smdwidgets.create_trial(run), [])
    runner.add("AllZero", tensor_regex="layers")
    runner.start().wait(60)
    assert [finding.subject for finding in runner["AllZero"].firings[0].findings] == LAYERS


def test_command_line_and_reprs(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(run), "--json"]) == 0
    assert [each["name"] for each in json.loads(capsys.readouterr().out)["tensors"]] == LAYERS
    trial = smdwidgets.create_trial(run)
    assert "'layers.0.weight', 'layers.1.weight', 'layers.2.weight'" in repr(trial)
    assert trial.tensor_names() == sorted(LAYERS)  # as in smdebug


def test_exports(run: Path, tmp_path: Path) -> None:
    smdwidgets.create_trial(run).export("npz", tmp_path / "deep.npz")
    with np.load(tmp_path / "deep.npz") as archive:
        names = [name for name in archive.files if name.startswith("layers")]
    order = [int(name.split(".")[1]) for name in names]
    assert order[:12] == list(range(12))


def test_runs_of_a_log() -> None:
    keys = [f"run_{i}/x.tfevents.1" for i in (10, 9, 1)]
    assert [*runs_of(keys)] == ["run_1", "run_9", "run_10"]
