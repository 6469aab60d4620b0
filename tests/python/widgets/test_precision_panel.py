"""The table of low-precision formats over the step slider."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import smdwidgets
from smdwidgets.numpy import Hook
from smdwidgets.widgets import precision_panel


@pytest.fixture
def run(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    wide = rng.lognormal(0, 1, (64, 64)).astype(np.float32)
    with Hook(tmp_path / "run") as hook:
        for step in range(4):
            hook.save_scalar("loss", 1.0)
            if step % 2 == 0:
                hook.save_tensor("even", np.ones((8, 8), np.float32), "weights")
                hook.save_tensor("<wide>", wide ** (1 + 2 * step), "weights")  # its spread grows
                hook.save_tensor("index", np.arange(8), "weights")
            hook.step()
    return tmp_path / "run"


@pytest.fixture
def widget(run: Path) -> Iterator[Any]:
    explorer = smdwidgets.explore(run, tensor="even", step=0)
    yield explorer
    explorer.close()


def rows_of(panel: Any) -> list[list[str]]:
    panel.wait()
    body = panel.value.partition("<tbody>")[2].partition("</tbody>")[0]
    return [
        [re.sub("<[^>]*>", "", cell) for cell in re.findall("<td[^>]*>(.*?)</td>", row)]
        for row in re.findall("<tr>(.*?)</tr>", body)
    ]


def test_the_table_has_the_shares_at_the_step_in_view_and_follows_it(run: Path, widget: Any) -> None:
    panel = widget.precision()
    first = rows_of(panel)
    assert [row[:2] for row in first] == [["even", "0"], ["&lt;wide&gt;", "0"]]  # the tensor in view, then the worst
    assert first[0][2:] == ["0.00%", "0.00%", "0.000"] * 4
    trial = smdwidgets.create_trial(run)
    exact = trial.tensor("<wide>").precision(2)
    assert exact[0].flushed > 0.05
    widget.step = 3  # the last earlier value is shown
    row = rows_of(panel)[1]
    assert row[:2] == ["&lt;wide&gt;", "2"]
    for place, loss in enumerate(exact):
        cells = [f"{loss.flushed:.2%}", f"{loss.saturated:.2%}", f"{loss.error:.3f}"]
        assert row[2 + 3 * place : 5 + 3 * place] == cells
    assert "color:#b3261e" in panel.value  # more than 5 % are flushed
    widget.tensor = "<wide>"
    assert [row[0] for row in rows_of(panel)] == ["&lt;wide&gt;", "even"]
    widget.step = 0
    assert rows_of(panel)[0][1] == "0"
    before = panel.value
    panel.close()
    widget.step = 3
    assert panel.value == before


def test_only_named_and_few_tensors_are_shown(widget: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [row[0] for row in rows_of(widget.precision(["<wide>"]))] == ["even", "&lt;wide&gt;"]
    panel = widget.precision(most=0)
    assert len(rows_of(panel)) == 1
    assert "1 more tensors lose less" in panel.value
    monkeypatch.setattr(precision_panel, "_MOST_BYTES", 1000)
    panel = widget.precision()
    assert len(rows_of(panel)) == 1
    assert "left out: tensors of 16" in panel.value
    panel = smdwidgets.explore(widget.trial, tensor="scalar/loss").precision(["index"])
    assert rows_of(panel) == []
    assert "No tensor of several numbers" in panel.value


def test_a_failure_is_shown(widget: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: Any, **options: Any) -> None:
        raise ValueError("planted")

    monkeypatch.setattr(precision_panel, "precision_of", fails)
    panel = widget.precision()
    panel.wait()
    assert "ValueError: planted" in panel.value


def test_a_trial_lists_tensors_the_worst_first(run: Path) -> None:
    trial = smdwidgets.create_trial(run)
    table = trial.precision()
    assert table["name"].tolist() == ["<wide>"] * 4 + ["even"] * 4
    assert table["format"].tolist() == ["E4M3", "E5M2", "MXFP8", "NVFP4"] * 2
    assert set(table["step"].tolist()) == {2}
    exact = trial.tensor("<wide>").precision(2)
    assert table["flushed"][:4].tolist() == [one.flushed for one in exact]
    assert trial.precision(1, "even")["step"].tolist() == [0] * 4
    assert (
        trial.precision(0, ["<wide>"], scaled=False)["saturated"].tolist()[0]
        == trial.tensor("<wide>").precision(0, scaled=False)[0].saturated
    )
    assert trial.precision(names="scalar/loss").num_rows == 0
