"""Read many tensors and steps in one call, as columns."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas
import pyarrow
import pytest

from python.trials import runs
from smdwidgets import Trial, create_trial, modes
from smdwidgets._core import reduction_name
from smdwidgets.exceptions import DataError, TensorUnavailable
from smdwidgets.trials import Columns
from smdwidgets.trials.run import REDUCTIONS


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    runs.collections(tmp_path, workers=2)
    for step in range(6):
        mode = modes.EVAL if step % 3 == 2 else modes.TRAIN
        for rank in range(2):
            values = {"loss": np.float32(step + rank / 10), "w": np.full((2, 2), step - rank, np.float64)}
            if step == 4:
                values["w"] = np.arange(3)
            runs.step(tmp_path, step, values, f"worker_{rank}", mode, step // 3)
    return create_trial(runs.end(tmp_path))


def test_scalars_are_one_numeric_column(trial: Trial) -> None:
    table = trial.values("loss")
    assert list(table) == ["name", "step", "mode", "mode_step", "worker", "value"]
    assert table["step"].tolist() == list(range(6))
    assert table["mode"].tolist() == ["TRAIN", "TRAIN", "EVAL"] * 2
    assert table["worker"].tolist() == ["worker_0"] * 6
    np.testing.assert_allclose(table["value"], np.arange(6, dtype=np.float32))
    assert table.num_rows == 6
    assert len(table) == 6


def test_names_steps_modes_workers(trial: Trial) -> None:
    table = trial.values({"loss": [1], "w": [0, 4, 99]}, worker="*")
    rows = list(zip(table["name"], table["step"], table["worker"], strict=True))
    assert rows == [(n, s, f"worker_{r}") for n, s in (("loss", 1), ("w", 0), ("w", 4)) for r in (0, 1)]
    assert table["value"][-1].tolist() == [0, 1, 2]
    assert trial.values(["loss"], mode=modes.EVAL)["step"].tolist() == [2, 5]
    assert trial.values({"loss": [1]}, mode="eval")["mode_step"].tolist() == [1]
    assert trial.values({"loss": 3}, worker="worker_1")["value"].tolist() == pytest.approx([3.1])  # type: ignore[dict-item]
    assert trial.values().num_rows == 12
    assert trial.values({"loss": []}).num_rows == 0
    with pytest.raises(TensorUnavailable, match="'loss'"):
        trial.values("los")


def test_values_names_the_worker_of_the_value(tmp_path: Path) -> None:
    runs.collections(tmp_path, workers=2)
    runs.step(tmp_path, 0, {}, "worker_0", shapes={"w": (2,)})
    runs.step(tmp_path, 0, {"w": np.ones(2)}, "worker_1")
    runs.step(tmp_path, 1, {"w": np.zeros(2)}, "worker_0")
    runs.step(tmp_path, 1, {"w": np.ones(2)}, "worker_1")
    table = create_trial(runs.end(tmp_path)).values("w")
    assert table["worker"].tolist() == ["worker_1", "worker_0"]
    assert table["value"].tolist() == [[1, 1], [0, 0]]


def test_all_reductions_equal_those_of_single_calls(trial: Trial) -> None:
    table = trial.reductions()
    assert table.num_rows == 12
    for row in range(table.num_rows):
        tensor, step = trial.tensor(table["name"][row]), int(table["step"][row])
        for name in REDUCTIONS:
            for absolute in (False, True):
                single = tensor.reduction_value(step, name, abs=absolute)
                assert table[("abs_" if absolute else "") + name][row] == pytest.approx(single)


def test_selected_reductions(trial: Trial) -> None:
    table = trial.reductions("w", 2, reductions=["mean", "abs_max"], worker="*", counts=True)
    assert table["mean"].tolist() == [2.0, 1.0]
    assert {"abs_max", "nan", "zero", "size"} <= set(table)
    assert "min" not in table
    assert trial.reductions(["loss"], mode=modes.EVAL, reductions="mean")["mean"].tolist() == [2.0, 5.0]
    assert trial.reductions(["loss"], [1], mode=modes.EVAL, reductions="mean")["step"].tolist() == [5]


def test_saved_reductions_take_precedence(tmp_path: Path) -> None:
    runs.collections(tmp_path)
    runs.step(tmp_path, 0, {"w": [1.0, 2.0], reduction_name("mean", False, "w"): 99.0})
    runs.step(tmp_path, 1, {reduction_name("mean", False, "w"): 98.0})
    trial = create_trial(runs.end(tmp_path))
    assert trial.reductions("w", reductions="mean")["mean"].tolist() == [99.0, 98.0]
    assert trial.values("w")["step"].tolist() == [0]


def test_damage_is_an_error_of_one_row(trial: Trial) -> None:
    event = Path(trial.path, "events/000000000003/000000000003_worker_0.tfevents")
    event.write_bytes(event.read_bytes()[:-10])
    table = trial.values(["loss", "w"])
    [failure] = table.errors
    assert (failure.name, failure.step) == ("w", 3)
    assert isinstance(failure.error, DataError)
    assert table["step"].tolist() == [0, 1, 2, 3, 4, 5, 0, 1, 2, 4, 5]
    reductions = trial.reductions(["loss", "w"], reductions="mean")
    assert [(failure.name, failure.step) for failure in reductions.errors] == [("w", 3)]
    assert reductions.num_rows == 11
    assert "1 unreadable record" in repr(reductions)


def test_progress(trial: Trial) -> None:
    seen: list[tuple[int, int]] = []
    trial.reductions(progress=lambda done, total: seen.append((done, total)))
    assert seen[-1][0] == seen[-1][1] > 0


def test_pandas(trial: Trial) -> None:
    table = trial.values({"loss": None, "w": [0, 4]})
    frame = table.to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert frame.groupby("name")["step"].count().to_dict() == {"loss": 6, "w": 2}
    assert trial.values({"w": [0, 1]}).to_pandas()["value"][1].tolist() == [[1, 1], [1, 1]]


def test_arrow(trial: Trial) -> None:
    # Through the PyCapsule interface: `pyarrow.table` takes a dictionary by its columns, which must be flat.
    table = pyarrow.RecordBatchReader.from_stream(trial.values({"w": [0, 4]})).read_all()
    assert table.column("value").to_pylist() == [[0, 0, 0, 0], [0, 1, 2]]
    assert table.column("value_shape").to_pylist() == [[2, 2], [3]]
    alike = trial.values({"w": [0, 1]}).to_arrow()
    assert alike.column("value").to_pylist() == [[[0, 0], [0, 0]], [[1, 1], [1, 1]]]
    reductions = pyarrow.table(trial.reductions(reductions=["mean", "l2"]))
    assert reductions.column_names == ["name", "step", "mode", "mode_step", "worker", "mean", "l2"]
    assert reductions.num_rows == 12


def test_columns_of_one_table_have_one_length() -> None:
    with pytest.raises(ValueError, match="equal lengths"):
        Columns({"a": np.arange(2), "b": np.arange(3)})


def test_reprs_are_short_and_escaped() -> None:
    table = Columns({"name": np.array(["<script>alert(1)</script>\x1b[2J"] * 20, dtype=object), "n": np.arange(20)})
    assert "10 more rows" in repr(table)
    assert "\x1b" not in repr(table)
    assert "<script>" not in table._repr_html_()
    assert "&lt;script&gt;" in table._repr_html_()
