"""Statistics of all numbers of a log, computed at once, are those of each row."""

from __future__ import annotations

import numpy as np
import pytest
from tensorboardX import SummaryWriter

import smdwidgets
from smdwidgets.survey import Survey
from smdwidgets.trials.run import Selection
from smdwidgets.trials.tensorboard.run import TensorBoardRun


def write(folder):
    """Write numbers that are lost, written again, and made void by a restart."""
    with SummaryWriter(folder) as writer:
        for step in range(40):
            for name in "abc":
                writer.add_scalar(name, np.nan if step == 5 else 0.1 * step, step)
        for step in range(10, 30):
            writer.add_scalar("a", -step, step)
        writer.add_scalar("d", np.inf, 3)
        writer.add_scalar("c", 9.0, 3)
        writer.add_histogram("h", np.ones(5), 3)
    # A file of the same second and name would replace the first.
    with SummaryWriter(folder, filename_suffix=".later") as writer:
        for step in range(20, 35):
            writer.add_scalar("b", 7.0 * step, step)


@pytest.mark.parametrize("steps", [None, (5, 25)])
@pytest.mark.parametrize("every", [None, 1, 2])
def test_rows_and_columns_are_those_of_single_rows(tmp_path, monkeypatch, steps, every):
    write(tmp_path)
    trial = smdwidgets.create_trial(tmp_path, **({} if steps is None else {"range_steps": steps}))
    run = trial.reader.run
    run.load()
    names = [name for name in trial.reader.names() if run.kind_of(name) == "scalar"]
    asked = Selection(names, None if every is None else trial.steps()[::every], [])
    at_once = run._numbers_of(asked)
    monkeypatch.setattr(TensorBoardRun, "_numbers_of", lambda *_: None)
    single = run.statistics(asked)
    assert at_once.keys() == single.keys()
    for name, column in single.items():
        if name == "error":
            assert at_once[name] == column
            continue
        assert at_once[name].dtype == column.dtype, name
        assert np.array_equal(at_once[name], column, equal_nan=column.dtype.kind == "f"), name


def test_a_survey_of_numbers_reads_no_single_row(tmp_path, monkeypatch):
    with SummaryWriter(tmp_path) as writer:
        for step in range(20):
            for name in "abc":
                writer.add_scalar(name, np.nan if (name, step) == ("b", 7) else 1.0, step)
    monkeypatch.delattr(TensorBoardRun, "_rows")
    survey = Survey(smdwidgets.create_trial(tmp_path))
    survey.update()
    assert [one.id for one in survey.findings()] == ["not_finite:b:7"]


def test_numbers_that_are_added_are_read(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        for step in range(20):
            writer.add_scalar("a", 1.0, step)
    survey = Survey(smdwidgets.create_trial(tmp_path))
    survey.update()
    assert not survey.findings()
    with SummaryWriter(tmp_path, filename_suffix=".later") as writer:
        for step in range(20, 23):
            writer.add_scalar("a", np.nan if step == 20 else 1.0, step)
    survey.trial.reader.refresh_data()
    survey.update()
    assert [one.id for one in survey.findings()] == ["not_finite:a:20"]
