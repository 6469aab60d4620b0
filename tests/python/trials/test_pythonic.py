"""Trials are mappings, tensors are sequences, tables are dictionaries."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas
import pyarrow
import pytest
from pyarrow.interchange import from_dataframe

import smdwidgets
from python.trials import runs
from smdwidgets import Trial, create_trial, modes
from smdwidgets.exceptions import StepUnavailable, TensorUnavailable
from smdwidgets.trials import Columns


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    """Twelve steps 0, 2, … 22, with one tensor that changes its shape."""
    runs.collections(tmp_path)
    for step in range(0, 24, 2):
        mode = modes.EVAL if step % 8 == 6 else modes.TRAIN
        values = {"loss": np.array([step], np.float32), "fc1.weight": np.full((2, 3), step, np.float32)}
        values["ragged"] = np.zeros(step + 1, np.float32)
        runs.step(tmp_path, step, values, mode=mode, mode_step=step // 2, shapes={"shape_only": (4,)})
    return create_trial(runs.end(tmp_path))


def test_a_trial_is_a_mapping_from_names_to_tensors(trial: Trial) -> None:
    assert trial["fc1.weight"] is trial.tensor("fc1.weight")
    assert "loss" in trial
    assert "lost" not in trial
    assert 7 not in trial
    assert list(trial) == trial.tensor_names() == sorted(trial)
    assert len(trial) == 4
    with pytest.raises(KeyError, match=r"no tensor 'fc1.wieght'.*Did you mean 'fc1.weight'\?"):
        trial["fc1.wieght"]
    with pytest.raises(TensorUnavailable):
        trial["fc1.wieght"]


def test_an_empty_trial_is_true(tmp_path: Path) -> None:
    empty = create_trial(runs.end(runs.collections(tmp_path)))
    assert len(empty) == 0
    assert empty


def test_a_tensor_is_a_sequence_over_steps(trial: Trial) -> None:
    weight = trial["fc1.weight"]
    assert len(weight) == 12
    assert weight[10].tolist() == weight.value(10).tolist() == np.full((2, 3), 10).tolist()
    assert weight[np.int64(4)][0, 0] == 4
    assert weight[-1][0, 0] == weight.value()[0, 0] == 22
    assert weight[-12][0, 0] == 0
    assert weight[:10].shape == (5, 2, 3)
    assert weight[:10][:, 0, 0].tolist() == [0, 2, 4, 6, 8]
    assert weight[9:][0, 0, 0] == 10
    assert weight[-2:][:, 0, 0].tolist() == [20, 22]
    assert weight[::5][:, 0, 0].tolist() == [0, 10, 20]
    assert weight[100:].shape == (0, 2, 3)
    assert [value[0, 0] for value in weight] == list(range(0, 24, 2))
    with pytest.raises(StepUnavailable):
        weight[3]
    with pytest.raises(IndexError, match=r"'fc1.weight' has 12 values"):
        weight[-13]
    with pytest.raises(TypeError, match="start must be an integer, got 'a'"):
        weight["a":]
    with pytest.raises(ValueError, match="the step of a slice must be at least 1, got -1"):
        weight[::-1]


def test_numpy_takes_a_tensor(trial: Trial) -> None:
    assert np.asarray(trial["fc1.weight"]).shape == (12, 2, 3)
    assert np.asarray(trial["loss"], np.float64).dtype == np.float64
    assert float(np.mean(trial["loss"])) == 11
    with pytest.raises(ValueError, match=r"differ in shape or dtype.*trial.values\('ragged'\)"):
        np.asarray(trial["ragged"])
    with pytest.raises(ValueError, match="copy=None"):
        np.asarray(trial["loss"], copy=False)


def test_the_last_value_is_that_of_the_mode(trial: Trial) -> None:
    assert trial["loss"].value(mode="eval").item() == 22
    assert trial["loss"].value(mode="train").item() == 20
    assert trial["loss"].steps_with_value("eval") == [3, 7, 11]
    with pytest.raises(ValueError, match="no value was saved in mode PREDICT"):
        trial["loss"].value(mode="predict")
    with pytest.raises(smdwidgets.exceptions.TensorUnavailableForStep):
        trial["shape_only"].value()
    assert len(trial["shape_only"]) == 0
    assert trial["shape_only"]
    with pytest.raises(TypeError, match="step_num must be an integer, got None"):
        trial["loss"].value(None)  # type: ignore[arg-type]


def test_the_first_argument_of_names_is_a_step_or_a_pattern(trial: Trial) -> None:
    assert trial.tensor_names("fc1") == trial.tensors("fc1") == ["fc1.weight"]
    assert "loss" in trial.tensor_names(10)
    assert trial.tensor_names(3) == []
    assert trial.tensor_names(False) == trial.tensor_names()
    with pytest.raises(TypeError, match=r"two patterns, 'fc1' and regex='loss'"):
        trial.tensor_names("fc1", regex="loss")


def test_every_trial_has_scalars(trial: Trial) -> None:
    table = trial.scalars()
    assert list(table) == ["name", "step", "mode", "mode_step", "worker", "wall_time", "value"]
    assert set(table["name"]) == {"loss"}  # the first value of `ragged` has one element, but not the others
    assert table["value"].tolist() == list(range(0, 24, 2))
    assert trial.scalars("loss", mode="eval")["step"].tolist() == [6, 14, 22]
    with pytest.raises(ValueError, match=r"'fc1.weight' has 6 elements and is no scalar; see trial.values\(\)"):
        trial.scalars("fc1.weight")
    with pytest.raises(TensorUnavailable, match="Did you mean 'loss'"):
        trial.scalars("los")


def test_pandas_and_arrow_take_a_table_as_it_is(trial: Trial) -> None:
    table = trial.statistics("fc1.weight")
    frame = pandas.DataFrame(table)
    assert list(frame.columns) == list(table)
    assert frame["mean"].tolist() == table["mean"].tolist()
    assert len(frame) == table.num_rows == 12
    assert pyarrow.table(table).num_rows == 12
    assert from_dataframe(table).column_names == list(table)
    assert isinstance(table, dict)
    with pytest.raises(KeyError, match=r"no column 'maen'; choose from .* Did you mean 'mean'\?"):
        table["maen"]


def test_a_table_can_be_pickled_and_compared() -> None:
    import pickle

    table = Columns({"step": np.arange(2)}, last_step=7)
    again = pickle.loads(pickle.dumps(table))
    assert type(again) is Columns
    assert again.last_step == 7
    assert again["step"].tolist() == [0, 1]


@pytest.mark.parametrize("steps", [None, range(0, 60, 2)])
def test_series_in_memory_are_values_or_steps_and_values(steps: range | None) -> None:
    values = [1.0] * 20 + [float("nan")] * 10
    found = smdwidgets.diagnose({"loss": values if steps is None else (steps, values)})
    assert found.findings[0].first == (20 if steps is None else 40)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([0.1, 0.2], r"run must be a trial, a path, or a dictionary of series .*got \[0.1, 0.2\]"),
        ({"loss": "abc"}, r"series 'loss' must be a sequence of numbers, or a tuple \(steps, values\), got 'abc'"),
        ({"loss": [[1.0, 2.0]]}, r"series 'loss' must have equally many steps and values"),
    ],
)
def test_what_is_no_run_and_no_series_is_named(given: object, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        smdwidgets.diagnose(given)  # type: ignore[call-overload]


def test_a_hook_is_an_attribute_of_the_package_and_imports_no_framework() -> None:
    code = (
        "import sys, smdwidgets as s\n"
        "[s.pytorch, s.transformers, s.lightning, s.keras, s.xgboost, s.lightgbm, s.jax, s.numpy, s.rules, s.exceptions]\n"
        "print({'torch', 'keras', 'transformers', 'jax', 'xgboost', 'lightgbm'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
    with pytest.raises(AttributeError, match=r"no attribute 'pytoch'\. Did you mean 'pytorch'"):
        smdwidgets.pytoch  # noqa: B018
