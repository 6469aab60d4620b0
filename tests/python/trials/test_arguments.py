"""Steps and names that are no steps and no names raise errors which say so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from python.trials import runs
from smdwidgets import Trial, create_trial

BAD_STEPS = [1.5, "3", None, True, np.float64(2), np.True_, [1], np.array([1, 2])]


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Trial:
    root = runs.run(tmp_path_factory.mktemp("arguments"), range(5))
    return create_trial(Path(root))


def _step_queries(trial: Trial) -> dict[str, Any]:
    tensor = trial.tensor("x")
    return {
        "value": tensor.value,
        "value of a mode": lambda step: tensor.value(step, "train"),
        "rows": lambda step: tensor.rows(step, 0, 1),
        "rows from": lambda step: tensor.rows(1, step, 1),
        "coverage": tensor.coverage,
        "shape": tensor.shape,
        "workers": tensor.workers,
        "prev_steps": tensor.prev_steps,
        "reduction_value": lambda step: tensor.reduction_value(step, "mean"),
        "reduction_values": tensor.reduction_values,
        "global_step of a tensor": tensor.global_step,
        "signature": tensor.signature,
        "difference": lambda step: tensor.difference(1, step),
        "difference of a trial": lambda step: trial.difference(("x", 1), ("x", step)),
        "mode": trial.mode,
        "mode_step": trial.mode_step,
        "mode_modestep": trial.mode_modestep,
        "global_step": lambda step: trial.global_step("train", step),
        "has_passed_step": trial.has_passed_step,
        "wait_for_steps": lambda step: trial.wait_for_steps([step]),
    }


@pytest.mark.parametrize("bad", BAD_STEPS, ids=repr)
def test_a_step_that_is_no_integer_raises(trial: Trial, bad: object) -> None:
    for name, ask in _step_queries(trial).items():
        with pytest.raises(TypeError) as raised:
            ask(bad)
        shown = str(raised.value)
        assert "must be" in shown, name
        assert repr(bad)[:8] in shown, name


@pytest.mark.parametrize("bad", [1.5, "3", [1]])
def test_a_step_of_names_that_is_no_integer_raises(trial: Trial, bad: object) -> None:
    # A string is a pattern of names.
    names = (trial.tensor_names,) if not isinstance(bad, str) else ()
    for ask in (*names, trial.inputs, trial.labels, trial.predictions):
        with pytest.raises(TypeError, match="step must be an integer"):
            ask(bad)


@pytest.mark.parametrize("bad", [1.5, "ab", True, [1.5], [True]])
def test_steps_of_a_table_that_are_no_integers_raise(trial: Trial, bad: object) -> None:
    for ask in (
        lambda: trial.values({"x": bad}),
        lambda: trial.reductions(["x"], bad),
        lambda: trial.statistics(["x"], bad),
        lambda: trial.tensor("x").to_dask(bad),
    ):
        with pytest.raises(TypeError, match="steps must be an integer"):
            ask()


@pytest.mark.parametrize("bad", [3, None, 1.5, b"x", ["x"], {}], ids=repr)
def test_a_name_that_is_no_string_raises(trial: Trial, bad: object) -> None:
    for ask in (trial.tensor, trial.has_tensor, trial.collection):
        with pytest.raises(TypeError, match="must be a string, got ") as raised:
            ask(bad)
        assert repr(bad) in str(raised.value)


@pytest.mark.parametrize("bad", [3, [3], {3: [1]}], ids=repr)
def test_names_of_a_table_that_are_no_strings_raise(trial: Trial, bad: Any) -> None:
    for ask in (trial.values, trial.reductions, trial.statistics):
        with pytest.raises(TypeError, match="names must be a string"):
            ask(bad)


def test_integers_of_numpy_are_steps(trial: Trial) -> None:
    for step in (np.int64(2), np.uint8(2), np.array(2)):
        assert trial.tensor("x").value(step).tolist() == trial.tensor("x").value(2).tolist()
        assert trial.tensor("x").shape(step) == trial.tensor("x").shape(2)
        assert trial.tensor_names(step) == trial.tensor_names(2)
        assert trial.mode(step) == trial.mode(2)
        assert trial.tensor("x").prev_steps(step) == trial.tensor("x").prev_steps(2)
        assert trial.reductions(["x"], step).num_rows == trial.values({"x": step}).num_rows == 1
